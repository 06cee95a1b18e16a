"""A dead letter leaves its queue only after its record is stored: dead letters never expire, and fill the topic."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient

from inbox.errors import StoreAway
from inbox.set_aside import Delivery
from infra.servicebus.bodies import body_of
from infra.servicebus.errors import SDK_ERRORS, verdict
from infra.servicebus.received import delivery_of

AT_ONCE = 50
SILENCE_SECONDS = 2.0
"""After so long without a message the queue is taken to be empty."""

Keep = Callable[[Delivery, str], Awaitable[None]]
"""Stores the record of a message, with the reason for which it became a dead letter."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeadLetters:
    """The dead-letter queue of one subscription."""

    client: ServiceBusClient
    topic: str
    subscription: str

    async def collect(self, keep: Keep, *, seconds: float) -> int:
        """Move what is there into records, for so many seconds at most. Returns how many. Raises StoreAway."""
        collected = 0
        try:
            async with (
                asyncio.timeout(seconds),
                self.client.get_subscription_receiver(
                    self.topic, self.subscription, sub_queue=ServiceBusSubQueue.DEAD_LETTER
                ) as receiver,
            ):
                while messages := await receiver.receive_messages(AT_ONCE, max_wait_time=SILENCE_SECONDS):
                    for message in messages:
                        await keep(self._delivery(message), _reason(message))
                        await receiver.complete_message(message)
                        collected += 1
        except TimeoutError:
            _log.info("not all dead letters were collected within %.0f s: the next run goes on", seconds)
        except SDK_ERRORS as error:
            raise StoreAway(f"the dead letters cannot be read: {verdict(error)[1]}") from error
        if collected:
            _log.warning("collected %d dead letter(s) of %s", collected, self.subscription)
        return collected

    def _delivery(self, message: ServiceBusReceivedMessage) -> Delivery:
        return delivery_of(message, body_of(message), self.subscription)


def _reason(message: ServiceBusReceivedMessage) -> str:
    """The broker's word; the description beside it may hold anything."""
    return f"dead letter: {str(message.dead_letter_reason or 'no reason given')[:100]}"

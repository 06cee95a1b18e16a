"""A dead letter leaves its queue only after its record is stored: dead letters never expire, and fill the topic."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from cosmos_outbox.inbox.deliveries import Collected, Keep
from cosmos_outbox.inbox.errors import StoreAway
from cosmos_outbox.inbox.set_aside import Delivery
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.servicebus.bodies import body_of
from cosmos_outbox.servicebus.errors import SDK_ERRORS, verdict
from cosmos_outbox.servicebus.in_time import in_time
from cosmos_outbox.servicebus.received import delivery_of

AT_ONCE = 10
SILENCE_SECONDS = 2.0
"""After so long without a message the queue is taken to be empty."""

_SETTLE_SECONDS = 10.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeadLetters:
    """The dead-letter queue of one subscription."""

    client: ServiceBusClient
    topic: str
    subscription: str
    is_queue: bool = False
    """Whether ``topic`` is a queue."""

    async def collect(self, keep: Keep, *, seconds: float) -> Collected:
        """Move what is there into records; receives nothing more after so many seconds. Raises StoreAway.

        What was received is dealt with to its end: a message that is left would be hidden until its lock expires.
        """
        until, collected, emptied = monotonic() + seconds, 0, False
        try:
            async with self._receiver(until) as receiver:
                while messages := await self._receive(receiver, until):
                    for message in messages:
                        await keep(self._delivery(message), _reason(message))
                        await in_time(receiver.complete_message(message), monotonic() + _SETTLE_SECONDS)
                        collected += 1
                emptied = True
        except TimeoutError:
            _log.info("not all dead letters were collected within %.0f s: the next run goes on", seconds)
        except SDK_ERRORS as error:
            raise StoreAway(f"the dead letters cannot be read: {verdict(error)[1]}") from error
        if collected:
            _log.warning("collected %d dead letter(s) of %s", collected, self.subscription)
        return Collected(collected, emptied)

    @asynccontextmanager
    async def _receiver(self, until: float) -> AsyncIterator[ServiceBusReceiver]:
        dead = ServiceBusSubQueue.DEAD_LETTER
        receiver = (
            self.client.get_queue_receiver(self.topic, sub_queue=dead)
            if self.is_queue
            else self.client.get_subscription_receiver(self.topic, self.subscription, sub_queue=dead)
        )
        try:
            await in_time(receiver.__aenter__(), until)
            yield receiver
        finally:
            with suppress(*SDK_ERRORS):
                await in_time(receiver.close(), monotonic() + _SETTLE_SECONDS)

    async def _receive(
        self, receiver: ServiceBusReceiver, until: float
    ) -> Sequence[ServiceBusReceivedMessage]:
        """Empty: so is the queue. Raises TimeoutError: whether it is empty is not known."""
        if monotonic() >= until:
            raise TimeoutError
        receiving = receiver.receive_messages(AT_ONCE, max_wait_time=SILENCE_SECONDS)
        return await in_time(receiving, until + SILENCE_SECONDS)

    def _delivery(self, message: ServiceBusReceivedMessage) -> Delivery:
        return delivery_of(message, body_of(message), self.subscription)


def _reason(message: ServiceBusReceivedMessage) -> str:
    """The broker's word; the description beside it may hold anything."""
    return f"dead letter: {str(message.dead_letter_reason or 'no reason given')[:100]}"

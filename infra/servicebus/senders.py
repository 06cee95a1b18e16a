"""A sender serves one send at a time, and is closed after any failure before anything else is sent.

After a failure the state of a sender's link is unknown: a send that got no answer may still be on its way. Each sender
has a connection of its own.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from infra.servicebus.errors import SDK_ERRORS
from infra.servicebus.unmeasured import unmeasured

SEND_TIMEOUT_SECONDS = 20.0
"""The timeout for opening a link and for each send. The SDK has no timeout by default."""

_CLOSE_TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True)
class Limits:
    """What the topic takes, as its link tells."""

    batch_bytes: int
    message_bytes: int
    """Of a message that is sent alone. In the Premium tier this can be more than a batch may have."""


class Senders:
    """The senders of one topic, at most ``most`` at once. The methods raise what is in ``SDK_ERRORS``."""

    def __init__(self, client: ServiceBusClient, topic: str, most: int) -> None:
        self._client = client
        self._topic = topic
        self.places = asyncio.Semaphore(most)
        """Held by whoever sends: so that what it sends is decided when its turn comes, and not before."""
        self._idle: list[ServiceBusSender] = []

    async def limits(self) -> Limits:
        """Asks the topic if no link is open, since only a link tells."""
        async with self.places, self._lent() as sender:
            batch = await _new_batch(sender)
            # The SDK keeps this number to itself. A test pins that it is there and that it is the link's.
            message_bytes: int = sender._max_message_size_on_link  # noqa: SLF001
            return Limits(batch.max_size_in_bytes, message_bytes)

    async def send(self, messages: Sequence[ServiceBusMessage]) -> None:
        """Send all of them as one batch, or the only one by itself, from a place that the caller holds.

        Returns when the topic has accepted them.
        """
        async with self._lent() as sender:
            what: ServiceBusMessage | ServiceBusMessageBatch = messages[0]
            if len(messages) > 1:
                what = await _new_batch(sender)
                with unmeasured(what):
                    for message in messages:
                        what.add_message(message)
            async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
                await sender.send_messages(what, timeout=SEND_TIMEOUT_SECONDS)

    async def close(self) -> None:
        """Close the idle senders; the caller closes the client."""
        while self._idle:
            await _close(self._idle.pop())

    @asynccontextmanager
    async def _lent(self) -> AsyncIterator[ServiceBusSender]:
        sender = self._idle.pop() if self._idle else self._client.get_topic_sender(self._topic)
        try:
            yield sender
        except BaseException:  # a cancelled send too
            await _close(sender)
            raise
        self._idle.append(sender)


async def _new_batch(sender: ServiceBusSender) -> ServiceBusMessageBatch:
    async with asyncio.timeout(SEND_TIMEOUT_SECONDS):  # the first call opens the link, to learn the limits
        return await sender.create_message_batch()


async def _close(sender: ServiceBusSender) -> None:
    with contextlib.suppress(*SDK_ERRORS):
        async with asyncio.timeout(_CLOSE_TIMEOUT_SECONDS):
            await sender.close()

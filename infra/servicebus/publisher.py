"""One contact's events reach the topic in the order given, or the caller learns that they may not have.

All of one call go through one sender, batch after batch, each accepted before the next is sent; a failure stops them
there. A sender serves one coroutine at a time and is dropped after any failure, since its link may hold anything.
Sending an event twice does no harm: the topic drops what has a MessageId that it knows.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from application.ports import OutboxEvent, Refusal
from domain.errors import NotDelivered
from infra.servicebus.errors import SDK_ERRORS, Verdict, verdict
from infra.servicebus.message import message_from_event

SEND_TIMEOUT_SECONDS = 20.0
"""For opening a link and for each send. The SDK's own default is none at all."""

_CLOSE_TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True)
class _Letter:
    """An event and the message that carries it."""

    event: OutboxEvent
    message: ServiceBusMessage


class ServiceBusPublisher:
    """Sends events to one topic; shared by all invocations of the process."""

    def __init__(self, client: ServiceBusClient, topic: str, *, partitioned: bool) -> None:
        self._client = client
        self._topic = topic
        self._partitioned = partitioned
        self._idle: list[ServiceBusSender] = []

    async def publish(self, contact_id: str, events: Sequence[OutboxEvent]) -> Refusal | None:
        """Send one contact's events in order. See :class:`application.ports.EventPublisher`."""
        letters, impossible = self._letters(events)
        send = _one_by_one if self._partitioned else _in_batches
        try:
            async with self._sender() as sender:
                return await send(sender, letters) or impossible
        except SDK_ERRORS as error:
            raise NotDelivered(verdict(error)[1]) from error

    async def close(self) -> None:
        """Close the idle senders; the client is closed by who made it."""
        while self._idle:
            await _close(self._idle.pop())

    def _letters(self, events: Sequence[OutboxEvent]) -> tuple[list[_Letter], Refusal | None]:
        """The messages up to the first event that the SDK cannot make one of."""
        letters: list[_Letter] = []
        for event in events:
            try:
                letters.append(_Letter(event, message_from_event(event, partitioned=self._partitioned)))
            except ValueError:
                return letters, Refusal(
                    event, "the SDK cannot make a message of it: see the limits of Service Bus"
                )
        return letters, None

    @asynccontextmanager
    async def _sender(self) -> AsyncIterator[ServiceBusSender]:
        sender = self._idle.pop() if self._idle else self._client.get_topic_sender(self._topic)
        try:
            yield sender
        except BaseException:  # a cancelled send too: nobody knows what its link holds
            await _close(sender)
            raise
        self._idle.append(sender)


async def _in_batches(sender: ServiceBusSender, letters: Sequence[_Letter]) -> Refusal | None:
    """As few batches as the letters fit into, up to the first letter that fits none."""
    waiting: list[_Letter] = []
    batch = await _new_batch(sender)
    for letter in letters:
        if waiting and not _fits(batch, letter):
            if refusal := await _send(sender, batch, waiting):
                return refusal
            waiting, batch = [], await _new_batch(sender)
        if not waiting and not _fits(batch, letter):
            return _too_large(letter)
        waiting.append(letter)
    return await _send(sender, batch, waiting) if waiting else None


async def _send(
    sender: ServiceBusSender, batch: ServiceBusMessageBatch, letters: Sequence[_Letter]
) -> Refusal | None:
    """Send a batch; should the service find it too large after all, its letters one by one."""
    try:
        async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
            await sender.send_messages(batch, timeout=SEND_TIMEOUT_SECONDS)
    except SDK_ERRORS as error:
        if verdict(error)[0] is Verdict.WAIT:
            raise
        return await _one_by_one(sender, letters)
    return None


async def _one_by_one(sender: ServiceBusSender, letters: Sequence[_Letter]) -> Refusal | None:
    for letter in letters:
        if not _fits(
            await _new_batch(sender), letter
        ):  # the SDK measures a message only where it makes a batch
            return _too_large(letter)
        try:
            async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
                await sender.send_messages(letter.message, timeout=SEND_TIMEOUT_SECONDS)
        except SDK_ERRORS as error:
            if verdict(error)[0] is Verdict.WAIT:
                raise
            return _too_large(letter)
    return None


async def _new_batch(sender: ServiceBusSender) -> ServiceBusMessageBatch:
    async with asyncio.timeout(SEND_TIMEOUT_SECONDS):  # the first one opens the link, to learn its size limit
        return await sender.create_message_batch()


def _fits(batch: ServiceBusMessageBatch, letter: _Letter) -> bool:
    try:
        batch.add_message(letter.message)
    except MessageSizeExceededError:
        return False
    return True


def _too_large(letter: _Letter) -> Refusal:
    return Refusal(letter.event, Verdict.TOO_LARGE.value)


async def _close(sender: ServiceBusSender) -> None:
    with contextlib.suppress(*SDK_ERRORS):
        async with asyncio.timeout(_CLOSE_TIMEOUT_SECONDS):
            await sender.close()

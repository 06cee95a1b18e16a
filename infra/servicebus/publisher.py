"""Each aggregate's events reach the topic in the order given, or the caller learns which events may be missing.

All events of one aggregate go through one sender, batch after batch: each batch is accepted before the next is sent,
and a failure stops the aggregate. Several aggregates are sent side by side. A sender serves one coroutine at a time and
is dropped after any failure, since the state of its link is then unknown. When the topic answers no send of a page for
as long as one send may take, the rest of the page is not tried: a page fails soon, however many aggregates it has.
Sending an event twice does no harm: the topic drops a message with a MessageId that it knows.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from infra.servicebus.errors import NO_ANSWER, SDK_ERRORS, Verdict, verdict
from infra.servicebus.message import message_from_event
from outbox.publisher import Accepted, AggregateEvents, Guarantees, Outcome, Refused, Unknown

SEND_TIMEOUT_SECONDS = 20.0
"""The timeout for opening a link and for each send. The SDK has no timeout by default."""

SENDERS = 6
"""How many aggregates are sent at the same time. Each needs a connection; Microsoft's emulator allows ten in all."""

_CLOSE_TIMEOUT_SECONDS = 2.0


class _Waits(Exception):
    """A send failed for a reason that may pass; the first ``accepted`` messages are in the topic."""

    def __init__(self, accepted: int, error: BaseException) -> None:
        super().__init__(accepted, error)
        self.accepted = accepted
        self.error = error


class _Answers:
    """When the topic last answered a send of one page; that the page begins counts as an answer."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    @property
    def missing(self) -> bool:
        """Whether no send has got an answer for as long as a send may take."""
        return time.monotonic() - self._last >= SEND_TIMEOUT_SECONDS

    def note(self, error: BaseException | None = None) -> None:
        """A send has ended: without an error, or with this one."""
        if not isinstance(error, NO_ANSWER):
            self._last = time.monotonic()


class ServiceBusPublisher:
    """Sends events to one topic; shared by all invocations of the process. See :class:`outbox.publisher.Publisher`."""

    def __init__(
        self, client: ServiceBusClient, topic: str, *, source: str, partitioned: bool, senders: int = SENDERS
    ) -> None:
        self._client = client
        self._topic = topic
        self._source = source
        self._partitioned = partitioned
        self._places = asyncio.Semaphore(senders)
        self._idle: list[ServiceBusSender] = []

    @property
    def guarantees(self) -> Guarantees:
        """Sessions keep the order, the topic drops duplicates; one batch carries one session.

        The largest message is a setting of the topic, known only after a link is open.
        """
        return Guarantees(ordered=True, deduplicates=True, mixes_aggregates=False, largest_message_bytes=None)

    async def publish(self, page: Sequence[AggregateEvents]) -> Sequence[Outcome]:
        """Send each aggregate's events in order, several aggregates side by side."""
        answers = _Answers()
        async with (
            asyncio.TaskGroup() as sending
        ):  # a bug in one task cancels the others: no task goes on sending unseen
            tasks = [sending.create_task(self._publish_one(group, answers)) for group in page]
        return [task.result() for task in tasks]

    async def close(self) -> None:
        """Close the idle senders; the caller closes the client."""
        while self._idle:
            await _close(self._idle.pop())

    async def _publish_one(self, group: AggregateEvents, answers: _Answers) -> Outcome:
        messages, impossible = self._messages(group)
        send = _one_by_one if self._partitioned else _in_batches
        async with self._places:
            if answers.missing:
                return Unknown(0, verdict(TimeoutError())[1])
            try:
                async with self._sender() as sender:
                    refused = await send(sender, messages)
            except _Waits as waits:
                answers.note(waits.error)
                return Unknown(waits.accepted, verdict(waits.error)[1])
            except SDK_ERRORS as error:
                answers.note(error)
                return Unknown(0, verdict(error)[1])
            answers.note()
            return refused or impossible or Accepted()

    def _messages(self, group: AggregateEvents) -> tuple[list[ServiceBusMessage], Refused | None]:
        """The messages up to the first event for which the SDK cannot make a message."""
        messages: list[ServiceBusMessage] = []
        for event in group.events:
            try:
                messages.append(message_from_event(event, source=self._source, partitioned=self._partitioned))
            except ValueError:
                reason = "the SDK cannot make a message of the event: see the limits of Service Bus"
                return messages, Refused(len(messages), reason)
        return messages, None

    @asynccontextmanager
    async def _sender(self) -> AsyncIterator[ServiceBusSender]:
        sender = self._idle.pop() if self._idle else self._client.get_topic_sender(self._topic)
        try:
            yield sender
        except BaseException:  # a cancelled send too: the state of its link is unknown
            await _close(sender)
            raise
        self._idle.append(sender)


async def _in_batches(sender: ServiceBusSender, messages: Sequence[ServiceBusMessage]) -> Refused | None:
    """Send as few batches as possible, up to the first message that is too large for a batch of its own."""
    sent = 0
    waiting: list[ServiceBusMessage] = []
    batch = await _new_batch(sender, sent)
    for message in messages:
        if waiting and not _fits(batch, message):
            if refusal := await _send(sender, batch, waiting, sent):
                return refusal
            sent, waiting = sent + len(waiting), []
            batch = await _new_batch(sender, sent)
        if not waiting and not _fits(batch, message):
            return _too_large(sent)
        waiting.append(message)
    return await _send(sender, batch, waiting, sent) if waiting else None


async def _send(
    sender: ServiceBusSender, batch: ServiceBusMessageBatch, messages: Sequence[ServiceBusMessage], sent: int
) -> Refused | None:
    """Send a batch; if the service finds the batch too large all the same, send its messages one by one."""
    try:
        await _within_the_deadline(sender, batch, sent)
    except MessageSizeExceededError:
        return await _one_by_one(sender, messages, sent)
    return None


async def _one_by_one(
    sender: ServiceBusSender, messages: Sequence[ServiceBusMessage], sent: int = 0
) -> Refused | None:
    for number, message in enumerate(messages, start=sent):
        # The SDK measures a message only where it makes a batch.
        if not _fits(await _new_batch(sender, number), message):
            return _too_large(number)
        try:
            await _within_the_deadline(sender, message, number)
        except MessageSizeExceededError:
            return _too_large(number)
    return None


async def _within_the_deadline(
    sender: ServiceBusSender, what: ServiceBusMessageBatch | ServiceBusMessage, sent: int
) -> None:
    """One send. Raises MessageSizeExceededError, or _Waits for every other failure."""
    try:
        async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
            await sender.send_messages(what, timeout=SEND_TIMEOUT_SECONDS)
    except SDK_ERRORS as error:
        if verdict(error)[0] is Verdict.TOO_LARGE:
            raise MessageSizeExceededError from error
        raise _Waits(sent, error) from error


async def _new_batch(sender: ServiceBusSender, sent: int) -> ServiceBusMessageBatch:
    try:
        async with asyncio.timeout(
            SEND_TIMEOUT_SECONDS
        ):  # the first call opens the link, to learn the size limit
            return await sender.create_message_batch()
    except SDK_ERRORS as error:
        raise _Waits(sent, error) from error


def _fits(batch: ServiceBusMessageBatch, message: ServiceBusMessage) -> bool:
    try:
        batch.add_message(message)
    except MessageSizeExceededError:
        return False
    return True


def _too_large(accepted: int) -> Refused:
    return Refused(accepted, Verdict.TOO_LARGE.value)


async def _close(sender: ServiceBusSender) -> None:
    with contextlib.suppress(*SDK_ERRORS):
        async with asyncio.timeout(_CLOSE_TIMEOUT_SECONDS):
            await sender.close()

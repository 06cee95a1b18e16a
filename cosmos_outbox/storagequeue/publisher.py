"""Each aggregate's events are sent in order, each to all queues before the next, or it is known what may be missing.

One send carries one message. Aggregates are sent side by side, at most so many at once. An event is accepted when every
queue has it; one that was refused, or whose outcome is unknown, is the last of its aggregate. When a queue is away, the
rest of the page is not tried. A queue keeps no order and drops no duplicates, and says so: the inbox does both.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from azure.storage.queue.aio import QueueClient, QueueServiceClient

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.errors import Hindrance
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import (
    Accepted,
    AggregateEvents,
    CloudEvents,
    Guarantees,
    Outcome,
    Refused,
    Unknown,
)
from cosmos_outbox.storagequeue.client import LARGEST_MESSAGE_BYTES, SDK_ERRORS, error_code, verdict
from cosmos_outbox.storagequeue.message import MessageForm
from cosmos_outbox.telemetry import messaging

FOR_EVER = -1
"""A message's time to live: without it a queue drops a message after seven days."""

_LATE = Unknown(0, "the queue did not take the events in time", Hindrance.TOO_SLOW)


@dataclass
class _Page:
    until: float
    """By the monotonic clock: after this time nothing more is tried."""
    away: Unknown | None = None
    """Why nothing more of the page is tried."""

    def give_up(self, away: Unknown) -> None:
        """No others are tried."""
        self.away = self.away or away


class StorageQueuePublisher:
    """Sends events to queues of one storage account; shared by all invocations of the process.

    See :class:`cosmos_outbox.outbox.publisher.Publisher`.
    """

    def __init__(
        self,
        client: QueueServiceClient,
        queues: Sequence[str],
        *,
        service: CloudEvents,
        encoded: bool,
        senders: int,
    ) -> None:
        """``senders``: how many events are under way at once."""
        self._queues = [client.get_queue_client(name) for name in queues]
        self._form = MessageForm(service, encoded)
        self._senders = asyncio.Semaphore(senders)

    @property
    def guarantees(self) -> Guarantees:
        """Neither order nor duplicates are seen to."""
        return Guarantees(
            ordered=False,
            deduplicates=False,
            mixes_aggregates=False,
            largest_message_bytes=LARGEST_MESSAGE_BYTES,
        )

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        """Send the aggregates side by side, each one's events one after the other."""
        sending = _Page(until)
        # A bug in one task cancels the others: none sends on unseen.
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._send_all(sending, each.events)) for each in page]
        return [task.result() for task in tasks]

    async def _send_all(self, page: _Page, events: Sequence[OutboxEvent]) -> Outcome:
        for accepted, event in enumerate(events):
            async with self._senders:
                outcome = await self._send(page, event)
            if isinstance(outcome, Refused | Unknown):
                return replace(outcome, accepted=accepted)
        return Accepted()

    async def _send(self, page: _Page, event: OutboxEvent) -> Outcome:
        if page.away is None and monotonic() >= page.until:
            page.away = _LATE
        if page.away is not None:
            return page.away
        try:
            text = self._form.text(event)
        except Exception as error:  # noqa: BLE001 - what one event makes raise, it is that event's fault
            return Refused(0, f"no message can be made of it ({type(error).__name__})", shown_by_event=True)
        if len(text) > LARGEST_MESSAGE_BYTES:
            return Refused(
                0,
                f"the message has {len(text)} bytes, and a Storage queue takes {LARGEST_MESSAGE_BYTES}",
                shown_by_event=True,
            )
        try:
            async with asyncio.timeout(page.until - monotonic()):
                outcome = await self._send_to_queues(event, text)
        except TimeoutError:
            outcome = _LATE
        if isinstance(outcome, Unknown):
            page.give_up(outcome)
        return outcome

    async def _send_to_queues(self, event: OutboxEvent, text: str) -> Outcome:
        """To all queues; the worst answer counts, and what may come right by itself before what never does."""
        outcomes = await asyncio.gather(*(self._put(queue, event, text) for queue in self._queues))
        return next(
            (each for kind in (Unknown, Refused) for each in outcomes if isinstance(each, kind)), Accepted()
        )

    async def _put(self, queue: QueueClient, event: OutboxEvent, text: str) -> Outcome:
        name = queue.queue_name
        with messaging.sending(name, 1, [event.traceparent], messaging.STORAGEQUEUE) as attempt:
            try:
                await queue.send_message(text, time_to_live=FOR_EVER)
            except SDK_ERRORS as error:
                attempt.failed(error_code(error))
                return verdict(error, f"the queue {name} (STORAGEQUEUE_QUEUES)")
            attempt.accepted()
        return Accepted()

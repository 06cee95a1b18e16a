"""Sends each aggregate's events in order, each to all queues before the next, and returns which may be missing.

A request carries one message; at most ``senders`` events are sent at once. An event is accepted once every queue has
it; after a refused event or an unknown outcome nothing more of its aggregate is sent. If a queue is unavailable, the
rest of the page is not tried. Queues neither keep order nor drop duplicates: the inbox does both.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from azure.storage.queue.aio import QueueClient, QueueServiceClient

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.errors import FailureReason
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
from cosmos_outbox.storagequeue.message import text_of
from cosmos_outbox.telemetry import messaging

FOR_EVER = -1
"""The time to live of a message; by default a queue drops a message after seven days."""

_LATE = Unknown(0, "the queue did not take the events in time", FailureReason.TOO_SLOW)


@dataclass
class _Page:
    until: float
    """The deadline by the monotonic clock: nothing is sent after it."""
    away: Unknown | None = None
    """The reason why nothing more of the page is tried."""


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
        """``senders``: the maximum number of concurrent events."""
        self._queues = [client.get_queue_client(name) for name in queues]
        self._service, self._encoded = service, encoded
        self._senders = asyncio.Semaphore(senders)

    @property
    def guarantees(self) -> Guarantees:
        """Neither order nor deduplication is guaranteed."""
        return Guarantees(
            ordered=False,
            deduplicates=False,
            mixes_aggregates=False,
            largest_message_bytes=LARGEST_MESSAGE_BYTES,
        )

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        """Sends the aggregates concurrently, each one's events one after another."""
        sending = _Page(until)
        # A bug in one task cancels the others, so that none continues unobserved.
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
            text = text_of(event, self._service, encoded=self._encoded)
        except Exception as error:  # noqa: BLE001 - any error here is caused by the event
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
            page.away = outcome
        return outcome

    async def _send_to_queues(self, event: OutboxEvent, text: str) -> Outcome:
        """Sends to all queues. The worst outcome wins; Unknown, which may recover, precedes Refused."""
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

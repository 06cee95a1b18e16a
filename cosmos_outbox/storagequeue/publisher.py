"""Each aggregate's events are sent in order, each to all queues before the next, or it is known what may be missing.

One send carries one message. Aggregates are sent side by side, at most so many at once. An event is accepted when every
queue has it; one that was refused, or whose outcome is unknown, is the last of its aggregate. When a queue is away, the
rest of the page is not tried. A queue keeps no order and drops no duplicates, and says so: the inbox does both.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from azure.storage.queue.aio import QueueClient, QueueServiceClient

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.cloud_events import CloudEvents
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.hindrance import Hindrance
from cosmos_outbox.outbox.publisher import Accepted, AggregateEvents, Guarantees, Outcome, Refused, Unknown
from cosmos_outbox.storagequeue.errors import BLOB_IS_THERE, SDK_ERRORS, TOO_LARGE, error_code, verdict
from cosmos_outbox.storagequeue.message import LARGEST_MESSAGE_BYTES, ClaimedData, MessageForm
from cosmos_outbox.telemetry import messaging

if TYPE_CHECKING:
    from azure.storage.blob.aio import ContainerClient

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

    def __init__(  # noqa: PLR0913 - its settings, by name
        self,
        client: QueueServiceClient,
        queues: Sequence[str],
        *,
        service: CloudEvents,
        encoded: bool,
        senders: int,
        claims: "ContainerClient | None" = None,
    ) -> None:
        """``senders``: how many events are under way at once. ``claims``: None: larger events are refused."""
        self._queues = [client.get_queue_client(name) for name in queues]
        self._form = MessageForm(service, encoded)
        self._claims = claims
        self._senders = asyncio.Semaphore(senders)

    @property
    def guarantees(self) -> Guarantees:
        """Neither order nor duplicates are seen to; the largest event has no limit where there are claims."""
        return Guarantees(
            ordered=False,
            deduplicates=False,
            mixes_aggregates=False,
            largest_message_bytes=None if self._claims else LARGEST_MESSAGE_BYTES,
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
            text, claim = self._message(event)
        except Exception as error:  # noqa: BLE001 - what one event makes raise, it is that event's fault
            return Refused(0, f"no message can be made of it ({type(error).__name__})", shown_by_event=True)
        if len(text) > LARGEST_MESSAGE_BYTES:
            return Refused(0, TOO_LARGE, shown_by_event=True)
        try:
            async with asyncio.timeout(page.until - monotonic()):
                outcome = await self._send_to_queues(event, text, claim)
        except TimeoutError:
            outcome = _LATE
        if isinstance(outcome, Unknown):
            page.give_up(outcome)
        return outcome

    def _message(self, event: OutboxEvent) -> tuple[str, ClaimedData | None]:
        text = self._form.text(event)
        return (
            (text, None)
            if len(text) <= LARGEST_MESSAGE_BYTES or not self._claims
            else self._form.claimed(event)
        )

    async def _send_to_queues(self, event: OutboxEvent, text: str, claim: ClaimedData | None) -> Outcome:
        """To all queues; the worst answer counts, and what may come right by itself before what never does."""
        if claim is not None and (failed := await self._store(claim)) is not None:
            return failed
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

    async def _store(self, claim: ClaimedData) -> Unknown | None:
        """None: the blob is there, perhaps emptied (``erased-claim-stays``). No failure is the event's fault."""
        assert self._claims is not None
        try:
            await self._claims.upload_blob(claim.name, claim.body, overwrite=False)
        except SDK_ERRORS as error:
            if error_code(error) == BLOB_IS_THERE:
                return None
            failed = verdict(
                error, f"the blob container {self._claims.container_name} (STORAGEQUEUE_CLAIM_CONTAINER)"
            )
            return (
                Unknown(0, failed.reason, Hindrance.BROKER_REFUSES) if isinstance(failed, Refused) else failed
            )
        return None

"""Publishes stored events again: each aggregate's in order, and only those that the broker accepted before.

The message ids are new, since the topic would drop known ones, and are derived from the ids of the run and of the
event: an interrupted run is started again from the beginning under its own id, and the topic drops what it already
has of it. Parked and discarded events are left to the relay and its operator: an aggregate that is parked, or has an
event that cannot be sent, is skipped from there on, and listed.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TypeVar
from uuid import UUID, uuid5

from cosmos_outbox.cosmos.maintenance.event_list import Span, Window
from cosmos_outbox.cosmos.relay.originals import CosmosOriginals
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate_block import AggregateBlock, BlockDecision
from cosmos_outbox.outbox.errors import NotDelivered, Throttled, Unavailable
from cosmos_outbox.outbox.feed import ACTION as SKIP_MARKER
from cosmos_outbox.outbox.feed import (
    FeedEvent,
    OutboxEvent,
    SkipMarker,
    by_aggregate,
    in_order,
    still_of,
)
from cosmos_outbox.outbox.publisher import Accepted, AggregateEvents, Guarantees, Outcome, Publisher, deliver

PATIENCE_SECONDS = 60.0
"""The time in which a temporary failure is retried. After that the run ends, and can be started again."""

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 15.0

T = TypeVar("T")


class DryRun:
    """A publisher for a dry run: accepts everything and sends nothing."""

    guarantees = Guarantees(
        ordered=True, deduplicates=True, mixes_aggregates=True, largest_message_bytes=None
    )

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        """Returns Accepted for every aggregate."""
        return [Accepted() for _ in page]


@dataclass
class RepublishingProgress:
    """The progress of a run so far, however it ends."""

    published: int = 0
    discarded: int = 0
    """The discarded events: they stay unpublished. The skip marker of each that has a sequence is published again."""
    ownerless: int = 0
    """The documents that are no valid event and belong to no aggregate."""
    skipped: dict[AggregateKey, str] = field(default_factory=dict)
    """The aggregates that were skipped from an unpublished event on, with the reason."""

    @property
    def whole(self) -> bool:
        """Whether all events were published, except discarded ones."""
        return not self.skipped and not self.ownerless


@dataclass(frozen=True)
class Republishing:
    """Publishes a span of stored events again."""

    window: Callable[[Span], Awaitable[Window]]
    """Returns the first events of a span: a few, or all of one second. Raises Throttled, Unavailable."""
    parking: CosmosParkingLot
    originals: CosmosOriginals
    publisher: Publisher
    run: UUID
    reading_seconds: float
    """The ``reading_seconds`` of the relay: the maximum age of the blocks that a send is based on."""
    patience_seconds: float
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep

    async def publish(self, span: Span, progress: RepublishingProgress) -> AsyncIterator[int]:
        """Publishes window after window. Yields after each the time up to which all is done; updates ``progress``.

        Raises:
            NotDelivered: the broker does not accept an event, or cannot be reached.
            Throttled, Unavailable: the store cannot be used. After any of these the same run can be started again.
        """
        reached = span.since
        while reached < span.to:
            rest = replace(span, since=reached)
            window = await self._patiently(partial(self.window, rest))
            await self._publish_window(window.events, progress)
            reached = window.end
            yield reached

    def message_id(self, event_id: str) -> str:
        """Returns the message id of an event: the same in every attempt of this run, another in every other run."""
        return str(uuid5(self.run, event_id))

    async def _publish_window(self, events: Sequence[FeedEvent], progress: RepublishingProgress) -> None:
        groups = by_aggregate(events)
        progress.ownerless += len(groups.pop(None, []))
        left = {
            key: group for key, group in groups.items() if key is not None and key not in progress.skipped
        }
        await self._patiently(partial(self._attempt, left, progress))

    async def _attempt(
        self, left: dict[AggregateKey, list[FeedEvent]], progress: RepublishingProgress
    ) -> None:
        """Sends once, and removes from ``left`` what is done. Raises NotDelivered while something is left."""
        if not left:
            return
        usable_until = monotonic() + self.reading_seconds
        blocks = await self.parking.read_blocks(left.keys())
        _take_out(left, blocks, progress)
        groups = await self._verify(left)
        renamed = [self._renamed(group) for group in groups.values()]
        deliveries = await deliver(self.publisher, renamed, usable_until)
        waiting = None
        for (key, group), delivery in zip(groups.items(), deliveries, strict=True):
            progress.published += delivery.sent
            left[key] = group[delivery.sent :]
            waiting = waiting or delivery.waits_for
            if delivery.failure is not None:
                progress.skipped[key] = f"event {delivery.failure.event.id}: {delivery.failure.reason}"
            if delivery.waits_for is None:
                del left[key]
        if waiting is not None:
            raise NotDelivered(waiting)

    async def _verify(
        self, left: Mapping[AggregateKey, Sequence[FeedEvent]]
    ) -> dict[AggregateKey, list[FeedEvent]]:
        """Returns each aggregate's events as stored now, in order; a skip marker has no original."""
        stored = [(key, event) for key, group in left.items() for event in group if not _is_skip(event)]
        verified = await self.originals.verify([event for _, event in stored])
        self.originals.forget(verified)
        groups = {key: [event for event in group if _is_skip(event)] for key, group in left.items()}
        for (key, _), event in zip(stored, verified, strict=True):
            groups[key].append(still_of(key, event))
        return {key: in_order(group) for key, group in groups.items()}

    def _renamed(self, group: Sequence[FeedEvent]) -> list[FeedEvent]:
        return [
            replace(event, message_id=self.message_id(event.id)) if isinstance(event, OutboxEvent) else event
            for event in group
        ]

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retries until an attempt succeeds, and returns its result. Raises the last attempt's error."""
        give_up_at, pause = monotonic() + self.patience_seconds, _FIRST_PAUSE_SECONDS
        while True:
            try:
                return await attempt()
            except (NotDelivered, Throttled, Unavailable):
                if monotonic() + pause > give_up_at:
                    raise
            await self.pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _take_out(
    left: dict[AggregateKey, list[FeedEvent]],
    blocks: Mapping[AggregateKey, AggregateBlock],
    progress: RepublishingProgress,
) -> None:
    """Removes parked aggregates from ``left``, and replaces discarded events by their skip markers."""
    for key in [*left]:
        block = blocks.get(key, AggregateBlock(key))
        if block.blocked:
            progress.skipped[key] = "it is parked"
            del left[key]
            continue
        kept = [event for event in left[key] if block.decide(event) is not BlockDecision.DROP]
        given_up = [event for event in left[key] if block.decide(event) is BlockDecision.DROP]
        progress.discarded += len(given_up)
        skip_markers = [_skip_marker(key, event, block) for event in given_up if event.sequence is not None]
        left[key] = in_order([*kept, *skip_markers])


def _skip_marker(key: AggregateKey, discarded: FeedEvent, block: AggregateBlock) -> OutboxEvent:
    """Returns the skip marker of a discarded event: subscribers get it again, and see no gap."""
    skip_marker = SkipMarker(key, discarded.id, discarded.sequence, block.discarded[discarded.id])
    return OutboxEvent(
        id=skip_marker.id,
        aggregate=key,
        action=SKIP_MARKER,
        sequence=skip_marker.sequence,
        created_at=skip_marker.created_at,
        schema_version=skip_marker.event.schema_version,
        data=skip_marker.data,
    )


def _is_skip(event: FeedEvent) -> bool:
    """Whether the event is a skip marker. Skip markers are not among the stored events, so they have no original."""
    return isinstance(event, OutboxEvent) and event.action == SKIP_MARKER

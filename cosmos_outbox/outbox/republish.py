"""Stored events are published once more: each aggregate's in order, and only what the broker has accepted before.

The message ids are new, since the topic would drop those that it knows, and are made of the id of the run and the id of
the event: a run that was cut off is started again from the beginning under its own id, and the topic drops what it has
of it. What is parked or discarded is left to the relay and its operator: an aggregate that is parked, or that an event
cannot be sent of, is skipped from there on, and listed.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar
from uuid import UUID, uuid5

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.errors import NotDelivered, Throttled, Unavailable
from cosmos_outbox.outbox.feed import ACTION as NOTICE
from cosmos_outbox.outbox.feed import (
    FeedEvent,
    Notice,
    Originals,
    OutboxEvent,
    by_aggregate,
    in_order,
    still_of,
)
from cosmos_outbox.outbox.marker import Fate, Marker
from cosmos_outbox.outbox.parking_lot import ParkingLot
from cosmos_outbox.outbox.publisher import Accepted, AggregateEvents, Guarantees, Outcome, Publisher, deliver

PATIENCE_SECONDS = 60.0
"""How long a failure that may pass is waited for. After that the run ends, and can be started again."""

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 15.0

T = TypeVar("T")


@dataclass(frozen=True)
class Span:
    """The events that were stored in ``[since, to)``, in seconds since 1970 by the store's clock."""

    since: int
    to: int
    aggregate: AggregateKey | None = None
    """None: of all aggregates."""


@dataclass(frozen=True)
class Window:
    """All events that were stored from the beginning of a span until ``end``."""

    events: Sequence[FeedEvent]
    end: int


class EventHistory(Protocol):
    """The stored events that have not expired."""

    async def window(self, span: Span) -> Window:
        """The first events of the span: a few, or all of one second. Raises Throttled, Unavailable."""


class DryRun:
    """A publisher for a dry run: takes everything and sends nothing."""

    guarantees = Guarantees(
        ordered=True, deduplicates=True, mixes_aggregates=True, largest_message_bytes=None
    )

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        """Accepted, all of it."""
        return [Accepted() for _ in page]


@dataclass
class RepublishingProgress:
    """What a run has done so far, whatever ends it."""

    published: int = 0
    discarded: int = 0
    """Events that were given up: they stay unpublished. The notice of each that has a sequence is published again."""
    ownerless: int = 0
    """Documents that are no valid event and belong to no aggregate."""
    skipped: dict[AggregateKey, str] = field(default_factory=dict)
    """The aggregates of which events were not published, and why. From the first such event on, none was."""

    @property
    def whole(self) -> bool:
        """Whether all events were published, but for those that an operator gave up."""
        return not self.skipped and not self.ownerless


@dataclass(frozen=True)
class Republishing:
    """Publishes a span of stored events once more."""

    history: EventHistory
    parking: ParkingLot
    originals: Originals
    publisher: Publisher
    run: UUID
    reading_seconds: float
    """As of the relay: nothing is sent on a reading of the markers that is older."""
    patience_seconds: float
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep

    async def publish(self, span: Span, progress: RepublishingProgress) -> AsyncIterator[int]:
        """Publish window after window. Tells after each up to which time all is done; ``progress`` has the rest.

        Raises:
            NotDelivered: the broker does not take an event, or cannot be reached.
            Throttled, Unavailable: the store cannot be used. After any of these the same run can be started again.
        """
        reached = span.since
        while reached < span.to:
            rest = replace(span, since=reached)
            window = await self._patiently(partial(self.history.window, rest))
            await self._publish_window(window.events, progress)
            reached = window.end
            yield reached

    def message_id(self, event_id: str) -> str:
        """The same in every attempt of this run, and in no other run."""
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
        """Take out of ``left`` what is done. Raises NotDelivered while something is left."""
        if not left:
            return
        usable_until = monotonic() + self.reading_seconds
        markers = await self.parking.markers(left.keys())
        _take_out(left, markers, progress)
        groups = await self._verify(left)
        renamed = [self._renamed(group) for group in groups.values()]
        deliveries = await deliver(self.publisher, renamed, usable_until)
        waiting = None
        for (key, group), delivery in zip(groups.items(), deliveries, strict=True):
            progress.published += delivery.sent
            left[key] = group[delivery.sent :]
            waiting = waiting or delivery.waits_for
            if delivery.block is not None:
                progress.skipped[key] = f"event {delivery.block.event.id}: {delivery.block.reason}"
            if delivery.waits_for is None:
                del left[key]
        if waiting is not None:
            raise NotDelivered(waiting)

    async def _verify(
        self, left: Mapping[AggregateKey, Sequence[FeedEvent]]
    ) -> dict[AggregateKey, list[FeedEvent]]:
        """Each aggregate's events as they are stored now, in order; a notice has no original."""
        stored = [(key, event) for key, group in left.items() for event in group if not _is_notice(event)]
        verified = await self.originals.verify([event for _, event in stored])
        self.originals.forget(verified)
        groups = {key: [event for event in group if _is_notice(event)] for key, group in left.items()}
        for (key, _), event in zip(stored, verified, strict=True):
            groups[key].append(still_of(key, event))
        return {key: in_order(group) for key, group in groups.items()}

    def _renamed(self, group: Sequence[FeedEvent]) -> list[FeedEvent]:
        return [
            replace(event, message_id=self.message_id(event.id)) if isinstance(event, OutboxEvent) else event
            for event in group
        ]

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """The result of the first attempt that succeeds. Raises what the last attempt raised."""
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
    markers: Mapping[AggregateKey, Marker],
    progress: RepublishingProgress,
) -> None:
    """What is parked is not published, and of what was discarded only the notice."""
    for key in [*left]:
        marker = markers.get(key, Marker(key))
        if marker.blocked:
            progress.skipped[key] = "it is parked"
            del left[key]
            continue
        kept = [event for event in left[key] if marker.fate(event) is not Fate.DROP]
        given_up = [event for event in left[key] if marker.fate(event) is Fate.DROP]
        progress.discarded += len(given_up)
        notices = [_notice(key, event, marker) for event in given_up if event.sequence is not None]
        left[key] = in_order([*kept, *notices])


def _notice(key: AggregateKey, discarded: FeedEvent, marker: Marker) -> OutboxEvent:
    """What subscribers got in the place of a discarded event: they get it again, and see no gap."""
    notice = Notice(key, discarded.id, discarded.sequence, marker.discarded[discarded.id])
    return OutboxEvent(
        id=notice.id,
        aggregate=key,
        action=NOTICE,
        sequence=notice.sequence,
        created_at=notice.created_at,
        schema_version=notice.event.schema_version,
        data=notice.data,
    )


def _is_notice(event: FeedEvent) -> bool:
    """No notice is among the stored events, so none has an original."""
    return isinstance(event, OutboxEvent) and event.action == NOTICE

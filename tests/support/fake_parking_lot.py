"""A parking lot of plain objects, for unit tests of a decision in which one of its calls fails or is late."""

import hashlib
import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from cosmos_outbox.cosmos.aggregates.documents import EventReader, notice_document
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.errors import PreconditionFailed
from cosmos_outbox.outbox.feed import FeedEvent, Notice, OutboxEvent, Poison
from cosmos_outbox.outbox.marker import Marker, Place
from cosmos_outbox.outbox.parking_lot import Change, Discarding, ParkedEvent, ParkedPage, ParkedState


@dataclass
class _Parked:
    event: FeedEvent
    place: Place
    reason: str
    is_notice: bool = False
    discarding: Discarding | None = None
    parked_at: datetime = field(default_factory=utc_now)


@dataclass
class FakeParkingLot:
    """Parks in memory; every change is made at the version that was read."""

    stored: dict[AggregateKey, Marker] = field(default_factory=dict)
    parked: dict[str, _Parked] = field(default_factory=dict)
    versions: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    async def markers(self, aggregates: Collection[AggregateKey]) -> Mapping[AggregateKey, Marker]:
        return {key: self.stored[key] for key in aggregates if key in self.stored}

    async def list_blocked(self) -> Sequence[Marker]:
        return [marker for marker in self.stored.values() if marker.blocked]

    async def park(self, marker: Marker, events: Sequence[FeedEvent]) -> Collection[str]:
        self._check(marker)
        behind, places = marker.with_parked(events)
        new: set[str] = set()
        for event, place in zip(events, places, strict=True):
            if _parking_id(event) not in self.parked:
                new.add(event.id)
                self.parked[_parking_id(event)] = _Parked(event, place, _reason(event, marker))
        if new:
            await self.store(replace(behind, waiting=behind.waiting + len(new)))
        return new

    async def store(self, marker: Marker) -> Marker:
        self._check(marker)
        self.stored[marker.aggregate] = replace(marker, version=str(next(self.versions)))
        return self.stored[marker.aggregate]

    async def settle(self, marker: Marker, delivered: Sequence[ParkedEvent], change: Change) -> Marker:
        newest = self.stored.get(marker.aggregate)
        if newest is None or newest.replay is None or newest.replay != marker.replay:
            raise PreconditionFailed("another replay")
        gone = [self.parked.pop(event.id, None) for event in delivered]
        after = change(newest)
        after = replace(after, waiting=after.waiting - sum(one is not None for one in gone))
        return await self.store(after if after.waiting else after.freed())

    async def recount(self, marker: Marker) -> Marker:
        count = len(await self.waiting(marker.aggregate, 10_000))
        after = replace(self.stored[marker.aggregate], waiting=count)
        return await self.store(after if count else after.freed())

    async def discard(self, marker: Marker, event: ParkedEvent, notice: Notice, reason: str) -> None:
        self._check(marker)
        parked = self.parked[event.id]
        document = notice_document(notice, partition_key=parked.event.document.get("partitionKey"))
        out = EventReader().event(document)
        assert out is not None
        self.parked[f"notice-{event.id}"] = _Parked(out, parked.place, "notice", is_notice=True)
        self.parked[event.id] = replace(parked, discarding=Discarding(notice.created_at, reason))
        await self.store(marker)

    async def park_alone(self, poison: Poison) -> bool:
        is_new = _parking_id(poison) not in self.parked
        self.parked.setdefault(_parking_id(poison), _Parked(poison, (0, False, (0, "", "")), poison.reason))
        return is_new

    async def discard_alone(self, event: ParkedEvent, reason: str) -> None:
        self.parked[event.id] = replace(self.parked[event.id], discarding=Discarding(utc_now(), reason))

    async def alone_since_before(self, at: datetime) -> Sequence[ParkedEvent]:
        return [one for one in self._events() if one.state is ParkedState.ALONE and one.parked_at < at]

    async def page(self, size: int, continuation_token: str | None, *, discarded: bool = False) -> ParkedPage:
        start = int(continuation_token or 0)
        found = [one for one in self._events() if (one.state is ParkedState.DISCARDED) is discarded]
        end = start + size
        return ParkedPage(found[start:end], str(end) if end < len(found) else None)

    async def get(self, parking_id: str) -> ParkedEvent | None:
        return next((one for one in self._events() if one.id == parking_id), None)

    async def waiting(self, aggregate: AggregateKey, limit: int) -> Sequence[tuple[ParkedEvent, FeedEvent]]:
        mine = [
            one
            for one in self._events()
            if one.aggregate == aggregate and one.state is not ParkedState.DISCARDED
        ]
        mine.sort(key=lambda one: self.parked[one.id].place)
        return [(one, self.parked[one.id].event) for one in mine[:limit]]

    async def list_waiting(self, aggregate: AggregateKey, limit: int) -> Sequence[ParkedEvent]:
        return [replace(one, document={}) for one, _ in await self.waiting(aggregate, limit)]

    def _check(self, marker: Marker) -> None:
        newest = self.stored.get(marker.aggregate)
        if (newest.version if newest else "") != marker.version:
            raise PreconditionFailed("changed by another")

    def _events(self) -> list[ParkedEvent]:
        return [self._event(parking_id, parked) for parking_id, parked in self.parked.items()]

    def _event(self, parking_id: str, parked: _Parked) -> ParkedEvent:
        event, aggregate = parked.event, parked.event.aggregate
        marker = self.stored.get(aggregate) if aggregate else None
        refusal = marker.refusal if marker else None
        refused = refusal if refusal and refusal.event_id == event.id else None
        state = ParkedState.WAITING if aggregate else ParkedState.ALONE
        if parked.discarding:
            state = ParkedState.DISCARDED
        elif marker and marker.in_the_way == event.id:
            state = ParkedState.IN_THE_WAY
        return ParkedEvent(
            parking_id, event.id, aggregate, event.action if isinstance(event, OutboxEvent) else None,
            event.sequence, refused.reason if refused else parked.reason, parked.parked_at, state,
            refused.attempts if refused else 0, refused.at if refused else None, parked.discarding,
            parked.is_notice, event.document,
        )  # fmt: skip


def _parking_id(event: FeedEvent) -> str:
    return hashlib.sha256(f"{event.aggregate} {event.id}".encode()).hexdigest()[:32]


def _reason(event: FeedEvent, marker: Marker) -> str:
    if isinstance(event, Poison):
        return event.reason
    assert marker.refusal is not None
    if marker.refusal.event_id == event.id:
        return marker.refusal.reason
    return f"waits behind event {marker.refusal.event_id}"

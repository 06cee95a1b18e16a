"""In-memory adapters that pass the same contract suite as the real ones, so that unit tests may trust them.

The fakes cannot prove atomicity under a crash, lost answers, limits of the real services, or the feed's order.
"""

import asyncio
import itertools
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from infra.canonical import as_sent
from infra.cosmos.documents import EventReader, event_item, notice_document
from outbox.aggregate import Aggregate, AggregateKey, Changes
from outbox.errors import AggregateNotFound, ChangeTooLarge, PreconditionFailed, Unavailable
from outbox.feed import FeedEvent, OutboxEvent, Poison
from outbox.marker import Marker, Place
from outbox.notice import Notice
from outbox.parking_lot import Change, Discarding, ParkedEvent, ParkedPage, State
from outbox.publisher import Accepted, AggregateEvents, Guarantees, Outcome, Refused, Unknown
from outbox.unit_of_work import Commit, ETag, Origin, Page, Receipt, RequestRecord, Versioned, utc_now

A = TypeVar("A", bound=Aggregate[Any])

LARGEST_MESSAGE_BYTES = 256 * 1024
ANYTHING_GOES = Guarantees(ordered=True, deduplicates=True, mixes_aggregates=True, largest_message_bytes=None)


@dataclass
class FakeStore:
    """What all units of work of one store share."""

    aggregates: dict[AggregateKey, tuple[Any, ETag]] = field(default_factory=dict)
    """The state and version of each."""
    events: list[OutboxEvent] = field(default_factory=list)
    records: dict[tuple[AggregateKey, str], RequestRecord[Any]] = field(default_factory=dict)
    versions: "itertools.count[int]" = field(default_factory=itertools.count)

    def __call__(self, origin: Origin) -> "FakeUnitOfWork":
        return FakeUnitOfWork(self, origin)


class FakeUnitOfWork:
    def __init__(self, store: FakeStore, origin: Origin) -> None:
        self._store = store
        self._origin = origin
        self.tracked: list[tuple[Aggregate[Any], ETag | None]] = []
        self.requests = FakeRecords(store)

    def add(self, aggregate: Aggregate[Any]) -> None:
        self.tracked.append((aggregate, None))

    async def get(
        self, kind: type[A], aggregate_id: str, *, partition_key: str | None = None, newest: bool = False
    ) -> Versioned[A]:
        stored = self._store.aggregates.get(AggregateKey(kind.aggregate_type, aggregate_id))
        if stored is None or kind.load(stored[0]).deleted:
            raise AggregateNotFound(f"there is no {kind.aggregate_type} {aggregate_id}")
        aggregate = kind.load(stored[0])
        self.tracked.append((aggregate, stored[1]))
        return Versioned(aggregate, stored[1])

    async def page(self, kind: type[A], size: int, continuation_token: str | None) -> Page[A]:
        start = int(continuation_token or 0)
        every = [
            kind.load(state)
            for key, (state, _) in self._store.aggregates.items()
            if key.type == kind.aggregate_type
        ]
        alive = [aggregate for aggregate in every if not aggregate.deleted]
        return Page(alive[start : start + size], str(start + size) if start + size < len(alive) else None)

    def check(self) -> None:
        self._checked(self.tracked, self.requests.tracked)

    def _checked(
        self, tracked: Sequence[tuple[Aggregate[Any], ETag | None]], records: Sequence[RequestRecord[Any]]
    ) -> list[tuple[Aggregate[Any], ETag | None, Changes[Any]]]:
        changed = [(one, etag, changes) for one, etag in tracked if (changes := one.changes()) is not None]
        if len({one.partition_key for one, _, _ in changed}) > 1:
            raise ValueError("aggregates of several partitions cannot be stored in one transaction")
        if len({one.aggregate_id for one, _, _ in changed}) < len(changed):
            raise ValueError("two changed aggregates have the same id")
        if sum(1 + len(changes.events) for _, _, changes in changed) + len(records) > 100:
            raise ChangeTooLarge("too many")
        return changed

    async def commit(self, *, until: float | None = None) -> Commit:
        tracked, self.tracked = self.tracked, []
        records, self.requests.tracked = self.requests.tracked, []
        if not tracked:
            raise ValueError("nothing is tracked: add or get an aggregate first")
        changed = self._checked(tracked, records)
        if until is not None and asyncio.get_running_loop().time() > until:
            raise Unavailable("too late")
        if any(self._store.aggregates.get(one.key, (None, None))[1] != etag for one, etag, _ in changed):
            raise PreconditionFailed("changed by another")
        receipts = {one.key: Receipt(one, etag) for one, etag in tracked}
        for aggregate, _, changes in changed:
            etag = f'"{next(self._store.versions)}"'
            self._store.aggregates[aggregate.key] = (changes.state, etag)
            receipts[aggregate.key] = Receipt(type(aggregate).load(changes.state), etag, len(changes.events))
            for event in changes.events:
                out = EventReader().event(event_item(aggregate, event, self._origin, ttl=60))
                assert isinstance(out, OutboxEvent)
                self._store.events.append(out)
            if aggregate.deleted:
                erased = RequestRecord[Any](aggregate.aggregate_id, "", None, 60)
                self._store.records[aggregate.key, erased.name] = erased
        for record in records:
            assert record.aggregate is not None
            stored = receipts[record.aggregate.key].aggregate
            self._store.records[stored.key, record.name] = replace(record, aggregate=stored)
        return Commit([*receipts.values()])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tracked = []


class FakeRecords:
    def __init__(self, store: FakeStore) -> None:
        self._store = store
        self.tracked: list[RequestRecord[Any]] = []

    def add(self, record: RequestRecord[Any]) -> None:
        self.tracked.append(record)

    async def get(self, aggregate: A, name: str, *, newest: bool = False) -> RequestRecord[A] | None:
        return self._store.records.get((aggregate.key, name))


@dataclass
class FakePublisher:
    """Keeps what was sent, drops duplicates as the topic does, and fails as told."""

    sent: list[tuple[str, str]] = field(default_factory=list)
    """(aggregate id, message id), in the order accepted."""
    bodies: set[bytes] = field(default_factory=set)
    """What subscribers would get."""
    fail_for: set[str] = field(default_factory=set)
    """The ids of the aggregates for which the broker is away."""
    limit: int = LARGEST_MESSAGE_BYTES
    guarantees: Guarantees = ANYTHING_GOES
    until: float = 0.0
    """As the last call had it."""

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        self.until = until
        if asyncio.get_running_loop().time() > until:
            return [Unknown(0, "too late") for _ in page]
        return [self._publish(group) for group in page]

    def of(self, aggregate: AggregateKey) -> list[str]:
        """The ids of an aggregate's events, in the order accepted."""
        return [event_id for owner, event_id in self.sent if owner == aggregate.id]

    def _publish(self, group: AggregateEvents) -> Outcome:
        owner = group.aggregate.id
        if owner in self.fail_for:
            return Unknown(0, "the broker is away")
        for number, event in enumerate(group.events):
            if len(json.dumps(dict(event.data))) > self.limit:
                return Refused(number, "too large")
            message_id = event.message_id or event.id
            if (owner, message_id) not in self.sent:
                self.sent.append((owner, message_id))
                self.bodies.add(as_sent(dict(event.data)))
        return Accepted()


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

    async def blocked(self) -> Sequence[Marker]:
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
            await self.store(replace(behind, waiting=(behind.waiting or 0) + len(new)))
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
        after = replace(after, waiting=(after.waiting or 0) - sum(one is not None for one in gone))
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
        return [one for one in self._events() if one.state is State.ALONE and one.parked_at < at]

    async def page(self, size: int, continuation_token: str | None, *, discarded: bool = False) -> ParkedPage:
        start = int(continuation_token or 0)
        found = [one for one in self._events() if (one.state is State.DISCARDED) is discarded]
        end = start + size
        return ParkedPage(found[start:end], str(end) if end < len(found) else None)

    async def get(self, parking_id: str) -> ParkedEvent | None:
        return next((one for one in self._events() if one.id == parking_id), None)

    async def waiting(self, aggregate: AggregateKey, limit: int) -> Sequence[tuple[ParkedEvent, FeedEvent]]:
        mine = [
            one for one in self._events() if one.aggregate == aggregate and one.state is not State.DISCARDED
        ]
        mine.sort(key=lambda one: self.parked[one.id].place)
        return [(one, self.parked[one.id].event) for one in mine[:limit]]

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
        state = State.WAITING if aggregate else State.ALONE
        if parked.discarding:
            state = State.DISCARDED
        elif marker and marker.in_the_way == event.id:
            state = State.IN_THE_WAY
        return ParkedEvent(
            parking_id, event.id, aggregate, event.action if isinstance(event, OutboxEvent) else None,
            event.sequence, refused.reason if refused else parked.reason, parked.parked_at, state,
            refused.attempts if refused else 0, refused.at if refused else None, parked.discarding,
            parked.is_notice, event.document,
        )  # fmt: skip


def _parking_id(event: FeedEvent) -> str:
    return f"p-{event.aggregate}-{event.id}"


def _reason(event: FeedEvent, marker: Marker) -> str:
    if isinstance(event, Poison):
        return event.reason
    assert marker.refusal is not None
    if marker.refusal.event_id == event.id:
        return marker.refusal.reason
    return f"waits behind event {marker.refusal.event_id}"

"""In-memory adapters that pass the same contract suite as the real ones, so that unit tests may trust them.

The fakes cannot prove atomicity under a crash, lost answers, limits of the real services, or the feed's order.
"""

import asyncio
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self, TypeVar

from infra.canonical import as_sent
from infra.cosmos.documents import EventReader, event_item
from outbox.aggregate import Aggregate, AggregateKey, Changes
from outbox.errors import AggregateNotFound, ChangeTooLarge, PreconditionFailed, Unavailable
from outbox.feed import FeedEvent, OutboxEvent, Poison
from outbox.parking_lot import ParkedAggregate, ParkedEvent, ParkedPage
from outbox.publisher import Accepted, AggregateEvents, Guarantees, Outcome, Refused, Unknown
from outbox.unit_of_work import Commit, ETag, Origin, Page, Receipt, RequestRecord, Versioned
from tests.support.contacts import NOON

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
    """(aggregate id, event id), in the order accepted."""
    bodies: set[bytes] = field(default_factory=set)
    """What subscribers would get."""
    fail_for: set[str] = field(default_factory=set)
    """The ids of the aggregates for which the broker is away."""
    limit: int = LARGEST_MESSAGE_BYTES
    guarantees: Guarantees = ANYTHING_GOES

    async def publish(self, page: Sequence[AggregateEvents]) -> Sequence[Outcome]:
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
            if (owner, event.id) not in self.sent:
                self.sent.append((owner, event.id))
                self.bodies.add(as_sent(dict(event.data)))
        return Accepted()


@dataclass
class FakeParkingLot:
    """Parks in memory. ``versions`` make a release fail that did not see the newest park."""

    markers: dict[AggregateKey, ParkedAggregate] = field(default_factory=dict)
    parked: dict[str, tuple[ParkedEvent, FeedEvent]] = field(default_factory=dict)
    discarded: dict[str, str] = field(default_factory=dict)
    versions: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    async def aggregates(self) -> Mapping[AggregateKey, ParkedAggregate]:
        return dict(self.markers)

    async def aggregate(self, aggregate: AggregateKey) -> ParkedAggregate | None:
        return self.markers.get(aggregate)

    async def park(self, parked: ParkedAggregate, events: Sequence[FeedEvent]) -> None:
        self._check(parked)
        self.markers[parked.aggregate] = replace(parked, version=str(next(self.versions)))
        for event in events:
            self._keep(event, parked)

    async def park_alone(self, poison: Poison) -> None:
        self._keep(poison, None)

    async def page(self, size: int, continuation_token: str | None) -> ParkedPage:
        start = int(continuation_token or 0)
        found = [parked for parked, _ in self.parked.values()]
        return ParkedPage(
            found[start : start + size], str(start + size) if start + size < len(found) else None
        )

    async def get(self, parking_id: str) -> ParkedEvent | None:
        return self.parked[parking_id][0] if parking_id in self.parked else None

    async def waiting(self, aggregate: AggregateKey, limit: int) -> Sequence[tuple[ParkedEvent, FeedEvent]]:
        found = [pair for pair in self.parked.values() if pair[0].aggregate == aggregate]
        return sorted(found, key=lambda pair: pair[1].position)[:limit]

    async def remove(self, parked: Sequence[ParkedEvent]) -> None:
        for event in parked:
            self.parked.pop(event.id, None)

    async def move_block(self, parked: ParkedAggregate) -> None:
        self._check(parked)
        self.markers[parked.aggregate] = replace(parked, version=str(next(self.versions)))

    async def discard(self, parked: ParkedEvent, reason: str) -> None:
        self.parked.pop(parked.id, None)
        self.discarded[parked.id] = reason

    async def release(self, parked: ParkedAggregate) -> bool:
        if self.markers.get(parked.aggregate) != parked:
            return False
        del self.markers[parked.aggregate]
        return True

    def _check(self, parked: ParkedAggregate) -> None:
        newest = self.markers.get(parked.aggregate)
        if (newest.version if newest else "") != parked.version:
            raise PreconditionFailed("changed by another")

    def _keep(self, event: FeedEvent, parked: ParkedAggregate | None) -> None:
        valid = event if isinstance(event, OutboxEvent) else None
        reason = event.reason if isinstance(event, Poison) else parked.reason if parked else ""
        if parked and parked.blocked_by != event.id:
            reason = f"waits behind event {parked.blocked_by}"
        parking_id = f"p-{event.aggregate}-{event.id}"
        self.parked[parking_id] = (
            ParkedEvent(
                parking_id, event.id, event.aggregate, valid.action if valid else None,
                valid.sequence if valid else None, reason, NOON, event.document,
            ),
            event,
        )  # fmt: skip

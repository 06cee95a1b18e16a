"""A store in memory, which passes the same contract suite as the real one, so that unit tests may trust it.

It cannot prove atomicity under a crash, lost answers, limits of the real service, or the feed's order.
"""

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self, TypeVar

from cosmos_outbox.cosmos.aggregates.documents import EventReader, event_item
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.aggregate import Aggregate, Changes
from cosmos_outbox.outbox.errors import AggregateNotFound, ChangeTooLarge, PreconditionFailed, Unavailable
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.unit_of_work import Commit, ETag, Origin, Page, Receipt, RequestRecord, Versioned

A = TypeVar("A", bound=Aggregate[Any])


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

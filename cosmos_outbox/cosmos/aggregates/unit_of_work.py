"""Aggregates and their events are stored together or not at all, and the caller learns which of the two.

The answer to a batch can get lost after the batch was committed, and the SDK may have repeated the batch on its own.
A batch is therefore repeated as it is, with the same event ids and the same ETag conditions: the store can commit it
only once. When the store refuses the batch because a document exists already, the unit of work looks for its own event
document before it blames another writer. A process that dies at any point has stored all or nothing, and a client that
asks again finds which of the two.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self, TypeVar

from cosmos_outbox.cosmos.aggregates.batch import Batch, Changed, Lifetimes
from cosmos_outbox.cosmos.aggregates.change_records import CosmosChangeRecords
from cosmos_outbox.cosmos.aggregates.documents import aggregate_from_item
from cosmos_outbox.cosmos.aggregates.once import PATIENCE_SECONDS, Once, latest, unknown
from cosmos_outbox.cosmos.aggregates.repository import AggregateReader, CosmosRequestRecords
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox import telemetry
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.errors import OutcomeUnknown, PreconditionFailed
from cosmos_outbox.outbox.on_commit import OnCommit
from cosmos_outbox.outbox.selection import ALL, Selection
from cosmos_outbox.outbox.unit_of_work import (
    ChangeRecord,
    Commit,
    ETag,
    Origin,
    Page,
    Receipt,
    RequestRecord,
    Versioned,
)
from cosmos_outbox.telemetry.tracing import LONGEST, committing

A = TypeVar("A", bound=Aggregate[Any])


@dataclass(frozen=True)
class _Tracked:
    """An aggregate in a unit of work, and the version at which it was read (None: the aggregate is new)."""

    aggregate: Aggregate[Any]
    etag: ETag | None


class CosmosUnitOfWork:
    """Tracks the aggregates of one request and stores the changes.

    See :class:`cosmos_outbox.outbox.unit_of_work.UnitOfWork`.
    """

    def __init__(
        self,
        container: Container,
        scope: str,
        origin: Origin,
        lifetimes: Lifetimes,
        on_commit: OnCommit | None = None,
    ) -> None:
        self._on_commit = on_commit or OnCommit()
        self._container = container
        self._reader = AggregateReader(container, scope)
        self._origin = origin
        self._lifetimes = lifetimes
        self._tracked: list[_Tracked] = []
        self._records: list[RequestRecord[Any]] = []
        self.requests = CosmosRequestRecords(container, self._records)
        self._answers: list[ChangeRecord] = []
        self.changes = CosmosChangeRecords(container, lifetimes.requests, self._answers)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    def add(self, aggregate: Aggregate[Any]) -> None:
        """Track a new aggregate."""
        self._tracked.append(_Tracked(aggregate, None))

    async def get(
        self, kind: type[A], aggregate_id: str, *, partition_key: str | None = None, newest: bool = False
    ) -> Versioned[A]:
        """Read and track an aggregate. Raises AggregateNotFound, Throttled, Unavailable."""
        read = self._reader.newest if newest else self._reader.get
        found = await read(kind, aggregate_id, partition_key or aggregate_id)
        self._tracked.append(_Tracked(found.aggregate, found.etag))
        return found

    async def page(
        self, kind: type[A], size: int, continuation_token: str | None, selection: Selection = ALL
    ) -> Page[A]:
        """At most ``size`` aggregates; not tracked. Raises UnknownContinuation, Throttled, Unavailable."""
        return await self._reader.page(kind, size, continuation_token, selection)

    def check(self) -> None:
        """Raise what :meth:`commit` would raise without asking the store."""
        if changed := _changed(self._tracked):
            # The commit may have a trace where the request had none.
            longest = replace(self._origin, traceparent=self._origin.traceparent or LONGEST)
            self._batch(changed, longest)

    async def commit(self, *, until: float | None = None) -> Commit:
        """Store every tracked change and its events in one transaction. Raises the errors that the port lists."""
        try:
            return await self._commit([*self._tracked], until)
        finally:
            self._clear()

    def _clear(self) -> None:
        self._tracked.clear()
        self._records.clear()
        self._answers.clear()

    async def _commit(self, tracked: list[_Tracked], until: float | None) -> Commit:
        if not tracked:
            raise ValueError("nothing is tracked: add or get an aggregate first")
        receipts = {each.aggregate.key: Receipt(each.aggregate, each.etag) for each in tracked}
        changed = _changed(tracked)
        if changed:
            with committing(self._origin) as origin:
                etags = await self._store_and_notify(self._batch(changed, origin), until)
            telemetry.stored(
                (each.aggregate.aggregate_type, event.action)
                for each in changed
                for event in each.changes.events
            )
            receipts |= {
                each.aggregate.key: each.receipt(etag) for each, etag in zip(changed, etags, strict=True)
            }
        return Commit([*receipts.values()])

    def _batch(self, changed: Sequence[Changed], origin: Origin) -> Batch:
        first = [self.changes.write(each, changed[0].aggregate.partition_key) for each in self._answers]
        return Batch.of(changed, self._records, origin, self._lifetimes, first)

    async def _store_and_notify(self, batch: Batch, until: float | None) -> Sequence[ETag | None]:
        """As :meth:`_store`; tells of every end that may have stored the batch."""
        try:
            etags = await self._store(batch, until)
        except (OutcomeUnknown, asyncio.CancelledError):
            self._on_commit(batch.partition_key)
            raise
        self._on_commit(batch.partition_key)
        return etags

    async def _store(self, batch: Batch, until: float | None) -> Sequence[ETag | None]:
        """Store the batch once. Returns each aggregate's ETag, or None when others have changed the aggregate since.

        Rule deadline: no attempt is begun that could end after ``until``.
        """
        give_up_at = monotonic() + PATIENCE_SECONDS
        if until is not None:
            give_up_at = min(give_up_at, latest(until))
        once = Once(self._container, batch.partition_key, batch.writes, lambda _: self._own_commit(batch))
        etags = await once.store(give_up_at)
        return etags[batch.first :][: len(batch.changed)]

    async def _own_commit(self, batch: Batch) -> Sequence[ETag | None]:
        """The ETags of a batch that an earlier attempt stored. Raises PreconditionFailed when no attempt did."""
        event = batch.first_event
        try:
            stored = await self._container.read(event["id"], batch.partition_key)
            if stored is None or stored.get("data") != event["data"]:
                raise PreconditionFailed(
                    f"another writer changed {batch}: read again, then repeat the change"
                )
            etags = [await self._read_etag_if_unchanged(batch, changed) for changed in batch.changed]
            return [None] * batch.first + etags
        except StoreFailed as error:
            raise unknown(error.failure) from error

    async def _read_etag_if_unchanged(self, batch: Batch, changed: Changed) -> ETag | None:
        aggregate = changed.aggregate
        item = await self._container.read(aggregate.aggregate_id, batch.partition_key)
        if item is None:
            return None
        newest = aggregate_from_item(type(aggregate), item)
        unchanged = newest.aggregate.state.last_sequence == changed.changes.state.last_sequence
        return newest.etag if unchanged else None


def _changed(tracked: Sequence[_Tracked]) -> list[Changed]:
    changes = ((each, each.aggregate.changes()) for each in tracked)
    return [Changed(each.aggregate, each.etag, made) for each, made in changes if made is not None]

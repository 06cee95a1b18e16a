"""Aggregates and their events are stored together or not at all, and the caller learns which of the two.

The answer to a batch can get lost after the batch was committed, and the SDK may have repeated the batch on its own.
A batch is therefore repeated as it is, with the same event ids and the same ETag conditions: the store can commit it
only once. When the store refuses the batch because a document exists already, the unit of work looks for its own event
document before it blames another writer. A process that dies at any point has stored all or nothing, and a client that
asks again finds which of the two.

Reading changes nothing: the unit of work that asked keeps track of the aggregates that it changes.

The record of a change with a key is only ever created: that it is there proves that the request has an outcome.

Whether it is there says the answer to a write, after the aggregate was read (``state_then_record``): no reader that
lags is asked.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self, TypeVar

from cosmos_outbox.cosmos.aggregates.batch import (
    PATIENCE_SECONDS,
    Batch,
    Changed,
    Lifetimes,
    Once,
    WriteRefusal,
    latest,
    unknown,
)
from cosmos_outbox.cosmos.aggregates.documents import aggregate_from_item, request_from_item, request_id
from cosmos_outbox.cosmos.aggregates.listing import ListQuery
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.lists import continuation
from cosmos_outbox.outbox import telemetry
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.errors import AggregateNotFound, OutcomeUnknown, PreconditionFailed
from cosmos_outbox.outbox.selection import ALL, Selection
from cosmos_outbox.outbox.unit_of_work import (
    ChangeRecord,
    Commit,
    ETag,
    OnCommit,
    Origin,
    Page,
    Receipt,
    RequestRecord,
    Versioned,
)
from cosmos_outbox.telemetry.tracing import LONGEST, committing

CHANGE_TYPE = "changeRecord"


@dataclass
class CosmosChangeRecords:
    """See :class:`cosmos_outbox.outbox.unit_of_work.ChangeRecords`."""

    container: Container
    lifetime_seconds: int
    tracked: list[ChangeRecord]

    def add(self, record: ChangeRecord) -> None:
        """Store the record first in the transaction of the commit."""
        self.tracked.append(record)

    async def find(self, name: str, partition_key: str) -> ChangeRecord | None:
        """The record, by a fence of its own. Raises Throttled, Unavailable."""
        item_id = _id(name)
        try:
            item = await self.container.read(item_id, partition_key, consistent=True)
        except StoreFailed as error:
            raise error.failure.error() from error
        if item is None:
            return None
        data = item["data"]
        return ChangeRecord(name, data["fingerprint"], data["sequence"], data["refused"])

    async def create(self, record: ChangeRecord, partition_key: str, until: float) -> None:
        """Store it alone. Raises PreconditionFailed, Throttled, Unavailable, OutcomeUnknown."""
        once = Once(self.container, partition_key, [self.write(record, partition_key)], _there)
        await once.store(min(monotonic() + PATIENCE_SECONDS, latest(until)))

    def write(self, record: ChangeRecord, partition_key: str) -> Write:
        """The creation of the record, alone or in a transaction."""
        return Write.create(
            {
                "id": _id(record.name),
                "partitionKey": partition_key,
                "type": CHANGE_TYPE,
                "data": {
                    "fingerprint": record.fingerprint,
                    "sequence": record.sequence,
                    "refused": record.refused,
                },
                "ttl": self.lifetime_seconds,
            }
        )


def _id(name: str) -> str:
    """An aggregate can have no id that begins like it."""
    return request_id(f"key-{name}")


async def _there(_: WriteRefusal) -> list[str | None]:
    raise PreconditionFailed("the record of the request is there: it says what became of it")


A = TypeVar("A", bound=Aggregate[Any])


@dataclass(frozen=True)
class AggregateReader:
    """Reads the aggregates of one container; ``scope`` names the container in continuation tokens."""

    container: Container
    scope: str

    async def get(self, kind: type[A], aggregate_id: str, partition_key: str) -> Versioned[A]:
        """The aggregate and its version. Raises AggregateNotFound, Throttled, Unavailable."""
        return await self._get(kind, aggregate_id, partition_key, consistent=False)

    async def newest(self, kind: type[A], aggregate_id: str, partition_key: str) -> Versioned[A]:
        """As :meth:`get`, but no committed write is missed. Raises as :meth:`get` does."""
        return await self._get(kind, aggregate_id, partition_key, consistent=True)

    async def _get(
        self, kind: type[A], aggregate_id: str, partition_key: str, *, consistent: bool
    ) -> Versioned[A]:
        try:
            item = await self.container.read(aggregate_id, partition_key, consistent=consistent)
        except StoreFailed as error:
            raise error.failure.error() from error
        if item is not None and item.get("type") == kind.aggregate_type:
            stored = aggregate_from_item(kind, item)
            if not stored.aggregate.deleted:
                return stored
        raise AggregateNotFound(f"there is no {kind.aggregate_type} {aggregate_id}")

    async def page(
        self, kind: type[A], size: int, continuation_token: str | None, selection: Selection
    ) -> Page[A]:
        """At most ``size`` aggregates. Raises UnknownContinuation, Throttled, Unavailable, Misconfigured."""
        scope = f"{self.scope}/{ListQuery(kind, selection, None).scope}"
        token = continuation.unseal(scope, continuation_token) if continuation_token else None
        query = ListQuery(kind, selection, token)
        if selection.ids is not None and not selection.ids:
            return Page([], None)
        try:
            items = await self.container.select(query, size + 1)
        except StoreFailed as error:
            raise error.failure.error() from error
        found = [aggregate_from_item(kind, item) for item in items[:size]]
        more = continuation.seal(scope, query.position(items[size - 1])) if len(items) > size else None
        return Page([each.aggregate for each in found], more, [each.etag for each in found])


class CosmosRequestRecords:
    """The records of requests, each in the partition of the aggregate that the request created."""

    def __init__(self, container: Container, tracked: list[RequestRecord[Any]]) -> None:
        self._container = container
        self._tracked = tracked

    def add(self, record: RequestRecord[Any]) -> None:
        """Store the record in the transaction of the commit."""
        self._tracked.append(record)

    async def get(self, aggregate: A, name: str, *, newest: bool = False) -> RequestRecord[A] | None:
        """The record, or None, which proves nothing unless ``newest``. Raises Throttled, Unavailable."""
        item_id, partition_key = request_id(name), aggregate.partition_key
        try:
            item = await self._container.read(item_id, partition_key, consistent=newest)
        except StoreFailed as error:
            raise error.failure.error() from error
        return None if item is None else request_from_item(type(aggregate), item)


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

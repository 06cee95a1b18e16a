"""Aggregates and their events are stored together or not at all, and the caller learns which of the two.

A process that dies at any point has stored all or nothing, and a client that asks again finds which of the two.

Reading changes nothing: the unit of work that asked keeps track of the aggregates that it changes.

The record of a change with a key is only ever created: that it is there proves that the request has an outcome.

Whether it is there says the answer to a write, after the aggregate was read (``state_then_record``): no reader that
lags is asked.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self, TypeVar

from cosmos_outbox.cosmos.aggregates.documents import (
    aggregate_from_item,
    aggregate_item,
    check_id,
    erased_record_item,
    event_item,
    record_from_item,
    record_item,
    request_id,
)
from cosmos_outbox.cosmos.aggregates.listing import ListQuery
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.partition_key import KEEP_FOR_EVER
from cosmos_outbox.cosmos.transaction import TAKEN, Batch, refused
from cosmos_outbox.lists import continuation
from cosmos_outbox.outbox.aggregate import Aggregate, AggregateState, Changes
from cosmos_outbox.outbox.errors import AggregateNotFound, PreconditionFailed
from cosmos_outbox.outbox.selection import ALL, Selection
from cosmos_outbox.outbox.unit_of_work import (
    Commit,
    ETag,
    KeyRecord,
    OnCommit,
    Origin,
    Page,
    Receipt,
    Versioned,
)
from cosmos_outbox.telemetry.tracing import LONGEST, committing

A = TypeVar("A", bound=Aggregate[Any])


@dataclass(frozen=True)
class Lifetimes:
    """How many seconds after their last write documents expire."""

    events: int
    requests: int
    """Holds the reservations of idempotency keys, and the marks of answers that were erased."""
    reactions: int = 0
    """Records of messages; 0: the service has no reaction."""

    @property
    def tombstones(self) -> int:
        """Deleted aggregates: at least as long as a claim of their id (rule ``lives_as_long``), and as a message that
        would make them anew is not too old (``tombstone_outlives``)."""
        return max(self.events, self.requests, self.reactions)


@dataclass(frozen=True)
class Changed:
    """An aggregate that has changes to store."""

    aggregate: Aggregate[Any]
    etag: ETag | None
    """The version at which it was read; None: the aggregate is new."""
    changes: Changes[AggregateState]

    def receipt(self, etag: ETag | None) -> Receipt[Any]:
        """For the caller, once it is stored at that version."""
        return Receipt(type(self.aggregate).load(self.changes.state), etag, len(self.changes.events))


@dataclass(frozen=True)
class AggregateBatches:
    """Makes the transactions of one container."""

    container: Container
    lifetimes: Lifetimes
    on_commit: OnCommit

    def of(
        self,
        changed: Sequence[Changed],
        origin: Origin,
        records: Sequence[Write] = (),
    ) -> Batch:
        """One transaction; ``records`` come first in it. The changed aggregates are the first of its documents.

        Raises:
            ValueError: one transaction cannot hold these aggregates, or one was stored by another program.
            ChangeTooLarge, Unpublishable: one transaction cannot hold the changes, or nobody could read them.
        """
        partition_key = _partition_key([each.aggregate for each in changed])
        events = [
            event_item(each.aggregate, event, origin, ttl=self.lifetimes.events)
            for each in changed
            for event in each.changes.events
        ]
        documents = [_document(each, self.lifetimes) for each in changed]
        documents += _erased_records(changed, self.lifetimes)
        return Batch(self.container, partition_key, documents, events, records, self.on_commit)


@dataclass(frozen=True)
class CosmosKeyRecords:
    """Stores the records of requests with a key, each in the partition of the request's aggregate.

    A commit that stores an aggregate as deleted erases the record of the request that created it, or stores an erased
    one in its place, without a read, which could be stale.
    """

    container: Container
    lifetime_seconds: int
    tracked: list[KeyRecord[Any]] = field(default_factory=list)

    def add(self, record: KeyRecord[Any]) -> None:
        """Stores the record in the transaction of the commit, as its first operation, and only if there is none
        (``one_batch``, ``record_first``)."""
        self.tracked.append(record)

    async def find(self, kind: type[A], name: str, partition_key: str) -> KeyRecord[A] | None:
        """Returns the record, with a consistent read: None is proof. Raises Throttled, Unavailable."""
        try:
            item = await self.container.read(request_id(name), partition_key, consistent=True)
        except StoreFailed as error:
            raise error.failure.error() from error
        return None if item is None else record_from_item(kind, item)

    async def create(self, record: KeyRecord[Any], partition_key: str, until: float) -> None:
        """Stores only the record. ``until``: a time of the monotonic clock; no attempt is made that could end later.

        Raises:
            PreconditionFailed: it exists already, perhaps by an earlier attempt.
            Throttled, Unavailable: the store did not answer; nothing is stored.
            OutcomeUnknown: the store's answer was lost.
        """
        batch = Batch(self.container, partition_key, [], records=[self.write(record, partition_key)])
        await _store(batch, until, "the record of the request is there: it says what became of it")

    def write(self, record: KeyRecord[Any], partition_key: str) -> Write:
        """The creation of the record, alone or in a transaction."""
        lifetime = record.lifetime_seconds or self.lifetime_seconds
        return Write.create(record_item(record, partition_key, ttl=lifetime))


async def _store(batch: Batch, until: float | None, taken: str) -> Sequence[ETag | None]:
    """As :meth:`Batch.store`. Raises PreconditionFailed with this text where another writer was faster."""
    try:
        return await batch.store(until)
    except StoreFailed as error:
        if error.failure.kind in TAKEN:
            raise PreconditionFailed(taken) from error
        raise refused(error.failure) from error


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
            items = await self.container.first(query.text(size + 1), query.parameters, size + 1)
        except StoreFailed as error:
            raise error.failure.error() from error
        found = [aggregate_from_item(kind, item) for item in items[:size]]
        more = continuation.seal(scope, query.position(items[size - 1])) if len(items) > size else None
        return Page([each.aggregate for each in found], more, [each.etag for each in found])


@dataclass(frozen=True)
class _Tracked:
    """An aggregate in a unit of work, and the version at which it was read (None: the aggregate is new)."""

    aggregate: Aggregate[Any]
    etag: ETag | None


class CosmosUnitOfWork:
    """Stores the changes of its aggregates, with the events that they raise, together or not at all.

    All aggregates of a unit of work share one partition key, the scope of a transaction. One object serves one request.
    After its context, however that ended, the unit of work tracks nothing.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what the parts of it need
        self,
        container: Container,
        scope: str,
        origin: Origin,
        lifetimes: Lifetimes,
        on_commit: OnCommit | None = None,
        declared: Collection[str] | None = None,
    ) -> None:
        """``declared``: the types of the service's aggregates; None: any can be stored."""
        self._declared = declared
        self._batches = AggregateBatches(container, lifetimes, on_commit or OnCommit())
        self._reader = AggregateReader(container, scope)
        self._origin = origin
        self._tracked: list[_Tracked] = []
        self.records = CosmosKeyRecords(container, lifetimes.requests)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    def add(self, aggregate: Aggregate[Any]) -> None:
        """Tracks a new aggregate. Raises TypeError: the service does not declare its type."""
        if self._declared is not None and aggregate.aggregate_type not in self._declared:
            raise TypeError(
                f"the service declares no {type(aggregate).__name__}: add it to Service(aggregates=...), or its "
                "deadlines, read models and schemas would be missing"
            )
        self._tracked.append(_Tracked(aggregate, None))

    async def get(
        self, kind: type[A], aggregate_id: str, *, partition_key: str | None = None, newest: bool = False
    ) -> Versioned[A]:
        """Reads and tracks an aggregate. Without ``partition_key`` the id is the partition key.

        A read may be stale: it proves only that the aggregate existed at some time, at some version. With ``newest``
        the read is consistent: it includes every write that was committed before the call, and proves absence, at the
        cost of a second round trip.

        Raises:
            AggregateNotFound: no aggregate of this type has the id, or the aggregate was deleted.
            Throttled, Unavailable: the store did not answer.
        """
        read = self._reader.newest if newest else self._reader.get
        found = await read(kind, aggregate_id, partition_key or aggregate_id)
        self._tracked.append(_Tracked(found.aggregate, found.etag))
        return found

    async def page(
        self, kind: type[A], size: int, continuation_token: str | None, selection: Selection = ALL
    ) -> Page[A]:
        """Returns at most ``size`` aggregates that are not deleted, in the order of the selection; not tracked.

        Raises:
            UnknownContinuation: the token was not issued by this service for this list.
            Throttled, Unavailable: the store did not answer.
        """
        return await self._reader.page(kind, size, continuation_token, selection)

    def check(self) -> None:
        """Raises what :meth:`commit` would raise without the store: ChangeTooLarge, Unpublishable, ValueError.

        Nothing is stored, and everything stays tracked.
        """
        if changed := _changed(self._tracked):
            # The commit may have a trace where the request had none.
            longest = replace(self._origin, traceparent=self._origin.traceparent or LONGEST)
            self._batch(changed, longest)

    async def commit(self, *, until: float | None = None) -> Commit:
        """Stores every tracked change and its events in one transaction.

        ``until``: a time of the monotonic clock. No attempt is made that could end later.

        Raises:
            PreconditionFailed: another writer has changed or deleted an aggregate since it was read; nothing is stored.
            ChangeTooLarge: the changes do not fit one transaction; nothing is stored.
            Unpublishable: an event or a state holds values that JSON parsers read differently; nothing is stored.
            Throttled, Unavailable: the store did not answer; nothing is stored.
            OutcomeUnknown: the store's answer was lost: everything is stored, or nothing.
            ValueError: nothing is tracked, or aggregates of two partitions are changed: a bug of the caller.
        """
        try:
            return await self._commit([*self._tracked], until)
        finally:
            self._clear()

    def _clear(self) -> None:
        self._tracked.clear()
        self.records.tracked.clear()

    async def _commit(self, tracked: list[_Tracked], until: float | None) -> Commit:
        if not tracked:
            raise ValueError("nothing is tracked: add or get an aggregate first")
        receipts = {each.aggregate.key: Receipt(each.aggregate, each.etag) for each in tracked}
        changed = _changed(tracked)
        if changed:
            with committing(self._origin) as origin:
                batch = self._batch(changed, origin)
                etags = await _store(
                    batch, until, "another writer was faster: read again, then repeat the change"
                )
            receipts |= {
                each.aggregate.key: each.receipt(etag)
                for each, etag in zip(changed, etags[: len(changed)], strict=True)
            }
        return Commit([*receipts.values()])

    def _batch(self, changed: Sequence[Changed], origin: Origin) -> Batch:
        partition_key = changed[0].aggregate.partition_key
        stored = {each.aggregate.key: each.receipt(None).aggregate for each in changed}
        records = [
            self.records.write(
                each if each.made is None else replace(each, made=stored[each.made.key]), partition_key
            )
            for each in self.records.tracked
        ]
        return self._batches.of(changed, origin, records)


def _changed(tracked: Sequence[_Tracked]) -> list[Changed]:
    changes = ((each, each.aggregate.changes()) for each in tracked)
    return [Changed(each.aggregate, each.etag, made) for each, made in changes if made is not None]


def _partition_key(aggregates: Sequence[Aggregate[Any]]) -> str:
    partition_keys = {aggregate.partition_key for aggregate in aggregates}
    if len(partition_keys) > 1:
        raise ValueError(
            "aggregates of several partitions cannot be stored in one transaction: "
            "give them the same partition_key, or change them in units of work of their own"
        )
    if len({aggregate.aggregate_id for aggregate in aggregates}) < len(aggregates):
        raise ValueError(
            "two changed aggregates have the same id, and so the same document: give each an id of its own"
        )
    return partition_keys.pop()


def _document(changed: Changed, lifetimes: Lifetimes) -> Write:
    ttl = lifetimes.tombstones if changed.aggregate.deleted else KEEP_FOR_EVER
    item = aggregate_item(changed.aggregate, changed.changes.state, ttl=ttl)
    if changed.etag is not None:
        if "last_sequence" not in changed.aggregate.state.model_fields_set:
            raise ValueError(
                f"{changed.aggregate.key} is stored without lastSequence, so its next event would be numbered 1 again: "
                "stop the other program that writes this container, and mend the document as "
                "docs/operate/recipes.md says, under Repairing a document"
            )
        return Write.replace(item, changed.etag)
    check_id(changed.aggregate)  # a stored one is not locked by a rule that was made later
    return Write.create(item)


def _erased_records(changed: Sequence[Changed], lifetimes: Lifetimes) -> list[Write]:
    """The records that replace those of deleted aggregates.

    Rule erased_not_removed: whether there is such a record need not be known, so that no read can be too old.
    Records of reactions stay, so that no message makes the aggregate anew (``erased_keeps_records``).
    """
    deleted = [each.aggregate for each in changed if each.aggregate.deleted]
    return [Write.upsert(erased_record_item(each, ttl=lifetimes.requests)) for each in deleted]

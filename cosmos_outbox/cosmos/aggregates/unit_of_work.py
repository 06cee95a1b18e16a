"""Stores the changes of aggregates with their events in one transaction, each only over the version that was read."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

from cosmos_outbox.cosmos.aggregates.documents import (
    KeyRecord,
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
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write, reported
from cosmos_outbox.cosmos.store.partition_key import KEEP_FOR_EVER
from cosmos_outbox.cosmos.transaction import TAKEN, Batch, OnCommit, refused
from cosmos_outbox.kernel.clock import monotonic, randomness, sleep
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.lists import continuation
from cosmos_outbox.outbox.aggregate import (
    Aggregate,
    AggregateState,
    Changes,
    Commit,
    ETag,
    Origin,
    Page,
    Receipt,
    Versioned,
)
from cosmos_outbox.outbox.errors import (
    AggregateNotFound,
    PreconditionFailed,
)
from cosmos_outbox.outbox.selection import ALL, Selection
from cosmos_outbox.telemetry.tracing import LONGEST, committing

A = TypeVar("A", bound=Aggregate[Any])

RETRY_SECONDS = 5.0
"""The time from its start in which a change that loses its races is retried: its caller waits ten seconds."""


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
        """Returns the caller's receipt, once the change is stored at that version."""
        return Receipt(type(self.aggregate).load(self.changes.state), etag, len(self.changes.events))


def batch_of(  # noqa: PLR0913, PLR0917 - a transaction's parts
    container: Container,
    lifetimes: Lifetimes,
    on_commit: OnCommit,
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
        event_item(each.aggregate, event, origin, ttl=lifetimes.events)
        for each in changed
        for event in each.changes.events
    ]
    documents = [_document(each, lifetimes) for each in changed]
    documents += _erased_records(changed, lifetimes)
    return Batch(container, partition_key, documents, events, records, on_commit)


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
        """``scope`` names the container in continuation tokens; ``declared``: the types of the service's aggregates.

        ``declared`` None: any can be stored.
        """
        self._container = container
        self._scope = scope
        self._origin = origin
        self._lifetimes = lifetimes
        self._on_commit = on_commit or OnCommit()
        self._declared = declared
        self._tracked: list[tuple[Aggregate[Any], ETag | None]] = []
        """With the version at which each was read; None: the aggregate is new."""
        self._records: list[KeyRecord[Any]] = []

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
        self._tracked.append((aggregate, None))

    def add_record(self, record: KeyRecord[Any]) -> None:
        """Stores the record in the transaction of the commit, as its first operation, and only if there is none
        (``one_batch``, ``record_first``)."""
        self._records.append(record)

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
        with reported():
            item = await self._container.read(aggregate_id, partition_key or aggregate_id, consistent=newest)
        found = None
        if item is not None and item.get("type") == kind.aggregate_type:
            found = aggregate_from_item(kind, item)
        if found is None or found.aggregate.deleted:
            raise AggregateNotFound(f"there is no {kind.aggregate_type} {aggregate_id}")
        self._tracked.append((found.aggregate, found.etag))
        return found

    async def find_record(self, kind: type[A], name: str, partition_key: str) -> KeyRecord[A] | None:
        """Returns a request's record, with a consistent read: None is proof. Raises Throttled, Unavailable."""
        with reported():
            item = await self._container.read(request_id(name), partition_key, consistent=True)
        return None if item is None else record_from_item(kind, item)

    async def create_record(self, record: KeyRecord[Any], partition_key: str, until: float) -> None:
        """Stores only a record. ``until``: a time of the monotonic clock; no attempt is made that could end later.

        Raises:
            PreconditionFailed: it exists already, perhaps by an earlier attempt.
            Throttled, Unavailable: the store did not answer; nothing is stored.
            OutcomeUnknown: the store's answer was lost.
        """
        batch = Batch(self._container, partition_key, [], records=[self._write(record, partition_key)])
        await _store(batch, until, "the record of the request is there: it says what became of it")

    async def page(
        self, kind: type[A], size: int, continuation_token: str | None, selection: Selection = ALL
    ) -> Page[A]:
        """Returns at most ``size`` aggregates that are not deleted, in the order of the selection; not tracked.

        Raises:
            UnknownContinuation: the token was not issued by this service for this list.
            Throttled, Unavailable: the store did not answer.
        """
        scope = f"{self._scope}/{ListQuery(kind, selection, None).scope}"
        token = continuation.unseal(scope, continuation_token) if continuation_token else None
        query = ListQuery(kind, selection, token)
        if selection.ids is not None and not selection.ids:
            return Page([], None)
        with reported():
            items = await self._container.first(query.text(size + 1), query.parameters, size + 1)
        found = [aggregate_from_item(kind, item) for item in items[:size]]
        more = continuation.seal(scope, query.position(items[size - 1])) if len(items) > size else None
        return Page([each.aggregate for each in found], more, [each.etag for each in found])

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
        self._records.clear()

    async def _commit(
        self, tracked: Sequence[tuple[Aggregate[Any], ETag | None]], until: float | None
    ) -> Commit:
        if not tracked:
            raise ValueError("the unit of work has no aggregate: add or get one first")
        receipts = {aggregate.key: Receipt(aggregate, etag) for aggregate, etag in tracked}
        if changed := _changed(tracked):
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
            self._write(
                each if each.made is None else replace(each, made=stored[each.made.key]), partition_key
            )
            for each in self._records
        ]
        return batch_of(self._container, self._lifetimes, self._on_commit, changed, origin, records)

    def _write(self, record: KeyRecord[Any], partition_key: str) -> Write:
        """The creation of a record, alone or in a transaction."""
        lifetime = record.lifetime_seconds or self._lifetimes.requests
        return Write.create(record_item(record, partition_key, ttl=lifetime))


def _changed(tracked: Sequence[tuple[Aggregate[Any], ETag | None]]) -> list[Changed]:
    changes = ((aggregate, etag, aggregate.changes()) for aggregate, etag in tracked)
    return [Changed(aggregate, etag, made) for aggregate, etag, made in changes if made is not None]


async def _store(batch: Batch, until: float | None, taken: str) -> Sequence[ETag | None]:
    """As :meth:`Batch.store`. Raises PreconditionFailed with this text where another writer was faster."""
    try:
        return await batch.store(until)
    except StoreFailed as error:
        if error.failure.kind in TAKEN:
            raise PreconditionFailed(taken) from error
        raise refused(error.failure) from error


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


async def back_off(attempt: int, until: float) -> bool:
    """Pauses before another attempt, for up to a second. Returns False if it would begin after ``until``.

    The pause is random, so that writers that lost a race together do not collide again in the next one.
    """
    await sleep(randomness().uniform(0.0, min(1.0, 0.05 * 2**attempt)))
    return monotonic() <= until

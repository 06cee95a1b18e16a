"""Aggregates and their events are stored together or not at all, and the caller learns which of the two.

The answer to a batch can get lost after the batch was committed, and the SDK may have repeated the batch on its own.
A batch is therefore repeated as it is, with the same event ids and the same ETag conditions: the store can commit it
only once. When the store refuses the batch because a document exists already, the unit of work looks for its own event
document before it blames another writer. A process that dies at any point has stored all or nothing, and a client that
asks again finds which of the two.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self, TypeVar

from infra.cosmos.container import DEADLINE_SECONDS, Container, StoreFailed
from infra.cosmos.documents import (
    KEEP_FOR_EVER,
    aggregate_from_item,
    aggregate_item,
    erased_request_item,
    event_item,
    request_item,
)
from infra.cosmos.errors import Failure, Kind
from infra.cosmos.repository import AggregateReader, CosmosRequestRecords
from infra.cosmos.writes import Write, size_in_bytes
from infra.telemetry.tracing import LONGEST, committing
from outbox import telemetry
from outbox.aggregate import Aggregate, AggregateState, Changes
from outbox.errors import ChangeTooLarge, OutcomeUnknown, PreconditionFailed, Unavailable
from outbox.unit_of_work import Commit, ETag, Origin, Page, Receipt, RequestRecord, Versioned

A = TypeVar("A", bound=Aggregate[Any])

MAX_OPERATIONS = 100
MAX_BYTES = 2 * 1024 * 1024
"""Limits of a transactional batch (https://learn.microsoft.com/azure/cosmos-db/nosql/transactional-batch)."""

PATIENCE_SECONDS = 7.0
"""How long a commit whose answer was lost is repeated before OutcomeUnknown is raised."""

_FIRST_PAUSE_SECONDS = 0.1
_TAKEN = {Kind.CONFLICT, Kind.STALE, Kind.MISSING}
_REFUSED = {Kind.INVALID, Kind.TOO_LARGE, Kind.DENIED, Kind.NO_CONTAINER}
"""Trying again changes nothing. None of them tells what became of an earlier attempt whose answer was lost."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lifetimes:
    """How many seconds after their last write documents expire."""

    events: int
    requests: int
    """Claims of idempotency keys, and what tells later that the answer to a request was erased."""

    @property
    def tombstones(self) -> int:
        """Deleted aggregates: at least as long as a claim of their id (rule ``lives_as_long``)."""
        return max(self.events, self.requests)


@dataclass(frozen=True)
class _Tracked:
    """An aggregate in a unit of work, and the version at which it was read (None: the aggregate is new)."""

    aggregate: Aggregate[Any]
    etag: ETag | None


@dataclass(frozen=True)
class _Changed:
    """A tracked aggregate that has changes to store."""

    tracked: _Tracked
    changes: Changes[AggregateState]

    def receipt(self, etag: ETag | None) -> Receipt[Any]:
        aggregate = type(self.tracked.aggregate).load(self.changes.state)
        return Receipt(aggregate, etag, len(self.changes.events))


@dataclass(frozen=True)
class _Batch:
    """What one transaction writes: the documents of the changed aggregates first, in their order, then the events."""

    partition_key: str
    changed: Sequence[_Changed]
    writes: Sequence[Write]

    @property
    def first_event(self) -> dict[str, Any]:
        """A document that no other writer can have stored: its id was made for this batch."""
        return self.writes[len(self.changed)].item


class CosmosUnitOfWork:
    """Tracks the aggregates of one request and stores the changes. See :class:`outbox.unit_of_work.UnitOfWork`."""

    def __init__(self, container: Container, scope: str, origin: Origin, lifetimes: Lifetimes) -> None:
        self._container = container
        self._reader = AggregateReader(container, scope)
        self._origin = origin
        self._lifetimes = lifetimes
        self._tracked: list[_Tracked] = []
        self._records: list[RequestRecord[Any]] = []
        self.requests = CosmosRequestRecords(container, self._records)

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

    async def page(self, kind: type[A], size: int, continuation_token: str | None) -> Page[A]:
        """At most ``size`` aggregates; not tracked. Raises UnknownContinuation, Throttled, Unavailable."""
        return await self._reader.page(kind, size, continuation_token)

    def check(self) -> None:
        """Raise what :meth:`commit` would raise without asking the store."""
        if changed := _changed(self._tracked):
            given = (
                self._origin.traceparent or LONGEST
            )  # the commit may have a trace where the request had none
            self._batch(changed, replace(self._origin, traceparent=given))

    async def commit(self, *, until: float | None = None) -> Commit:
        """Store every tracked change and its events in one transaction. Raises the errors that the port lists."""
        try:
            return await self._commit([*self._tracked], until)
        finally:
            self._clear()

    def _clear(self) -> None:
        self._tracked.clear()
        self._records.clear()

    async def _commit(self, tracked: list[_Tracked], until: float | None) -> Commit:
        if not tracked:
            raise ValueError("nothing is tracked: add or get an aggregate first")
        receipts = {each.aggregate.key: Receipt(each.aggregate, each.etag) for each in tracked}
        changed = _changed(tracked)
        if changed:
            with committing(self._origin) as origin:
                etags = await self._store(self._batch(changed, origin), until)
            telemetry.stored(
                (each.tracked.aggregate.aggregate_type, event.action)
                for each in changed
                for event in each.changes.events
            )
            receipts |= {
                each.tracked.aggregate.key: each.receipt(etag)
                for each, etag in zip(changed, etags, strict=True)
            }
        return Commit([*receipts.values()])

    def _batch(self, changed: Sequence[_Changed], origin: Origin) -> _Batch:
        """The writes of one transaction.

        Raises:
            ValueError: one transaction cannot hold these aggregates.
            ChangeTooLarge, Unpublishable: one transaction cannot hold the changes, or nobody could read them.
        """
        aggregates = [each.tracked.aggregate for each in changed]
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
        ttl = self._lifetimes.events
        events = [
            Write.create(event_item(each.tracked.aggregate, event, origin, ttl=ttl))
            for each in changed
            for event in each.changes.events
        ]
        writes = [*(self._document(each) for each in changed), *events, *self._record_writes(changed)]
        _check_limits(writes)
        return _Batch(partition_keys.pop(), changed, writes)

    def _document(self, changed: _Changed) -> Write:
        aggregate, etag = changed.tracked.aggregate, changed.tracked.etag
        ttl = self._lifetimes.tombstones if aggregate.deleted else KEEP_FOR_EVER
        item = aggregate_item(aggregate, changed.changes.state, ttl=ttl)
        return Write.create(item) if etag is None else Write.replace(item, etag)

    def _record_writes(self, changed: Sequence[_Changed]) -> list[Write]:
        """The records of requests, and what takes the place of the records of deleted aggregates.

        Rule erased_not_removed: whether there is such a record need not be known, so that no read can be too old.
        """
        states = {each.tracked.aggregate.key: each.changes.state for each in changed}
        made = [
            Write.create(request_item(record, record.aggregate, states[record.aggregate.key]))
            for record in self._records
            if record.aggregate is not None
        ]
        deleted = [each.tracked.aggregate for each in changed if each.tracked.aggregate.deleted]
        ttl = self._lifetimes.requests
        return made + [Write.upsert(erased_request_item(aggregate, ttl=ttl)) for aggregate in deleted]

    async def _store(self, batch: _Batch, until: float | None) -> Sequence[ETag | None]:
        """Store the batch once. Returns each aggregate's ETag, or None when others have changed the aggregate since.

        Rule deadline: no attempt is begun that could end after ``until``.
        """
        pause = _FIRST_PAUSE_SECONDS
        answer_lost = False
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + PATIENCE_SECONDS
        if until is not None:
            if loop.time() > until - DEADLINE_SECONDS:
                raise Unavailable("the request comes too late, and stores nothing any more: send it again")
            give_up_at = min(give_up_at, until - DEADLINE_SECONDS)
        while True:
            try:
                etags = await self._container.execute(batch.partition_key, batch.writes)
                return etags[: len(batch.changed)]
            except StoreFailed as error:
                failure = error.failure
                answer_lost = answer_lost or failure.answer_lost
                if failure.kind in _TAKEN:
                    return await self._own_commit(batch)
                final = failure.kind in _REFUSED or (failure.kind is Kind.THROTTLED and not answer_lost)
                if final or not await _waited(pause, give_up_at):
                    raise (_unknown(failure) if answer_lost else _error(failure)) from error
            _log.warning("storing %s again: %s", _named(batch), failure.detail)
            pause *= 2

    async def _own_commit(self, batch: _Batch) -> Sequence[ETag | None]:
        """The ETags of a batch that an earlier attempt stored. Raises PreconditionFailed when no attempt did."""
        event = batch.first_event
        try:
            stored = await self._container.read(event["id"], batch.partition_key)
            if stored is None or stored.get("data") != event["data"]:
                raise PreconditionFailed(
                    f"another writer changed {_named(batch)}: read again, then repeat the change"
                )
            return [await self._etag_if_unchanged(batch, changed) for changed in batch.changed]
        except StoreFailed as error:
            raise _unknown(error.failure) from error

    async def _etag_if_unchanged(self, batch: _Batch, changed: _Changed) -> ETag | None:
        aggregate = changed.tracked.aggregate
        item = await self._container.read(aggregate.aggregate_id, batch.partition_key)
        if item is None:
            return None
        newest = aggregate_from_item(type(aggregate), item)
        unchanged = newest.aggregate.state.last_sequence == changed.changes.state.last_sequence
        return newest.etag if unchanged else None


def _changed(tracked: Sequence[_Tracked]) -> list[_Changed]:
    return [_Changed(each, changes) for each in tracked if (changes := each.aggregate.changes()) is not None]


def _named(batch: _Batch) -> str:
    return ", ".join(str(changed.tracked.aggregate.key) for changed in batch.changed)


def _check_limits(writes: Sequence[Write]) -> None:
    if len(writes) > MAX_OPERATIONS or size_in_bytes(writes) > MAX_BYTES:
        raise _too_large()


def _too_large() -> ChangeTooLarge:
    return ChangeTooLarge(
        f"the change is over {MAX_OPERATIONS} documents or {MAX_BYTES} bytes, the limits of one transaction: "
        "make several smaller changes"
    )


async def _waited(seconds: float, until: float) -> bool:
    """Sleep, and tell whether there is still time; a process can be stopped in its sleep, for any time."""
    loop = asyncio.get_running_loop()
    if loop.time() + seconds > until:
        return False
    await asyncio.sleep(seconds)
    return loop.time() <= until


def _error(failure: Failure) -> Exception:
    return _too_large() if failure.kind is Kind.TOO_LARGE else failure.error()


def _unknown(failure: Failure) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the store did not answer ({failure.detail}); the change may be stored or not: "
        "read again, or repeat the request"
    )

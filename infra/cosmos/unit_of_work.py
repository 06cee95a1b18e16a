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

from infra.cosmos.batch import Batch, Changed, Lifetimes, too_large
from infra.cosmos.container import DEADLINE_SECONDS, Container, StoreFailed
from infra.cosmos.documents import aggregate_from_item
from infra.cosmos.errors import Failure, Kind
from infra.cosmos.repository import AggregateReader, CosmosRequestRecords
from infra.telemetry.tracing import LONGEST, committing
from outbox import telemetry
from outbox.aggregate import Aggregate
from outbox.errors import OutcomeUnknown, PreconditionFailed, Unavailable
from outbox.unit_of_work import Commit, ETag, Origin, Page, Receipt, RequestRecord, Versioned

A = TypeVar("A", bound=Aggregate[Any])

PATIENCE_SECONDS = 7.0
"""How long a commit whose answer was lost is repeated before OutcomeUnknown is raised."""

_FIRST_PAUSE_SECONDS = 0.1
_TAKEN = {Kind.CONFLICT, Kind.STALE, Kind.MISSING}
_REFUSED = {Kind.INVALID, Kind.TOO_LARGE, Kind.DENIED, Kind.NO_CONTAINER}
"""Trying again changes nothing. None of them tells what became of an earlier attempt whose answer was lost."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Tracked:
    """An aggregate in a unit of work, and the version at which it was read (None: the aggregate is new)."""

    aggregate: Aggregate[Any]
    etag: ETag | None


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

    async def _commit(self, tracked: list[_Tracked], until: float | None) -> Commit:
        if not tracked:
            raise ValueError("nothing is tracked: add or get an aggregate first")
        receipts = {each.aggregate.key: Receipt(each.aggregate, each.etag) for each in tracked}
        changed = _changed(tracked)
        if changed:
            with committing(self._origin) as origin:
                etags = await self._store(self._batch(changed, origin), until)
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
        return Batch.of(changed, self._records, origin, self._lifetimes)

    async def _store(self, batch: Batch, until: float | None) -> Sequence[ETag | None]:
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
            _log.warning("storing %s again: %s", batch, failure.detail)
            pause *= 2

    async def _own_commit(self, batch: Batch) -> Sequence[ETag | None]:
        """The ETags of a batch that an earlier attempt stored. Raises PreconditionFailed when no attempt did."""
        event = batch.first_event
        try:
            stored = await self._container.read(event["id"], batch.partition_key)
            if stored is None or stored.get("data") != event["data"]:
                raise PreconditionFailed(
                    f"another writer changed {batch}: read again, then repeat the change"
                )
            return [await self._etag_if_unchanged(batch, changed) for changed in batch.changed]
        except StoreFailed as error:
            raise _unknown(error.failure) from error

    async def _etag_if_unchanged(self, batch: Batch, changed: Changed) -> ETag | None:
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


async def _waited(seconds: float, until: float) -> bool:
    """Sleep, and tell whether there is still time; a process can be stopped in its sleep, for any time."""
    loop = asyncio.get_running_loop()
    if loop.time() + seconds > until:
        return False
    await asyncio.sleep(seconds)
    return loop.time() <= until


def _error(failure: Failure) -> Exception:
    return too_large() if failure.kind is Kind.TOO_LARGE else failure.error()


def _unknown(failure: Failure) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the store did not answer ({failure.detail}); the change may be stored or not: "
        "read again, or repeat the request"
    )

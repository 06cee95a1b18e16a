"""What one transaction writes: each changed aggregate at the version that was read, its events, records of requests.

Whether a transaction can hold that is found out here, before anything is sent.

A batch is stored once or not at all, whatever answers are lost; who asked learns which, or that it is not known.

The answer to a batch can get lost after the batch was committed, and the SDK may have repeated the batch on its own. A
batch that the store can commit only once is therefore repeated as it is, until it is committed or refused.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from cosmos_outbox.cosmos.aggregates.documents import (
    aggregate_item,
    check_id,
    erased_request_item,
    event_item,
    request_item,
)
from cosmos_outbox.cosmos.store.container import (
    DEADLINE_SECONDS,
    Container,
    StoreFailed,
    Write,
    size_in_bytes,
)
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import KEEP_FOR_EVER, Key
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.aggregate import Aggregate, AggregateState, Changes
from cosmos_outbox.outbox.errors import ChangeTooLarge, OutcomeUnknown, Unavailable
from cosmos_outbox.outbox.unit_of_work import ETag, Origin, Receipt, RequestRecord

MAX_OPERATIONS = 100
MAX_BYTES = 2 * 1024 * 1024
"""Limits of a transactional batch (https://learn.microsoft.com/azure/cosmos-db/nosql/transactional-batch)."""


@dataclass(frozen=True)
class Lifetimes:
    """How many seconds after their last write documents expire."""

    events: int
    requests: int
    """Claims of idempotency keys, and what tells later that the answer to a request was erased."""
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
class Batch:
    """What must come first, the documents of the changed aggregates, in their order, the events, the rest."""

    partition_key: str
    changed: Sequence[Changed]
    writes: Sequence[Write]
    first: int
    """How many writes come before those of the aggregates."""

    @classmethod
    def of(
        cls,
        changed: Sequence[Changed],
        records: Iterable[RequestRecord[Any]],
        origin: Origin,
        lifetimes: Lifetimes,
        first: Sequence[Write] = (),
    ) -> Self:
        """The writes of one transaction; ``first``: those by which it is refused before by any other.

        Raises:
            ValueError: one transaction cannot hold these aggregates.
            ChangeTooLarge, Unpublishable: one transaction cannot hold the changes, or nobody could read them.
        """
        partition_key = _partition_key([each.aggregate for each in changed])
        events = [
            Write.create(event_item(each.aggregate, event, origin, ttl=lifetimes.events))
            for each in changed
            for event in each.changes.events
        ]
        documents = [_document(each, lifetimes) for each in changed]
        writes = [*first, *documents, *events, *_record_writes(changed, records, lifetimes)]
        check_size(writes)
        return cls(partition_key, changed, writes, len(first))

    @property
    def first_event(self) -> dict[str, Any]:
        """A document that no other writer can have stored: its id was made for this batch."""
        return self.writes[self.first + len(self.changed)].item

    def __str__(self) -> str:
        return ", ".join(str(each.aggregate.key) for each in self.changed)


def check_size(writes: Sequence[Write]) -> None:
    """Raises ChangeTooLarge: one transaction cannot hold these."""
    if len(writes) > MAX_OPERATIONS or size_in_bytes(writes) > MAX_BYTES:
        raise too_large()


def too_large() -> ChangeTooLarge:
    """Of this batch, whether the service says so or we do."""
    return ChangeTooLarge(
        f"the change is over {MAX_OPERATIONS} documents or {MAX_BYTES} bytes, the limits of one transaction: "
        "make several smaller changes"
    )


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
        return Write.replace(item, changed.etag)
    check_id(changed.aggregate)  # a stored one is not locked by a rule that was made later
    return Write.create(item)


def _record_writes(
    changed: Sequence[Changed], records: Iterable[RequestRecord[Any]], lifetimes: Lifetimes
) -> list[Write]:
    """The records of requests, and what takes the place of the records of deleted aggregates.

    Rule erased_not_removed: whether there is such a record need not be known, so that no read can be too old.
    Records of reactions stay, so that no message makes the aggregate anew (``erased_keeps_records``).
    """
    states = {each.aggregate.key: each.changes.state for each in changed}
    made = [
        Write.create(request_item(record, record.aggregate, states[record.aggregate.key]))
        for record in records
        if record.aggregate is not None
    ]
    deleted = [each.aggregate for each in changed if each.aggregate.deleted]
    return made + [Write.upsert(erased_request_item(each, ttl=lifetimes.requests)) for each in deleted]


PATIENCE_SECONDS = 7.0
"""How long a batch whose answer was lost is repeated before OutcomeUnknown is raised."""
_FIRST_PAUSE_SECONDS = 0.1
_TAKEN = {Kind.CONFLICT, Kind.STALE, Kind.MISSING}
_REFUSED = {Kind.INVALID, Kind.TOO_LARGE, Kind.DENIED, Kind.NO_CONTAINER}
"""Trying again changes nothing. None of them tells what became of an earlier attempt whose answer was lost."""

_log = logging.getLogger(__name__)


def refused(failure: Failure) -> Exception:
    """The error of a batch of which nothing is stored."""
    return too_large() if failure.kind is Kind.TOO_LARGE else failure.error()


def unknown(failure: Failure) -> OutcomeUnknown:
    """The error of a batch that may be stored."""
    return OutcomeUnknown(
        f"the store did not answer ({failure.detail}); the change may be stored or not: "
        "read again, or repeat the request"
    )


@dataclass(frozen=True)
class WriteRefusal:
    """A document is there, or not at the version that the batch wants: by another writer, or by this very batch."""

    failure: Failure
    answer_lost: bool
    """Whether an attempt before may have been stored."""


@dataclass(frozen=True)
class Once:
    """A batch, and what tells whether an earlier attempt at it was stored."""

    container: Container
    partition_key: Key
    writes: Sequence[Write]
    meaning: Callable[[WriteRefusal], Awaitable[Sequence[ETag | None]]]
    """The ETags of the batch, when an earlier attempt has stored it; else it raises."""
    error: Callable[[Failure], Exception] = refused
    repeatable: bool = True
    """Whether the store commits the batch at most once, however often it comes."""

    async def store(self, give_up_at: float) -> Sequence[ETag | None]:
        """Store it, trying until this time of the monotonic clock. Raises OutcomeUnknown, and what ``error`` makes."""
        pause, answer_lost = _FIRST_PAUSE_SECONDS, False
        while True:
            try:
                return await self.container.execute(self.partition_key, self.writes)
            except StoreFailed as error:
                failure = error.failure
                answer_lost = answer_lost or failure.answer_lost
                if failure.kind in _TAKEN:
                    return await self.meaning(WriteRefusal(failure, answer_lost))
                final = failure.kind in _REFUSED or (failure.kind is Kind.THROTTLED and not answer_lost)
                final = final or (answer_lost and not self.repeatable)
                if final or not await _wait(pause, give_up_at):
                    raise (unknown(failure) if answer_lost else self.error(failure)) from error
            _log.warning("storing a transaction again: %s", failure.detail)
            pause *= 2


def latest(until: float) -> float:
    """When the last attempt may begin that ends in time (rule ``deadline``). Raises Unavailable: it is too late."""
    if monotonic() > until - DEADLINE_SECONDS:
        raise Unavailable("the request comes too late, and stores nothing any more: send it again")
    return until - DEADLINE_SECONDS


async def _wait(seconds: float, until: float) -> bool:
    """Sleep, and tell whether there is still time; a process can be stopped in its sleep, for any time."""
    if monotonic() + seconds > until:
        return False
    await asyncio.sleep(seconds)
    return monotonic() <= until

"""A change that is repeated with the same idempotency key happens once, and each repetition gets the first answer.

The record of the request is created in the transaction of the change, before anything else (``one_batch``,
``created_only``, ``record_first``); what is no change has a record alone. The target is known, so no claim is needed.
``docs/internals/decisions/0025-reactions.md`` lists the rules; ``tests/models/keyed.py`` searches for what happens
without each.

========================  ===========================================================================================
``caller_in_id``          The record's id is made of caller, key and target: a key counts for each target.
``fingerprint``           Another method or body under the same key is refused; other conditions are not.
``newest_for_a_no``       What is no change is believed only of a state that was read behind a fence.
``record_before_no``      No 412 and no 404 before the record was looked for.
``state_then_record``     First the aggregate, then the record: so a change by this request's duplicate is not taken
                          for another's.
``at_its_version``        Other writers are stopped by the aggregate's version.
``decide_anew``           Without a pinned version a lost race is run again.
``unused_by_412``         What the aggregate has not decided leaves the key unused.
``refusal_recorded``      What the aggregate refuses, or finds done, is an answer: it has a record.
``etag_if_same``          A repetition gets state and ETag only while the aggregate is at the first answer's sequence.
``deadline``              Nothing is stored, and no 412 or 404 told, later than the longest request after it began.
========================  ===========================================================================================
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.aggregate import Aggregate, AggregateState, Changes
from cosmos_outbox.outbox.claims import LONGEST_REQUEST_SECONDS
from cosmos_outbox.outbox.errors import (
    AggregateNotFound,
    ChangeTooLarge,
    ConcurrentChange,
    OutboxError,
    PreconditionFailed,
    RefusedBefore,
    Unavailable,
    Unpublishable,
)
from cosmos_outbox.outbox.idempotency import KeyedRequest, key_reused
from cosmos_outbox.outbox.unit_of_work import (
    ChangeRecord,
    ETag,
    Origin,
    Receipt,
    UnitOfWork,
    UnitOfWorkFactory,
    Versioned,
)

A = TypeVar("A", bound=Aggregate[Any])


@dataclass(frozen=True)
class ChangeAnswer(Generic[A]):
    """What a change came to, for the first request and each repetition."""

    sequence: int
    """The aggregate's last after the change."""
    receipt: Receipt[A] | None
    """None: others have changed or deleted the aggregate since."""
    replayed: bool = False
    """The answer is that to an earlier request."""


@dataclass(frozen=True)
class Pinned:
    """The versions of an aggregate that a caller allows."""

    if_match: Collection[ETag] = ()
    """Empty: any."""
    refuse: Callable[[Versioned[Any]], bool] | None = None
    """Whether it does not allow one of them all the same."""

    def allows(self, found: Versioned[Any]) -> bool:
        """Whether the version is allowed."""
        named = not self.if_match or found.etag in self.if_match
        return named and not (self.refuse and self.refuse(found))

    def check(self, found: Versioned[Any]) -> None:
        """Raises PreconditionFailed for a version that is not allowed."""
        if not self.allows(found):
            raise PreconditionFailed(
                f"{found.aggregate.key} is at another version than the request's conditions allow: read it again and "
                "use its new ETag as it comes, since a weak one matches none"
            )


@dataclass(frozen=True)
class Wanted(Generic[A]):
    """A change of one aggregate, by one request with a key."""

    kind: type[A]
    aggregate_id: str
    partition_key: str
    change: Callable[[A], None]
    request: KeyedRequest
    pinned: Pinned = field(default_factory=Pinned)

    @property
    def record(self) -> str:
        """The name of the request's record."""
        return self.request.of_change(self.kind.aggregate_type, self.aggregate_id)

    def answer(self, sequence: int, refused: int | None = None) -> ChangeRecord:
        """The record of an answer."""
        return ChangeRecord(self.record, self.request.fingerprint, sequence, refused)


async def change_once(
    open_unit_of_work: UnitOfWorkFactory, wanted: Wanted[A], origin: Origin, *, attempts: int
) -> ChangeAnswer[A]:
    """Apply the change, unless a request with this key came before.

    Raises:
        IdempotencyKeyReused: the key was used before for this aggregate, with another request.
        RefusedBefore: the aggregate refused this request before, and would not now.
        AggregateNotFound, PreconditionFailed, ConcurrentChange, ChangeTooLarge, Unpublishable: nothing is stored, and
            the key is not used.
        Throttled, Unavailable, OutcomeUnknown: a repetition finds out which.
        Exception: what ``change`` raises of the newest state, and raises again for a repetition, while it does.
    """
    until = monotonic() + LONGEST_REQUEST_SECONDS
    for attempt in range(attempts + 1):
        fenced = attempt > 0
        async with open_unit_of_work(origin) as work:
            found = await _find(work, wanted, newest=fenced)
            if fenced and (record := await _find_record(work, wanted)):  # state_then_record, record_before_no
                return _first_answer(record, wanted, found)
            if attempt < attempts and (answered := await _store(work, wanted, found, until, fenced=fenced)):
                return answered
    raise ConcurrentChange(
        f"other writers changed {wanted.kind.aggregate_type} {wanted.aggregate_id} at each of {attempts} attempts: "
        "try again"
    )


async def _find(work: UnitOfWork, wanted: Wanted[A], *, newest: bool) -> Versioned[A] | None:
    try:
        return await work.get(
            wanted.kind, wanted.aggregate_id, partition_key=wanted.partition_key, newest=newest
        )
    except AggregateNotFound:
        return None


async def _find_record(work: UnitOfWork, wanted: Wanted[A]) -> ChangeRecord | None:
    return await work.changes.find(wanted.record, wanted.partition_key)


def decide(wanted: Wanted[A], found: Versioned[A] | None) -> Changes[AggregateState] | None:
    """What is to be stored; None: nothing.

    Raises:
        AggregateNotFound, PreconditionFailed: what does not use the key.
        Exception: what the aggregate refuses it with.
    """
    if found is None:
        raise AggregateNotFound(f"there is no {wanted.kind.aggregate_type} {wanted.aggregate_id}")
    wanted.pinned.check(found)
    wanted.change(found.aggregate)
    changes: Changes[AggregateState] | None = found.aggregate.changes()
    return changes


async def _store(
    work: UnitOfWork, wanted: Wanted[A], found: Versioned[A] | None, until: float, *, fenced: bool
) -> ChangeAnswer[A] | None:
    """None: it is to be decided anew, behind a fence (``newest_for_a_no``, ``decide_anew``)."""
    try:
        changes = decide(wanted, found)
    except Exception as no:
        if fenced and await _is_final(work, wanted, found, no, until):
            raise
        return None
    assert found is not None, "else it was not found"
    if changes is not None:
        return await _commit(work, wanted, found, changes.state.last_sequence, until, fenced=fenced)
    if fenced and await _record_alone(work, wanted, found, until):
        return ChangeAnswer(_sequence(found), Receipt(found.aggregate, found.etag))
    return None


async def _commit(  # noqa: PLR0913 - a transaction, and by what it was decided
    work: UnitOfWork, wanted: Wanted[A], found: Versioned[A], sequence: int, until: float, *, fenced: bool
) -> ChangeAnswer[A] | None:
    work.changes.add(wanted.answer(sequence))
    try:
        return ChangeAnswer(sequence, (await work.commit(until=until)).receipt(found.aggregate))
    except PreconditionFailed:
        return None
    except (ChangeTooLarge, Unpublishable):  # a newer state may be smaller
        if fenced:
            raise
        return None


async def _is_final(
    work: UnitOfWork, wanted: Wanted[A], found: Versioned[A] | None, no: Exception, until: float
) -> bool:
    """Whether the caller can be told: what the aggregate refuses, once that is recorded (``refusal_recorded``).

    Raises Unavailable: so late, the record of a duplicate may have expired (``deadline``).
    """
    status = None if isinstance(no, OutboxError) else wanted.request.status_of(no)
    if status is not None:
        return await _record_alone(work, wanted, found, until, refused=status)
    if monotonic() > until:
        raise Unavailable("the request took too long: send it again")
    return True  # unused_by_412


async def _record_alone(
    work: UnitOfWork,
    wanted: Wanted[A],
    found: Versioned[A] | None,
    until: float,
    *,
    refused: int | None = None,
) -> bool:
    """Whether the record of a no is stored now; False: there is one."""
    try:
        await work.changes.create(wanted.answer(_sequence(found), refused), wanted.partition_key, until)
    except PreconditionFailed:
        return False
    return True


def _first_answer(record: ChangeRecord, wanted: Wanted[A], found: Versioned[A] | None) -> ChangeAnswer[A]:
    if record.fingerprint != wanted.request.fingerprint:
        raise key_reused()
    if record.refused is not None:
        raise _refusal(record.refused, wanted, found)
    same = found is not None and _sequence(found) == record.sequence  # etag_if_same
    return ChangeAnswer(
        record.sequence,
        Receipt(found.aggregate, found.etag) if found is not None and same else None,
        replayed=True,
    )


def _refusal(status: int, wanted: Wanted[A], found: Versioned[A] | None) -> Exception:
    """The first refusal, in the words of the aggregate while it still refuses: no text is stored."""
    try:
        if found is not None:
            wanted.change(found.aggregate)
    except Exception as error:  # noqa: BLE001 - whatever the aggregate refuses with
        if wanted.request.status_of(error) == status:
            return error
    return RefusedBefore(
        "the request was refused when it came first, and is not carried out now: read again, and send a new request "
        "with a new Idempotency-Key",
        status=status,
    )


def _sequence(found: Versioned[Any] | None) -> int:
    return 0 if found is None else int(found.aggregate.state.last_sequence)

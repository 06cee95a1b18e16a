"""A creation that is repeated with the same idempotency key happens once, and each repetition gets the first answer.

First the key is claimed, then one transaction stores the aggregate under the claim's id, its events and a record of the
request. A process may die at any point: a claim without its transaction leaves the id to the repetition, and the
transaction can be committed only once, since its id is taken afterwards.
``docs/internals/decisions/0008-idempotency-key.md`` lists the rules by name and what happens without each;
``tests/models/claims.py`` searches for it.

The port of claims: while a claim lives, its key stands for one aggregate and one request of one caller.

The claim decides which id the aggregate gets, before the aggregate is stored. So a request that was repeated, or whose
process died before its transaction, meets the same id. The id is made with the claim, a new UUID each time (rule
``fresh_id``): a key that is used again after its claim expired never brings an id back.

A change that is repeated with the same idempotency key happens once, and each repetition gets the first answer.

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

import hashlib
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

from cosmos_outbox.kernel.clock import monotonic, new_id, randomness, sleep
from cosmos_outbox.outbox.aggregate import Aggregate, AggregateState, Changes
from cosmos_outbox.outbox.errors import (
    AggregateNotFound,
    AnswerErased,
    ChangeTooLarge,
    ConcurrentChange,
    IdempotencyKeyReused,
    OutboxError,
    PreconditionFailed,
    RefusedBefore,
    Unavailable,
    Unpublishable,
)
from cosmos_outbox.outbox.unit_of_work import (
    ChangeRecord,
    ETag,
    Origin,
    Receipt,
    RequestRecord,
    UnitOfWork,
    UnitOfWorkFactory,
    Versioned,
)

LONGEST_REQUEST_SECONDS = 30.0
"""The longest that a request with a key may take from its claim to the end of its last transaction."""


@dataclass(frozen=True)
class Claim:
    """What a key stands for."""

    aggregate_id: UUID
    fingerprint: str
    """A digest of the request that made the claim."""
    usable_until: float
    """By the monotonic clock: no transaction under this claim is sent so late that it could end after this time
    (rule ``deadline``)."""
    lifetime_seconds: int
    """How long the claim lives after it was made. What is stored under the claim lives as long, counted from later on
    (rule ``lives_as_long``)."""
    is_new: bool
    """The claim was made by this call. False proves nothing: the answer that said so may have been lost."""


class Claims(Protocol):
    """The claims of one service."""

    async def claim(self, key_digest: str, fingerprint: str) -> Claim:
        """Make the claim of a key, unless there is one; then that one, whatever its fingerprint is.

        Raises:
            Unavailable: the claim that is there is about to expire, or expired twice; or the store could not be used.
            Throttled: the store asks to slow down.
        """


A = TypeVar("A", bound=Aggregate[Any])

_LONGEST_SECONDS = 2**31 - 1
"""No lifetime takes more bytes: what is checked with it is not smaller than what is stored."""


def _no_status(_: Exception) -> int | None:
    return None


@dataclass(frozen=True)
class KeyedRequest:
    """A request that its caller may repeat: what ``create_once`` and ``change_once`` of ``Aggregates`` know it by."""

    caller: str
    """Who asks: the same key of another caller is another key."""
    key: str
    """The caller's ``Idempotency-Key``; it is remembered for ``IDEMPOTENCY_TTL_SECONDS``, and kept as a digest."""
    fingerprint: str
    """A digest of what the caller sent, not of what this version of the service understood."""
    status_of: Callable[[Exception], int | None] = field(default=_no_status, compare=False)
    """The status that a refusal of the aggregate is answered with; None: the error is no refusal, but a bug."""

    def of_change(self, aggregate_type: str, aggregate_id: str) -> str:
        """Names the record of a change. A key counts for each target (``caller_in_id``, ``target_in_id``)."""
        return digest(json.dumps(["key", self.caller, self.key, aggregate_type, aggregate_id]))

    @property
    def key_digest(self) -> str:
        """Names the claim. Of a fixed length each, so that no other caller and key give the same text."""
        return digest(f"{digest(self.caller)} {digest(self.key)}")


def digest(text: str) -> str:
    """A text's SHA-256 digest, kept in place of the text: keys and requests may hold personal data."""
    return hashlib.sha256(text.encode()).hexdigest()


async def create_once(
    open_unit_of_work: UnitOfWorkFactory,
    claims: Claims,
    make: Callable[[UUID], A],
    request: KeyedRequest,
    origin: Origin,
) -> tuple[Receipt[A], bool]:
    """Store the aggregate that ``make`` makes with the given id, unless a request with this key came before.

    ``make`` is called more than once, and makes the same each time but for the id: what was checked is what is stored.

    Returns:
        The receipt, and whether the receipt is of an earlier request.

    Raises:
        IdempotencyKeyReused: the key was used before, with another request.
        AnswerErased: the aggregate was deleted, and the first answer with it.
        ChangeTooLarge, Unpublishable: nothing is stored, and the key is not used.
        Throttled, Unavailable, OutcomeUnknown: a repetition finds out which.
    """
    tried = make(new_id())
    fingerprint = digest(f"{tried.aggregate_type} {request.fingerprint}")
    async with open_unit_of_work(origin) as work:
        # Rule checks_first: a request that is refused leaves its key unused.
        _track(work, tried, fingerprint, _LONGEST_SECONDS)
        work.check()
    claim = await claims.claim(request.key_digest, fingerprint)
    if claim.fingerprint != fingerprint:
        raise key_reused()
    aggregate = make(claim.aggregate_id)
    async with open_unit_of_work(origin) as work:
        if not claim.is_new and (record := await work.requests.get(aggregate, aggregate.aggregate_id)):
            return await replay_answer(work, record), True
        return await _store(work, aggregate, claim)


async def _store(work: UnitOfWork, aggregate: A, claim: Claim) -> tuple[Receipt[A], bool]:
    _track(work, aggregate, claim.fingerprint, claim.lifetime_seconds)
    try:
        commit = await work.commit(until=claim.usable_until)
        return commit.receipt(aggregate), False
    except PreconditionFailed:  # rule loser_answers: another request under this claim was faster
        record = await work.requests.get(aggregate, aggregate.aggregate_id, newest=True)
        if record is None:
            raise Unavailable(
                f"{aggregate.key} is stored, and no record of its request: send the request again"
            ) from None
        return await replay_answer(work, record), True


def _track(work: UnitOfWork, aggregate: Aggregate[Any], fingerprint: str, lifetime_seconds: int) -> None:
    """Rule one_batch: the record is stored in the aggregate's transaction."""
    work.add(aggregate)
    work.requests.add(RequestRecord(aggregate.aggregate_id, fingerprint, aggregate, lifetime_seconds))


async def replay_answer(work: UnitOfWork, record: RequestRecord[A]) -> Receipt[A]:
    """The first answer again, with the ETag if the aggregate is still at the version of that answer.

    Raises AnswerErased.
    """
    first = record.aggregate
    if first is None:
        raise AnswerErased(
            "the Idempotency-Key was used, and what it created was deleted: use a new key for a new request"
        )
    try:
        stored = await work.get(type(first), first.aggregate_id, partition_key=first.partition_key)
    except AggregateNotFound:
        return Receipt(first, None)
    unchanged = stored.aggregate.state.last_sequence == first.state.last_sequence
    return Receipt(first, stored.etag if unchanged else None)


def key_reused() -> IdempotencyKeyReused:
    """The error of a key that was used for another request."""
    return IdempotencyKeyReused(
        "the Idempotency-Key was used before with another body: use a new key for a new request"
    )


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


RETRY_SECONDS = 5.0
"""How long after its beginning a change that has lost its races is attempted again: its caller waits ten seconds."""


async def back_off(attempt: int, until: float) -> bool:
    """Pause before another attempt, for up to a second. False: it would begin after ``until``.

    The pause is drawn by lot, so that writers that lost a race together do not meet again in the next one.
    """
    await sleep(randomness().uniform(0.0, min(1.0, 0.05 * 2**attempt)))
    return monotonic() <= until


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
    began = monotonic()
    until = began + LONGEST_REQUEST_SECONDS
    for attempt in range(attempts):
        if attempt > 1 and not await back_off(attempt, began + RETRY_SECONDS):
            break
        fenced = attempt > 0
        async with open_unit_of_work(origin) as work:
            found = await _find(work, wanted, newest=fenced)
            if fenced and (record := await _find_record(work, wanted)):  # state_then_record, record_before_no
                return _first_answer(record, wanted, found)
            if answered := await _store_change(work, wanted, found, until, fenced=fenced):
                return answered
    async with open_unit_of_work(origin) as work:  # a duplicate may have won the last race
        found = await _find(work, wanted, newest=True)
        if record := await _find_record(work, wanted):
            return _first_answer(record, wanted, found)
    raise ConcurrentChange(
        f"other writers changed {wanted.kind.aggregate_type} {wanted.aggregate_id} at each attempt: try again"
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


async def _store_change(
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

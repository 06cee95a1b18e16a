"""Executes a request with an idempotency key once; each repetition gets the first answer.

The record of the request is created in the transaction of the change, as its first operation (``one_batch``,
``created_only``, ``record_first``); a request without effect stores only the record. A record proves that the request
has an outcome, and contains it. ``docs/internals/decisions/0025-reactions.md`` lists the rules;
``tests/models/keyed.py`` searches for the consequences without each.

A request that creates has one additional step: its target is not known, so a claim first reserves an id. While the
claim exists, its key stands for one aggregate and one request of one caller. So a request that is repeated, or whose
process died before its transaction, gets the same id, with which the transaction can be committed only once. The id is
created with the claim, a new UUID each time (``fresh_id``): a key that is used again after its claim expired never
reuses an id. ``docs/internals/decisions/0008-idempotency-key.md`` lists the rules of claims; ``tests/models/claims.py``
checks them.

========================  ===========================================================================================
``caller_in_id``          The record's id is derived from caller, key and target: a key is scoped to its target.
``fingerprint``           Another method or body under the same key is refused; other conditions are not.
``newest_for_a_no``       That a request changes nothing is decided only on a consistent read.
``record_before_no``      No 412 or 404 is returned before the record was looked up.
``state_then_record``     The aggregate is read before the record, so that a change by a duplicate of this request is
                          not attributed to another.
``at_its_version``        Other writers are stopped by the aggregate's version.
``decide_anew``           Without a pinned version a lost race is retried.
``unused_by_412``         A request on which the aggregate has not decided leaves the key unused.
``refusal_recorded``      A refusal of the aggregate, or a request without effect, is an answer: it has a record.
``etag_if_same``          A repetition gets state and ETag only while the aggregate is at the first answer's sequence.
``deadline``              After the longest request time nothing is stored, and no 412 or 404 returned.
========================  ===========================================================================================
"""

from collections.abc import Callable
from dataclasses import field
from typing import Any, Generic, TypeVar
from uuid import UUID

from cosmos_outbox.cosmos.aggregates.documents import (
    KeyRecord,
)
from cosmos_outbox.cosmos.aggregates.unit_of_work import RETRY_SECONDS, CosmosUnitOfWork, back_off
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write, reported
from cosmos_outbox.cosmos.store.errors import Kind
from cosmos_outbox.cosmos.store.partition_key import Item
from cosmos_outbox.kernel.clock import monotonic, new_id
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate import (
    LONGEST_REQUEST_SECONDS,
    Aggregate,
    AggregateState,
    ChangeAnswer,
    Changes,
    KeyedRequest,
    Origin,
    Precondition,
    Receipt,
    Versioned,
)
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


@dataclass(frozen=True)
class KeyReservation:
    """The reservation of a key for one aggregate id."""

    aggregate_id: UUID
    fingerprint: str
    """A digest of the request that created the claim."""
    usable_until: float
    """A time by the monotonic clock: no transaction under this claim is sent that could end later (rule
    ``deadline``)."""
    lifetime_seconds: int
    """The claim's lifetime from its creation. Documents under it have the same lifetime, from a later start (rule
    ``lives_as_long``)."""
    is_new: bool
    """Whether this call created the claim. False proves nothing: the store's first response may have been lost."""


CLAIM_TYPE = "idempotencyClaim"

_ATTEMPTS_TO_CLAIM = 2
_CLOCK_STEP_SECONDS = 1.0
"""The service gives the times of a write and of an answer in whole seconds."""


@dataclass(frozen=True)
class CosmosClaims:
    """Creates and reads the claims of one service, in a container of their own, which no relay reads.

    Of all requests with one key, the first whose claim is created decides: the store refuses every other claim. So a
    claim is made by a creation alone, and no read decides that there is none (rule ``created_not_read``). A creation
    whose answer was lost is not asked for again here: the caller's repetition finds the claim. A claim holds digests
    and an id, nothing personal.
    """

    container: Container
    lifetime_seconds: int
    longest_request_seconds: float = LONGEST_REQUEST_SECONDS

    async def claim(self, key_digest: str, fingerprint: str) -> KeyReservation:
        """Creates the claim of a key, or returns the existing one, whatever its fingerprint.

        Raises:
            Unavailable: the existing claim is about to expire, or expired twice; or the store could not be used.
            Throttled: the store asks to slow down.
        """
        with reported():
            for _ in range(_ATTEMPTS_TO_CLAIM):
                made = await self._make(key_digest, fingerprint)
                if claim := made or await self._find(key_digest):
                    return claim
        raise Unavailable("the claim of the Idempotency-Key expired at this moment: send the request again")

    async def _make(self, key_digest: str, fingerprint: str) -> KeyReservation | None:
        """Creates the claim; None: there is one, which the refused write proves."""
        usable_until, aggregate_id = self._usable_until(), new_id()
        try:
            claim = _claim_item(key_digest, fingerprint, aggregate_id, ttl=self.lifetime_seconds)
            await self.container.execute(key_digest, [Write.create(claim)])
        except StoreFailed as error:
            if error.failure.kind is Kind.CONFLICT:
                return None
            raise
        return KeyReservation(aggregate_id, fingerprint, usable_until, self.lifetime_seconds, is_new=True)

    async def _find(self, key_digest: str) -> KeyReservation | None:
        """Returns the existing claim; None: it has just expired. Raises Unavailable if it is about to.

        Rule token_of_the_refusal: the container reads with the session token of the refused creation.
        """
        asked_at, usable_until = monotonic(), self._usable_until()
        found = await self.container.read_with_age(key_digest, key_digest)
        if found is None:
            return None
        item, age = found
        left = item["ttl"] - age - _CLOCK_STEP_SECONDS
        if left < self.longest_request_seconds:  # rule life_left
            raise Unavailable(
                "the claim of the Idempotency-Key is about to expire: send the request again afterwards",
                retry_after_seconds=max(left, 0) + 2 * _CLOCK_STEP_SECONDS,
            )
        # Rule lives_as_long: where the setting was lowered, the claim may outlive the tombstone of what it made. So a
        # claim that is older than the setting still leads to the first answer, and no transaction is sent under it.
        if self.lifetime_seconds - age - _CLOCK_STEP_SECONDS < self.longest_request_seconds:
            usable_until = asked_at
        data = item["data"]
        return KeyReservation(
            UUID(data["aggregateId"]), data["fingerprint"], usable_until, item["ttl"], is_new=False
        )

    def _usable_until(self) -> float:
        """Returns the time until which the claim surely lives: counted from before the call that makes or reads it."""
        return monotonic() + self.longest_request_seconds


def _claim_item(key_digest: str, fingerprint: str, aggregate_id: UUID, *, ttl: int) -> Item:
    return {
        "id": key_digest,
        "partitionKey": key_digest,
        "type": CLAIM_TYPE,
        "data": {"aggregateId": str(aggregate_id), "fingerprint": fingerprint},
        "ttl": ttl,
    }


A = TypeVar("A", bound=Aggregate[Any])


def key_reused() -> IdempotencyKeyReused:
    """Returns the error of a key that was used for another request."""
    return IdempotencyKeyReused(
        "the Idempotency-Key was used before with another body: use a new key for a new request"
    )


@dataclass(frozen=True)
class ChangeRequest(Generic[A]):
    """A change of one aggregate that a request with a key asks for."""

    kind: type[A]
    aggregate_id: str
    partition_key: str
    change: Callable[[A], None]
    request: KeyedRequest
    pinned: Precondition = field(default_factory=Precondition)

    @property
    def record(self) -> str:
        """The name of the request's record."""
        return f"key-{self.request.of_change(self.kind.aggregate_type, self.aggregate_id)}"

    @property
    def fingerprint(self) -> str:
        """The fingerprint that a repetition must have."""
        return self.request.fingerprint

    def answer(self, sequence: int, refused: int | None = None) -> KeyRecord[A]:
        """Returns the record of an answer."""
        return KeyRecord(self.record, self.fingerprint, sequence, refused)

    def lost(self) -> Exception:
        """Returns the error of a request that lost every race."""
        return ConcurrentChange(
            f"other writers changed {self.kind.aggregate_type} {self.aggregate_id} at each attempt: try again"
        )


@dataclass(frozen=True, kw_only=True)
class WantedNew(ChangeRequest[A]):
    """The creation of an aggregate that a request with a key asks for; a claim determines its id."""

    new: A
    claim: KeyReservation

    @property
    def record(self) -> str:
        """The name of the request's record: the aggregate's id, which no other request creates."""
        return self.aggregate_id

    @property
    def fingerprint(self) -> str:
        """The claim's fingerprint, which includes the aggregate's type."""
        return self.claim.fingerprint

    def lost(self) -> Exception:
        """Returns Unavailable: this cannot happen while every rule holds, and is never the caller's fault."""
        return Unavailable(
            f"{self.kind.aggregate_type} {self.aggregate_id} is stored, and no record of its request: send the request "
            "again"
        )


def decide(wanted: ChangeRequest[A], found: Versioned[A] | None) -> Changes[AggregateState] | None:
    """Returns the changes to be stored; None: there are none.

    Raises:
        AggregateNotFound, PreconditionFailed: the key is not used.
        Exception: the aggregate's refusal.
    """
    if found is None:
        raise AggregateNotFound(f"there is no {wanted.kind.aggregate_type} {wanted.aggregate_id}")
    wanted.pinned.check(found)
    wanted.change(found.aggregate)
    changes: Changes[AggregateState] | None = found.aggregate.changes()
    return changes


def first_answer(
    record: KeyRecord[A], wanted: ChangeRequest[A], found: Versioned[A] | None
) -> ChangeAnswer[A]:
    """Returns the recorded answer, with the ETag if the aggregate is still at its version."""
    if record.erased:
        raise AnswerErased(
            "the Idempotency-Key was used, and what it created was deleted: use a new key for a new request"
        )
    if record.fingerprint != wanted.fingerprint:
        raise key_reused()
    if record.refused is not None:
        raise _refusal(record.refused, wanted, found)
    receipt = None if record.made is None else Receipt(record.made, None)
    if found is not None and sequence_of(found) == record.sequence:  # etag_if_same
        receipt = Receipt(record.made or found.aggregate, found.etag)
    return ChangeAnswer(record.sequence, receipt, replayed=True)


def _refusal(status: int, wanted: ChangeRequest[A], found: Versioned[A] | None) -> Exception:
    """Returns the first refusal, with the aggregate's text if it still refuses: no text is stored."""
    try:
        if found is not None:
            wanted.change(found.aggregate)
    except Exception as error:  # noqa: BLE001 - an aggregate may refuse with any error
        if wanted.request.status_of(error) == status:
            return error
    return RefusedBefore(
        "the request was refused when it came first, and is not carried out now: read again, and send a new request "
        "with a new Idempotency-Key",
        status=status,
    )


def sequence_of(found: Versioned[Any] | None) -> int:
    """Returns the last sequence of an aggregate as it was read; 0: there is none."""
    return 0 if found is None else int(found.aggregate.state.last_sequence)


async def once(
    open_unit_of_work: Callable[[Origin], CosmosUnitOfWork],
    wanted: ChangeRequest[A],
    origin: Origin,
    *,
    attempts: int,
) -> ChangeAnswer[A]:
    """Carries out a request, or returns the first answer to its key."""
    began = monotonic()
    until, is_claimed = began + LONGEST_REQUEST_SECONDS, False
    if isinstance(wanted, WantedNew):
        until, is_claimed = wanted.claim.usable_until, not wanted.claim.is_new
    for attempt in range(attempts):
        if attempt > 1 and not await back_off(attempt, began + RETRY_SECONDS):
            break
        consistent = attempt > 0 or is_claimed
        async with open_unit_of_work(origin) as work:
            found = await _find(work, wanted, newest=consistent)
            # state_then_record, record_before_no
            if consistent and (record := await _find_record(work, wanted)):
                return first_answer(record, wanted, found)
            if answered := await _store_change(work, wanted, found, until, consistent=consistent):
                return answered
    async with open_unit_of_work(origin) as work:
        # A duplicate may have won the last race (loser_answers).
        found = await _find(work, wanted, newest=True)
        if record := await _find_record(work, wanted):
            return first_answer(record, wanted, found)
    raise wanted.lost()


def track_new(work: CosmosUnitOfWork, new: Aggregate[Any], fingerprint: str, lifetime_seconds: int) -> None:
    """Tracks a new aggregate, and its record in the same transaction (rule ``one_batch``)."""
    work.add(new)
    work.add_record(KeyRecord(new.aggregate_id, fingerprint, made=new, lifetime_seconds=lifetime_seconds))


async def _find(work: CosmosUnitOfWork, wanted: ChangeRequest[A], *, newest: bool) -> Versioned[A] | None:
    if isinstance(wanted, WantedNew) and not newest:
        return None  # the claim is new, so nothing has its id yet
    try:
        return await work.get(
            wanted.kind, wanted.aggregate_id, partition_key=wanted.partition_key, newest=newest
        )
    except AggregateNotFound:
        return None


async def _find_record(work: CosmosUnitOfWork, wanted: ChangeRequest[A]) -> KeyRecord[A] | None:
    return await work.find_record(wanted.kind, wanted.record, wanted.partition_key)


async def _store_change(
    work: CosmosUnitOfWork,
    wanted: ChangeRequest[A],
    found: Versioned[A] | None,
    until: float,
    *,
    consistent: bool,
) -> ChangeAnswer[A] | None:
    """Stores the change; None: decide again with a consistent read (``newest_for_a_no``, ``decide_anew``)."""
    if isinstance(wanted, WantedNew):
        if found is not None:
            raise wanted.lost()
        track_new(work, wanted.new, wanted.fingerprint, wanted.claim.lifetime_seconds)
        return await _commit(work, wanted.new, until, consistent=consistent)
    try:
        changes = decide(wanted, found)
    except Exception as no:
        if consistent and await _is_final(work, wanted, found, no, until):
            raise
        return None
    assert found is not None, "else it was not found"
    if changes is not None:
        work.add_record(wanted.answer(changes.state.last_sequence))
        return await _commit(work, found.aggregate, until, consistent=consistent)
    if consistent and await _record_alone(work, wanted, found, until):
        return ChangeAnswer(sequence_of(found), Receipt(found.aggregate, found.etag))
    return None


async def _commit(
    work: CosmosUnitOfWork, aggregate: A, until: float, *, consistent: bool
) -> ChangeAnswer[A] | None:
    try:
        receipt = (await work.commit(until=until)).receipt(aggregate)
        return ChangeAnswer(receipt.aggregate.state.last_sequence, receipt)
    except PreconditionFailed:
        return None
    except (ChangeTooLarge, Unpublishable):  # a newer state may be smaller
        if consistent:
            raise
        return None


async def _is_final(
    work: CosmosUnitOfWork, wanted: ChangeRequest[A], found: Versioned[A] | None, no: Exception, until: float
) -> bool:
    """Whether the error can be returned: an aggregate's refusal only once it is recorded (``refusal_recorded``).

    Raises Unavailable after ``until``: the record of a duplicate may have expired (``deadline``).
    """
    status = None if isinstance(no, OutboxError) else wanted.request.status_of(no)
    if status is not None:
        return await _record_alone(work, wanted, found, until, refused=status)
    if monotonic() > until:
        raise Unavailable("the request took too long: send it again")
    return True  # unused_by_412


async def _record_alone(
    work: CosmosUnitOfWork,
    wanted: ChangeRequest[A],
    found: Versioned[A] | None,
    until: float,
    *,
    refused: int | None = None,
) -> bool:
    """Stores the record of a request that changed nothing. Returns False if there is one already."""
    try:
        await work.create_record(wanted.answer(sequence_of(found), refused), wanted.partition_key, until)
    except PreconditionFailed:
        return False
    return True

"""A creation that is repeated with the same idempotency key happens once, and each repetition gets the first answer.

First the key is claimed, then one transaction stores the aggregate under the claim's id, its events and a record of the
request. A process may die at any point: a claim without its transaction leaves the id to the repetition, and the
transaction can be committed only once, since its id is taken afterwards.
``docs/internals/decisions/0008-idempotency-key.md`` lists the rules by name and what happens without each;
``tests/models/claims.py`` searches for it.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from cosmos_outbox.kernel.clock import new_id
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.claims import Claim, Claims
from cosmos_outbox.outbox.errors import (
    AggregateNotFound,
    AnswerErased,
    IdempotencyKeyReused,
    PreconditionFailed,
    Unavailable,
)
from cosmos_outbox.outbox.unit_of_work import Origin, Receipt, RequestRecord, UnitOfWork, UnitOfWorkFactory

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

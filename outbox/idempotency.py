"""A creation that is repeated with the same idempotency key happens once: the key decides the new aggregate's id.

The record of the request is stored in one transaction with the aggregate, and so in the aggregate's partition. The id
is derived from the key, so that a repetition finds that partition. When a record has expired and its aggregate still
exists, the key moves on to the next generation: the next id.
"""

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID, uuid5

from outbox.aggregate import Aggregate
from outbox.errors import AggregateNotFound, IdempotencyKeyReused, PreconditionFailed, RequestInProgress
from outbox.unit_of_work import Origin, Receipt, RequestRecord, UnitOfWork, UnitOfWorkFactory

A = TypeVar("A", bound=Aggregate[Any])

NAMESPACE = UUID("5b1d2f0e-7c1a-4b52-9d0c-6f6d0c0a7a11")
"""Never change this value: a request that is repeated afterwards would create a second aggregate."""

GENERATIONS = 8
"""How many aggregates one key can create, each after the record of the one before has expired."""


def id_from_key(key: str, generation: int) -> UUID:
    """The id of the aggregate that a key's request creates."""
    return uuid5(NAMESPACE, f"{generation}:{key}")


def digest(text: str) -> str:
    """A text's SHA-256 digest, kept in place of the text: keys and requests may hold personal data."""
    return hashlib.sha256(text.encode()).hexdigest()


async def create_once(
    open_unit_of_work: UnitOfWorkFactory, make: Callable[[UUID], A], request: str, origin: Origin, key: str
) -> tuple[Receipt[A], bool]:
    """Store the aggregate that ``make`` makes with the given id, unless a request with this key came before.

    ``request`` is the caller's request as text: the same key with another request is refused.

    Returns:
        The receipt, and whether the receipt is of an earlier request.

    Raises:
        IdempotencyKeyReused: the key was used before, with another request.
        RequestInProgress: the same request was answered while this request was under way.
    """
    key_digest, fingerprint = digest(key), digest(request)
    async with open_unit_of_work(origin) as work:
        for generation in range(GENERATIONS):
            aggregate = make(id_from_key(key, generation))
            if record := await work.requests.get(aggregate, key_digest):
                return await _replayed(work, _same_request(record, fingerprint)), True
            work.add(aggregate)
            work.requests.add(RequestRecord(key_digest, fingerprint, aggregate))
            try:
                return (await work.commit()).receipt(aggregate), False
            except PreconditionFailed:
                if record := await work.requests.get(aggregate, key_digest):
                    _same_request(record, fingerprint)
                    raise RequestInProgress(
                        "the same request was just answered: send the request again"
                    ) from None
    raise IdempotencyKeyReused("the Idempotency-Key was used too often: use a new key for a new request")


async def _replayed(work: UnitOfWork, record: RequestRecord[A]) -> Receipt[A]:
    """The first answer again, with the ETag if the aggregate is still at the version of that answer."""
    first = record.aggregate
    try:
        stored = await work.get(type(first), first.aggregate_id, partition_key=first.partition_key)
    except AggregateNotFound:
        return Receipt(first, None)
    unchanged = stored.aggregate.state.last_sequence == first.state.last_sequence
    return Receipt(first, stored.etag if unchanged else None)


def _same_request(record: RequestRecord[A], fingerprint: str) -> RequestRecord[A]:
    if record.fingerprint != fingerprint:
        raise IdempotencyKeyReused(
            "the Idempotency-Key was used before with another body: use a new key for a new request"
        )
    return record

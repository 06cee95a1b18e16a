"""A creation that is repeated with its key happens once: the key decides the id of the aggregate that is created.

The record of the request has to be in the aggregate's own partition, to be stored in one transaction with it; with the
id derived from the key, a repetition knows where to look. A key whose record has expired while its aggregate is still
there moves on to the next generation.
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
"""Never change it: repetitions of requests under way would create second aggregates."""

GENERATIONS = 8
"""How many aggregates one key can create, one after the expiry of the other."""


def id_from_key(key: str, generation: int) -> UUID:
    """The id of the aggregate that a key's request creates."""
    return uuid5(NAMESPACE, f"{generation}:{key}")


def digest(text: str) -> str:
    """Tells texts apart without keeping them: keys and requests may hold personal data."""
    return hashlib.sha256(text.encode()).hexdigest()


async def create_once(
    open_unit_of_work: UnitOfWorkFactory, make: Callable[[UUID], A], request: str, origin: Origin, key: str
) -> tuple[Receipt[A], bool]:
    """Store the aggregate that ``make`` makes with the id given, unless a request with this key came before.

    ``request`` is what the caller asked for, as text: the same key with another request is refused.

    Returns:
        The receipt, and whether it is of an earlier request.

    Raises:
        IdempotencyKeyReused: the key came before, with another request.
        RequestInProgress: the same request was answered while this one was under way.
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
                    raise RequestInProgress("the same request was just answered: send it again") from None
    raise IdempotencyKeyReused("the key was used too often: take a new one for a new request")


async def _replayed(work: UnitOfWork, record: RequestRecord[A]) -> Receipt[A]:
    """The first answer again, with its ETag if the aggregate is still at that version."""
    first = record.aggregate
    try:
        stored = await work.get(type(first), first.aggregate_id, partition_key=first.partition_key)
    except AggregateNotFound:
        return Receipt(first, None)
    unchanged = stored.aggregate.state.last_sequence == first.state.last_sequence
    return Receipt(first, stored.etag if unchanged else None)


def _same_request(record: RequestRecord[A], fingerprint: str) -> RequestRecord[A]:
    if record.fingerprint != fingerprint:
        raise IdempotencyKeyReused("the Idempotency-Key came before with another body: take a new key")
    return record

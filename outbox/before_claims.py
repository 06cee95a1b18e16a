"""Requests that were answered by a version without claims get the same answer from this one. To be deleted.

Until 2026-11-22 a key decided the id of its aggregate, and nothing told callers apart. A record of that kind lives for
``IDEMPOTENCY_TTL_SECONDS``, 24 hours by default, after the last instance of an older version has stopped. The look for
it costs each request with a key eight writes that are refused, so ``IDEMPOTENCY_OLD_RECORDS`` turns it on for that
time. The module goes, with that setting and the arguments that only it needs, when nobody upgrades from such a version
any more.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID, uuid5

from outbox.aggregate import Aggregate
from outbox.event import WireModel
from outbox.idempotency import digest, key_reused, replayed
from outbox.unit_of_work import Origin, Receipt, UnitOfWorkFactory

A = TypeVar("A", bound=Aggregate[Any])

NAMESPACE = UUID("5b1d2f0e-7c1a-4b52-9d0c-6f6d0c0a7a11")
GENERATIONS = 8
"""How many ids a key could have, each after the record of the one before had expired."""


async def answered_before_claims(
    open_unit_of_work: UnitOfWorkFactory,
    make: Callable[[UUID], A],
    key: str,
    details: WireModel,
    origin: Origin,
) -> Receipt[A] | None:
    """The answer that an older version gave to this request; None when there is proven to be none.

    ``details``: the body as the service understands it, which is what older versions digested.

    Raises:
        IdempotencyKeyReused: an older version answered another request with this key.
        Throttled, Unavailable: the store could not answer.
    """
    async with open_unit_of_work(origin) as work:
        records = await asyncio.gather(
            *(
                work.requests.get(make(id_before_claims(key, generation)), digest(key), newest=True)
                for generation in range(GENERATIONS)
            )
        )
        record = next((record for record in records if record is not None), None)
        if record is None:
            return None
        if record.fingerprint != digest(details.model_dump_json(by_alias=True)):
            raise key_reused()
        return await replayed(work, record)


def id_before_claims(key: str, generation: int) -> UUID:
    """The id of the aggregate that a key's request created."""
    return uuid5(NAMESPACE, f"{generation}:{key}")

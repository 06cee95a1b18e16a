"""Never last-write-wins: a change is stored only over the version that it was applied to.

When no version is pinned, a lost race is run again: each attempt reads the newest version and applies the change to it.
A caller who pins a version (If-Match) gets no second attempt. The use cases of all aggregates use this module.
"""

import contextlib
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.errors import AggregateNotFound, ConcurrentChange, OutboxError, PreconditionFailed
from cosmos_outbox.outbox.idempotency import (
    RETRY_SECONDS,
    ChangeAnswer,
    Claims,
    KeyedRequest,
    Pinned,
    Wanted,
    back_off,
    change_once,
    create_once,
)
from cosmos_outbox.outbox.selection import ALL, Selection
from cosmos_outbox.outbox.unit_of_work import (
    ETag,
    Origin,
    Page,
    Receipt,
    UnitOfWork,
    UnitOfWorkFactory,
    Versioned,
)

A = TypeVar("A", bound=Aggregate[Any])

ATTEMPTS = 8
"""How many times a change is applied, at most, before the caller gets ConcurrentChange."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Aggregates:
    """Creates, reads and changes aggregates of any type. The object has no state: it serves all requests at once.

    Every call raises Throttled or Unavailable when the store could not answer.
    """

    open_unit_of_work: UnitOfWorkFactory
    claims: Claims

    async def create(self, aggregate: A, origin: Origin) -> Receipt[A]:
        """Store a new aggregate with its events.

        Raises:
            PreconditionFailed: an aggregate has this id, or had it and was deleted a while ago. For ids that are
                chosen; a UUID that was made for this aggregate is not taken.
            ChangeTooLarge: the aggregate does not fit one transaction.
        """
        async with self.open_unit_of_work(origin) as work:
            work.add(aggregate)
            try:
                return _logged("created", (await work.commit()).receipt(aggregate))
            except PreconditionFailed:
                raise PreconditionFailed(
                    f"the id of {aggregate.key} is taken, or was until lately: an id is used once. Choose another one"
                ) from None

    async def create_once(
        self, make: Callable[[UUID], A], request: KeyedRequest, origin: Origin
    ) -> tuple[Receipt[A], bool]:
        """As :meth:`create`, but a repetition with the same key gets the first answer.

        ``make`` makes the aggregate, which is known by a UUID.
        Returns and raises as :func:`cosmos_outbox.outbox.idempotency.create_once` does.
        """
        receipt, replayed = await create_once(self.open_unit_of_work, self.claims, make, request, origin)
        return _logged("created", receipt), replayed

    async def read(
        self,
        kind: type[A],
        aggregate_id: str,
        origin: Origin,
        *,
        partition_key: str | None = None,
        newest: bool = False,
    ) -> Versioned[A]:
        """An aggregate and its version; ``newest``: no older than this call. Raises AggregateNotFound."""
        async with self.open_unit_of_work(origin) as work:
            return await work.get(kind, aggregate_id, partition_key=partition_key, newest=newest)

    async def page(
        self, kind: type[A], size: int, token: str | None, origin: Origin, selection: Selection = ALL
    ) -> Page[A]:
        """A page of aggregates that are not deleted. Raises UnknownContinuation."""
        async with self.open_unit_of_work(origin) as work:
            return await work.page(kind, size, token, selection)

    async def change(  # noqa: PLR0913 - the last two are keywords, and seldom given
        self,
        kind: type[A],
        aggregate_id: str,
        change: Callable[[A], None],
        origin: Origin,
        *,
        if_match: Collection[ETag] = (),
        refuse: Callable[[Versioned[A]], bool] | None = None,
        partition_key: str | None = None,
    ) -> Receipt[A]:
        """Apply ``change`` and store the new state with its events, all in one transaction.

        ``change`` may be called several times, each time with the aggregate as it is then. An error of its own ends the
        call when the aggregate was at its newest state, and nothing is stored.

        Raises:
            AggregateNotFound: no aggregate of this type has the id, or the aggregate was deleted.
            PreconditionFailed: the aggregate is at none of the versions in ``if_match``, or ``refuse`` is true of it.
            ConcurrentChange: other writers won the race each time.
            ChangeTooLarge: the change does not fit one transaction.
        """
        newest, until = False, monotonic() + RETRY_SECONDS
        for attempt in range(ATTEMPTS):
            if attempt > 1 and not await back_off(attempt, until):
                break
            async with self.open_unit_of_work(origin) as work:
                found = await _read_for_change(
                    work, kind, aggregate_id, partition_key, pinned=Pinned(if_match, refuse), newest=newest
                )
                try:
                    change(found.aggregate)
                    receipt = (await work.commit()).receipt(found.aggregate)
                except PreconditionFailed:
                    if if_match:
                        raise
                    continue
                except OutboxError:
                    raise
                except Exception:  # the aggregate refuses the change, perhaps by an old state
                    if newest:
                        raise
                    newest = True
                    continue
            if receipt.events or newest:
                return _logged("changed", receipt)
            newest = True  # what is no change to an old state may be one to the newest
        raise ConcurrentChange(
            f"other writers changed {kind.aggregate_type} {aggregate_id} at each attempt: try again"
        )

    async def change_once(  # noqa: PLR0913 - as change, and the request
        self,
        kind: type[A],
        aggregate_id: str,
        change: Callable[[A], None],
        request: KeyedRequest,
        origin: Origin,
        *,
        if_match: Collection[ETag] = (),
        refuse: Callable[[Versioned[A]], bool] | None = None,
        partition_key: str | None = None,
    ) -> ChangeAnswer[A]:
        """As :meth:`change`, but a repetition with the same key gets the first answer.

        Raises as :func:`cosmos_outbox.outbox.idempotency.change_once` does.
        """
        wanted = Wanted(
            kind, aggregate_id, partition_key or aggregate_id, change, request, Pinned(if_match, refuse)
        )
        answered = await change_once(self.open_unit_of_work, wanted, origin, attempts=ATTEMPTS)
        if answered.receipt is not None:
            _logged("changed", answered.receipt)
        return answered


async def _read_for_change(  # noqa: PLR0913 - the address of the aggregate, and under which conditions
    work: UnitOfWork,
    kind: type[A],
    aggregate_id: str,
    partition_key: str | None,
    *,
    pinned: Pinned,
    newest: bool,
) -> Versioned[A]:
    """The aggregate at an allowed version. It is refused on the newest state alone: a first read may be an old one.

    Raises:
        AggregateNotFound: there is none, or it was deleted.
        PreconditionFailed: the aggregate is at a version that is not allowed.
    """
    if not newest:
        with contextlib.suppress(AggregateNotFound):
            found = await work.get(kind, aggregate_id, partition_key=partition_key)
            if pinned.allows(found):
                return found
    found = await work.get(kind, aggregate_id, partition_key=partition_key, newest=True)
    pinned.check(found)
    return found


def _logged(what: str, receipt: Receipt[A]) -> Receipt[A]:
    """Told once: the receipt of a repetition has no events."""
    if receipt.events:
        aggregate = receipt.aggregate
        what = "deleted" if aggregate.deleted else what
        sequence: int = aggregate.state.last_sequence
        _log.info("%s %s, sequence %d, %d event(s)", what, aggregate.key, sequence, receipt.events)
    return receipt

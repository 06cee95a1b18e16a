"""Creates, reads and changes aggregates: stored with their events or not at all, and only over the version read.

A process that dies at any point has stored all or nothing, and a client that asks again finds which of the two.

If no version is pinned, a lost race is retried: each attempt reads the newest version and applies the change to it. A
caller that pins a version (If-Match) gets no second attempt. The use cases of all aggregates use this module.

A request with an idempotency key is executed once; :mod:`cosmos_outbox.cosmos.aggregates.idempotency` has the rules.
Whether its record is there says the answer to a write, after the aggregate was read (``state_then_record``): no reader
that lags is asked.
"""

import contextlib
import logging
from collections.abc import Callable, Collection
from typing import Any, TypeVar
from uuid import UUID

from cosmos_outbox.cosmos.aggregates.idempotency import (
    ChangeRequest,
    CosmosClaims,
    WantedNew,
    key_reused,
    once,
    track_new,
)
from cosmos_outbox.cosmos.aggregates.unit_of_work import RETRY_SECONDS, CosmosUnitOfWork, back_off
from cosmos_outbox.kernel.clock import monotonic, new_id
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate import (
    Aggregate,
    ChangeAnswer,
    ETag,
    KeyedRequest,
    Origin,
    Page,
    Precondition,
    Receipt,
    Versioned,
    digest,
)
from cosmos_outbox.outbox.errors import (
    AggregateNotFound,
    AlreadyExists,
    ConcurrentChange,
    OutboxError,
    PreconditionFailed,
)
from cosmos_outbox.outbox.selection import ALL, Selection

A = TypeVar("A", bound=Aggregate[Any])

ATTEMPTS = 8
"""The maximum number of attempts at a change before the caller gets ConcurrentChange."""

_ATTEMPTS_TO_CREATE = 2
"""The number of attempts at a creation: a second refusal proves that a duplicate has stored the record."""


_LONGEST_SECONDS = 2**31 - 1
"""The lifetime with the most digits: a record that is checked with it is at least as large as the stored one."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Aggregates:
    """Creates, reads and changes aggregates of any type. The object is stateless and serves concurrent requests.

    Every call raises Throttled or Unavailable if the store did not answer.
    """

    open_unit_of_work: Callable[[Origin], CosmosUnitOfWork]
    claims: CosmosClaims

    async def create(self, aggregate: A, origin: Origin) -> Receipt[A]:
        """Stores a new aggregate with its events.

        Raises:
            AlreadyExists: an aggregate has this id, or had it and was deleted lately. Only with ids that the caller
                chooses: a new UUID is never taken.
            ChangeTooLarge: the aggregate does not fit one transaction.
        """
        async with self.open_unit_of_work(origin) as work:
            work.add(aggregate)
            try:
                return _logged("created", (await work.commit()).receipt(aggregate))
            except PreconditionFailed:
                raise AlreadyExists(
                    f"the id of {aggregate.key} is taken, or was until lately: an id is used once. Choose another one"
                ) from None

    async def create_once(
        self, make: Callable[[UUID], A], request: KeyedRequest, origin: Origin
    ) -> tuple[Receipt[A], bool]:
        """Stores the aggregate that ``make`` returns for the given id, unless a request with this key came before.

        ``make`` is called more than once and must return equal aggregates but for the id: the first is only checked.

        Returns:
            The receipt, and whether it is that of an earlier request.

        Raises:
            IdempotencyKeyReused: the key was used before, with another request.
            AnswerErased: the aggregate was deleted, and the first answer with it.
            ChangeTooLarge, Unpublishable: nothing is stored, and the key is not used.
            Throttled, Unavailable, OutcomeUnknown: a repetition returns the outcome.
        """
        tried = make(new_id())
        fingerprint = digest(f"{tried.aggregate_type} {request.fingerprint}")
        async with self.open_unit_of_work(origin) as work:
            # Rule checks_first: a refused request leaves its key unused.
            track_new(work, tried, fingerprint, _LONGEST_SECONDS)
            work.check()
        claim = await self.claims.claim(request.key_digest, fingerprint)
        if claim.fingerprint != fingerprint:
            raise key_reused()
        new = make(claim.aggregate_id)
        wanted = WantedNew(
            type(new), new.aggregate_id, new.partition_key, lambda _: None, request, new=new, claim=claim
        )
        answered = await once(self.open_unit_of_work, wanted, origin, attempts=_ATTEMPTS_TO_CREATE)
        assert answered.receipt is not None, "the record of a creation has the first answer"
        return _logged("created", answered.receipt), answered.replayed

    async def read(
        self,
        kind: type[A],
        aggregate_id: str,
        origin: Origin,
        *,
        partition_key: str | None = None,
        newest: bool = False,
    ) -> Versioned[A]:
        """Returns an aggregate and its version; ``newest``: by a consistent read. Raises AggregateNotFound."""
        async with self.open_unit_of_work(origin) as work:
            return await work.get(kind, aggregate_id, partition_key=partition_key, newest=newest)

    async def page(
        self, kind: type[A], size: int, token: str | None, origin: Origin, selection: Selection = ALL
    ) -> Page[A]:
        """Returns a page of aggregates that are not deleted. Raises UnknownContinuation."""
        async with self.open_unit_of_work(origin) as work:
            return await work.page(kind, size, token, selection)

    async def change(  # noqa: PLR0913 - the last three are keywords, mostly defaults
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
        """Applies ``change`` and stores the new state with its events in one transaction.

        ``change`` may be called several times, each time on the current aggregate. If it raises on the newest state,
        the error is passed on and nothing is stored.

        Raises:
            AggregateNotFound: no aggregate of this type has the id, or it was deleted.
            PreconditionFailed: the version is not in ``if_match``, or ``refuse`` returns True for it.
            ConcurrentChange: other writers won every race.
            ChangeTooLarge: the change does not fit one transaction.
        """
        newest, until = False, monotonic() + RETRY_SECONDS
        for attempt in range(ATTEMPTS):
            if attempt > 1 and not await back_off(attempt, until):
                break
            async with self.open_unit_of_work(origin) as work:
                found = await _read_for_change(
                    work,
                    kind,
                    aggregate_id,
                    partition_key,
                    pinned=Precondition(if_match, refuse),
                    newest=newest,
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
                except Exception:  # a refusal by the aggregate, perhaps because of an old state
                    if newest:
                        raise
                    newest = True
                    continue
            if receipt.events or newest:
                return _logged("changed", receipt)
            newest = True  # a change without effect on an old state may have one on the newest
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
        """As :meth:`change`, unless a request with this key came before: then it gets the first answer.

        Raises:
            IdempotencyKeyReused: the key was used before for this aggregate, with another request.
            RefusedBefore: the aggregate refused this request before, and would not now.
            AggregateNotFound, PreconditionFailed, ConcurrentChange, ChangeTooLarge, Unpublishable: nothing is stored,
                and the key is not used.
            Throttled, Unavailable, OutcomeUnknown: a repetition returns the outcome.
            Exception: the error that ``change`` raises on the newest state; a repetition gets it while that lasts.
        """
        wanted = ChangeRequest(
            kind, aggregate_id, partition_key or aggregate_id, change, request, Precondition(if_match, refuse)
        )
        answered = await once(self.open_unit_of_work, wanted, origin, attempts=ATTEMPTS)
        if answered.receipt is not None:
            _logged("changed", answered.receipt)
        return answered


async def _read_for_change(  # noqa: PLR0913 - the aggregate's address, and the conditions
    work: CosmosUnitOfWork,
    kind: type[A],
    aggregate_id: str,
    partition_key: str | None,
    *,
    pinned: Precondition,
    newest: bool,
) -> Versioned[A]:
    """Reads the aggregate at an allowed version. Only a consistent read can refuse: the first read may be old.

    Raises:
        AggregateNotFound: there is none, or it was deleted.
        PreconditionFailed: the version is not allowed.
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
    """Logs a stored change once: the receipt of a repetition has no events."""
    if receipt.events:
        aggregate = receipt.aggregate
        what = "deleted" if aggregate.deleted else what
        sequence: int = aggregate.state.last_sequence
        _log.info("%s %s, sequence %d, %d event(s)", what, aggregate.key, sequence, receipt.events)
    return receipt

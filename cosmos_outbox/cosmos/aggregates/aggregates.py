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
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

from cosmos_outbox.cosmos.aggregates.documents import (
    KeyRecord,
    aggregate_from_item,
    aggregate_item,
    check_id,
    erased_record_item,
    event_item,
    record_from_item,
    record_item,
    request_id,
)
from cosmos_outbox.cosmos.aggregates.idempotency import (
    ChangeRequest,
    CosmosClaims,
    WantedNew,
    decide,
    first_answer,
    key_reused,
    sequence_of,
)
from cosmos_outbox.cosmos.aggregates.listing import ListQuery
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write, reported
from cosmos_outbox.cosmos.store.partition_key import KEEP_FOR_EVER
from cosmos_outbox.cosmos.transaction import TAKEN, Batch, OnCommit, refused
from cosmos_outbox.kernel.clock import monotonic, new_id, randomness, sleep
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.lists import continuation
from cosmos_outbox.outbox.aggregate import (
    LONGEST_REQUEST_SECONDS,
    Aggregate,
    AggregateState,
    ChangeAnswer,
    Changes,
    Commit,
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
    ChangeTooLarge,
    ConcurrentChange,
    OutboxError,
    PreconditionFailed,
    Unavailable,
    Unpublishable,
)
from cosmos_outbox.outbox.selection import ALL, Selection
from cosmos_outbox.telemetry.tracing import LONGEST, committing

A = TypeVar("A", bound=Aggregate[Any])

ATTEMPTS = 8
"""The maximum number of attempts at a change before the caller gets ConcurrentChange."""

_ATTEMPTS_TO_CREATE = 2
"""The number of attempts at a creation: a second refusal proves that a duplicate has stored the record."""

RETRY_SECONDS = 5.0
"""The time from its start in which a change that loses its races is retried: its caller waits ten seconds."""

_LONGEST_SECONDS = 2**31 - 1
"""The lifetime with the most digits: a record that is checked with it is at least as large as the stored one."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lifetimes:
    """How many seconds after their last write documents expire."""

    events: int
    requests: int
    """Holds the reservations of idempotency keys, and the marks of answers that were erased."""
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


def batch_of(  # noqa: PLR0913, PLR0917 - a transaction's parts
    container: Container,
    lifetimes: Lifetimes,
    on_commit: OnCommit,
    changed: Sequence[Changed],
    origin: Origin,
    records: Sequence[Write] = (),
) -> Batch:
    """One transaction; ``records`` come first in it. The changed aggregates are the first of its documents.

    Raises:
        ValueError: one transaction cannot hold these aggregates, or one was stored by another program.
        ChangeTooLarge, Unpublishable: one transaction cannot hold the changes, or nobody could read them.
    """
    partition_key = _partition_key([each.aggregate for each in changed])
    events = [
        event_item(each.aggregate, event, origin, ttl=lifetimes.events)
        for each in changed
        for event in each.changes.events
    ]
    documents = [_document(each, lifetimes) for each in changed]
    documents += _erased_records(changed, lifetimes)
    return Batch(container, partition_key, documents, events, records, on_commit)


class CosmosUnitOfWork:
    """Stores the changes of its aggregates, with the events that they raise, together or not at all.

    All aggregates of a unit of work share one partition key, the scope of a transaction. One object serves one request.
    After its context, however that ended, the unit of work tracks nothing.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what the parts of it need
        self,
        container: Container,
        scope: str,
        origin: Origin,
        lifetimes: Lifetimes,
        on_commit: OnCommit | None = None,
        declared: Collection[str] | None = None,
    ) -> None:
        """``scope`` names the container in continuation tokens; ``declared``: the types of the service's aggregates.

        ``declared`` None: any can be stored.
        """
        self._container = container
        self._scope = scope
        self._origin = origin
        self._lifetimes = lifetimes
        self._on_commit = on_commit or OnCommit()
        self._declared = declared
        self._tracked: list[tuple[Aggregate[Any], ETag | None]] = []
        """With the version at which each was read; None: the aggregate is new."""
        self._records: list[KeyRecord[Any]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    def add(self, aggregate: Aggregate[Any]) -> None:
        """Tracks a new aggregate. Raises TypeError: the service does not declare its type."""
        if self._declared is not None and aggregate.aggregate_type not in self._declared:
            raise TypeError(
                f"the service declares no {type(aggregate).__name__}: add it to Service(aggregates=...), or its "
                "deadlines, read models and schemas would be missing"
            )
        self._tracked.append((aggregate, None))

    def add_record(self, record: KeyRecord[Any]) -> None:
        """Stores the record in the transaction of the commit, as its first operation, and only if there is none
        (``one_batch``, ``record_first``)."""
        self._records.append(record)

    async def get(
        self, kind: type[A], aggregate_id: str, *, partition_key: str | None = None, newest: bool = False
    ) -> Versioned[A]:
        """Reads and tracks an aggregate. Without ``partition_key`` the id is the partition key.

        A read may be stale: it proves only that the aggregate existed at some time, at some version. With ``newest``
        the read is consistent: it includes every write that was committed before the call, and proves absence, at the
        cost of a second round trip.

        Raises:
            AggregateNotFound: no aggregate of this type has the id, or the aggregate was deleted.
            Throttled, Unavailable: the store did not answer.
        """
        with reported():
            item = await self._container.read(aggregate_id, partition_key or aggregate_id, consistent=newest)
        found = None
        if item is not None and item.get("type") == kind.aggregate_type:
            found = aggregate_from_item(kind, item)
        if found is None or found.aggregate.deleted:
            raise AggregateNotFound(f"there is no {kind.aggregate_type} {aggregate_id}")
        self._tracked.append((found.aggregate, found.etag))
        return found

    async def find_record(self, kind: type[A], name: str, partition_key: str) -> KeyRecord[A] | None:
        """Returns a request's record, with a consistent read: None is proof. Raises Throttled, Unavailable."""
        with reported():
            item = await self._container.read(request_id(name), partition_key, consistent=True)
        return None if item is None else record_from_item(kind, item)

    async def create_record(self, record: KeyRecord[Any], partition_key: str, until: float) -> None:
        """Stores only a record. ``until``: a time of the monotonic clock; no attempt is made that could end later.

        Raises:
            PreconditionFailed: it exists already, perhaps by an earlier attempt.
            Throttled, Unavailable: the store did not answer; nothing is stored.
            OutcomeUnknown: the store's answer was lost.
        """
        batch = Batch(self._container, partition_key, [], records=[self._write(record, partition_key)])
        await _store(batch, until, "the record of the request is there: it says what became of it")

    async def page(
        self, kind: type[A], size: int, continuation_token: str | None, selection: Selection = ALL
    ) -> Page[A]:
        """Returns at most ``size`` aggregates that are not deleted, in the order of the selection; not tracked.

        Raises:
            UnknownContinuation: the token was not issued by this service for this list.
            Throttled, Unavailable: the store did not answer.
        """
        scope = f"{self._scope}/{ListQuery(kind, selection, None).scope}"
        token = continuation.unseal(scope, continuation_token) if continuation_token else None
        query = ListQuery(kind, selection, token)
        if selection.ids is not None and not selection.ids:
            return Page([], None)
        with reported():
            items = await self._container.first(query.text(size + 1), query.parameters, size + 1)
        found = [aggregate_from_item(kind, item) for item in items[:size]]
        more = continuation.seal(scope, query.position(items[size - 1])) if len(items) > size else None
        return Page([each.aggregate for each in found], more, [each.etag for each in found])

    def check(self) -> None:
        """Raises what :meth:`commit` would raise without the store: ChangeTooLarge, Unpublishable, ValueError.

        Nothing is stored, and everything stays tracked.
        """
        if changed := _changed(self._tracked):
            # The commit may have a trace where the request had none.
            longest = replace(self._origin, traceparent=self._origin.traceparent or LONGEST)
            self._batch(changed, longest)

    async def commit(self, *, until: float | None = None) -> Commit:
        """Stores every tracked change and its events in one transaction.

        ``until``: a time of the monotonic clock. No attempt is made that could end later.

        Raises:
            PreconditionFailed: another writer has changed or deleted an aggregate since it was read; nothing is stored.
            ChangeTooLarge: the changes do not fit one transaction; nothing is stored.
            Unpublishable: an event or a state holds values that JSON parsers read differently; nothing is stored.
            Throttled, Unavailable: the store did not answer; nothing is stored.
            OutcomeUnknown: the store's answer was lost: everything is stored, or nothing.
            ValueError: nothing is tracked, or aggregates of two partitions are changed: a bug of the caller.
        """
        try:
            return await self._commit([*self._tracked], until)
        finally:
            self._clear()

    def _clear(self) -> None:
        self._tracked.clear()
        self._records.clear()

    async def _commit(
        self, tracked: Sequence[tuple[Aggregate[Any], ETag | None]], until: float | None
    ) -> Commit:
        if not tracked:
            raise ValueError("nothing is tracked: add or get an aggregate first")
        receipts = {aggregate.key: Receipt(aggregate, etag) for aggregate, etag in tracked}
        if changed := _changed(tracked):
            with committing(self._origin) as origin:
                batch = self._batch(changed, origin)
                etags = await _store(
                    batch, until, "another writer was faster: read again, then repeat the change"
                )
            receipts |= {
                each.aggregate.key: each.receipt(etag)
                for each, etag in zip(changed, etags[: len(changed)], strict=True)
            }
        return Commit([*receipts.values()])

    def _batch(self, changed: Sequence[Changed], origin: Origin) -> Batch:
        partition_key = changed[0].aggregate.partition_key
        stored = {each.aggregate.key: each.receipt(None).aggregate for each in changed}
        records = [
            self._write(
                each if each.made is None else replace(each, made=stored[each.made.key]), partition_key
            )
            for each in self._records
        ]
        return batch_of(self._container, self._lifetimes, self._on_commit, changed, origin, records)

    def _write(self, record: KeyRecord[Any], partition_key: str) -> Write:
        """The creation of a record, alone or in a transaction."""
        lifetime = record.lifetime_seconds or self._lifetimes.requests
        return Write.create(record_item(record, partition_key, ttl=lifetime))


def _changed(tracked: Sequence[tuple[Aggregate[Any], ETag | None]]) -> list[Changed]:
    changes = ((aggregate, etag, aggregate.changes()) for aggregate, etag in tracked)
    return [Changed(aggregate, etag, made) for aggregate, etag, made in changes if made is not None]


async def _store(batch: Batch, until: float | None, taken: str) -> Sequence[ETag | None]:
    """As :meth:`Batch.store`. Raises PreconditionFailed with this text where another writer was faster."""
    try:
        return await batch.store(until)
    except StoreFailed as error:
        if error.failure.kind in TAKEN:
            raise PreconditionFailed(taken) from error
        raise refused(error.failure) from error


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
        if "last_sequence" not in changed.aggregate.state.model_fields_set:
            raise ValueError(
                f"{changed.aggregate.key} is stored without lastSequence, so its next event would be numbered 1 again: "
                "stop the other program that writes this container, and mend the document as "
                "docs/operate/recipes.md says, under Repairing a document"
            )
        return Write.replace(item, changed.etag)
    check_id(changed.aggregate)  # a stored one is not locked by a rule that was made later
    return Write.create(item)


def _erased_records(changed: Sequence[Changed], lifetimes: Lifetimes) -> list[Write]:
    """The records that replace those of deleted aggregates.

    Rule erased_not_removed: whether there is such a record need not be known, so that no read can be too old.
    Records of reactions stay, so that no message makes the aggregate anew (``erased_keeps_records``).
    """
    deleted = [each.aggregate for each in changed if each.aggregate.deleted]
    return [Write.upsert(erased_record_item(each, ttl=lifetimes.requests)) for each in deleted]


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
            _track_new(work, tried, fingerprint, _LONGEST_SECONDS)
            work.check()
        claim = await self.claims.claim(request.key_digest, fingerprint)
        if claim.fingerprint != fingerprint:
            raise key_reused()
        new = make(claim.aggregate_id)
        wanted = WantedNew(
            type(new), new.aggregate_id, new.partition_key, lambda _: None, request, new=new, claim=claim
        )
        answered = await self._once(wanted, origin, attempts=_ATTEMPTS_TO_CREATE)
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
            if attempt > 1 and not await _back_off(attempt, until):
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
        answered = await self._once(wanted, origin, attempts=ATTEMPTS)
        if answered.receipt is not None:
            _logged("changed", answered.receipt)
        return answered

    async def _once(self, wanted: ChangeRequest[A], origin: Origin, *, attempts: int) -> ChangeAnswer[A]:
        began = monotonic()
        until, is_claimed = began + LONGEST_REQUEST_SECONDS, False
        if isinstance(wanted, WantedNew):
            until, is_claimed = wanted.claim.usable_until, not wanted.claim.is_new
        for attempt in range(attempts):
            if attempt > 1 and not await _back_off(attempt, began + RETRY_SECONDS):
                break
            consistent = attempt > 0 or is_claimed
            async with self.open_unit_of_work(origin) as work:
                found = await _find(work, wanted, newest=consistent)
                # state_then_record, record_before_no
                if consistent and (record := await _find_record(work, wanted)):
                    return first_answer(record, wanted, found)
                if answered := await _store_change(work, wanted, found, until, consistent=consistent):
                    return answered
        async with self.open_unit_of_work(origin) as work:
            # A duplicate may have won the last race (loser_answers).
            found = await _find(work, wanted, newest=True)
            if record := await _find_record(work, wanted):
                return first_answer(record, wanted, found)
        raise wanted.lost()


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


async def _back_off(attempt: int, until: float) -> bool:
    """Pauses before another attempt, for up to a second. Returns False if it would begin after ``until``.

    The pause is random, so that writers that lost a race together do not collide again in the next one.
    """
    await sleep(randomness().uniform(0.0, min(1.0, 0.05 * 2**attempt)))
    return monotonic() <= until


def _track_new(work: CosmosUnitOfWork, new: Aggregate[Any], fingerprint: str, lifetime_seconds: int) -> None:
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
        _track_new(work, wanted.new, wanted.fingerprint, wanted.claim.lifetime_seconds)
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

"""Applies a message to each of its targets once, however often it is delivered and however many calls handle it.

Record, cursor, target and events are one transaction of the target's partition (``one_batch``). Its first operation
creates the record (``created_only``, ``record_first``): a record proves that the message has an outcome, and holds it,
so a lost answer to the transaction does no harm. Any other refusal means that the target was changed
(``at_its_version``): it is read again, consistently, and decided anew (``decide_anew``). A message is done after each
of its targets has an outcome (``complete_last``, ``complete_after_all``).

A record lives for a limited time, so an older message is never applied (``too_old``), and nothing is written later
than the longest call after the age was checked (``deadline``). Clocks may be wrong by half of ``MARGIN``: a message
from further in the future waits, and messages are too old ``MARGIN`` before their record expires.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from cosmos_outbox.cosmos.aggregates.documents import (
    REACTION_CURSOR_TYPE,
    REACTION_TYPE,
    aggregate_from_item,
    request_id,
)
from cosmos_outbox.cosmos.aggregates.unit_of_work import Changed, Lifetimes, batch_of
from cosmos_outbox.cosmos.inbox.entries import store_away
from cosmos_outbox.cosmos.inbox.reaction_decision import (
    Cursor,
    InOrder,
    React,
    ReactionOutcome,
    ReactionRecord,
    SeenTarget,
    TargetRef,
    ToWrite,
    decide,
    discard,
)
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write, reported
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import KEEP_FOR_EVER, Item
from cosmos_outbox.cosmos.transaction import TAKEN, Batch, OnCommit
from cosmos_outbox.inbox import telemetry
from cosmos_outbox.inbox.errors import (
    AlreadyProcessed,
    ConcurrentUpdate,
    EntryChanged,
    NotApplied,
    ReactionRefused,
    RecordChanged,
    StoreUnavailable,
    Unstorable,
)
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.inbox.receiver import LONGEST_CALL_SECONDS, MARGIN
from cosmos_outbox.kernel.clock import monotonic, utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate import Aggregate, Origin
from cosmos_outbox.outbox.errors import ChangeTooLarge, Unavailable, Unpublishable
from cosmos_outbox.telemetry.tracing import committing

A = TypeVar("A", bound=Aggregate[Any])

ATTEMPTS = 5
"""The number of attempts on a target that keeps changing, before ConcurrentUpdate is raised."""

MOST_TARGETS = 100
"""The most targets of one message: its call must end while its session is held."""

Named = str | Sequence[str] | Mapping[str, str] | None
"""The ids of targets, or each id with its partition key; by default the id is the partition key."""

Targets = Callable[[Event], Named]
"""Returns the targets of a message, the same each time; None: the message is not for this reaction."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CosmosReactions(Generic[A]):
    """Stores the targets and the records of one reaction. Every call raises StoreUnavailable if it is not answered.

    A transaction has the message's record first, its cursor, the target and its events. So a refusal of the first
    operation means that the message has an outcome, by this call or by another one, and a refusal of a later one that
    it had none then (``record_first``). The cursor changes at its version (``same_transaction``). The transaction is
    sent again unchanged while its answer is lost: the store commits it once.
    """

    container: Container
    kind: type[A]
    name: str
    """A constant of the code, since it is part of each record's id."""
    order: InOrder
    lifetimes: Lifetimes
    """The lifetimes, including that of the records."""
    on_commit: OnCommit
    clock: Callable[[], datetime] = utc_now

    async def find(self, place: TargetRef) -> ReactionRecord | None:
        """Returns the record, with a consistent read; later reads of the target are consistent with it too."""
        item_id = record_id(place)
        with reported(store_away):
            item = await self.container.read(item_id, place.partition_key, consistent=True)
        if item is None:
            return None
        data = item["data"]
        return ReactionRecord(
            ReactionOutcome(data["outcome"]),
            data["fingerprint"],
            data["sequence"],
            data["reason"],
            str(item["_etag"]),
        )

    async def read(self, place: TargetRef) -> SeenTarget[A]:
        """Returns the target, loaded anew, and the cursor; they may be old, unless :meth:`find` was called before.

        Raises Unstorable: it is of another type.
        """
        with reported(store_away):
            item = await self.container.read(place.target, place.partition_key)
            cursor = await self._cursor(place)
        if item is None:
            return SeenTarget(cursor=cursor)
        if item.get("type") != self.kind.aggregate_type:
            raise Unstorable(
                f"{place.target} is no {self.kind.aggregate_type}: let the reaction {self.name} name another target"
            )
        found = aggregate_from_item(self.kind, item)
        deleted = found.aggregate.deleted
        return SeenTarget(None if deleted else found.aggregate, found.etag, deleted, cursor)

    async def _cursor(self, place: TargetRef) -> Cursor:
        item = await self.container.read(_cursor_id(place), place.partition_key) if place.cursor else None
        return Cursor() if item is None else Cursor(item["data"]["last"], str(item["_etag"]))

    async def write(
        self, place: TargetRef, event: Event, seen: SeenTarget[A], write: ToWrite[A], until: float
    ) -> None:
        """Writes in one transaction; ``until``, by the monotonic clock: no attempt is made that could end later.

        Raises:
            RecordChanged: the record exists, or is at another version: it holds the outcome of the message.
            EntryChanged: the record was not there, and the target or the cursor is not at its version.
            ReactionRefused: no transaction holds the change.
            Unstorable: the store never takes it, or it changes another target.
        """
        records = self._records(place, seen, write)
        if write.changed is None:
            await _store(Batch(self.container, place.partition_key, [], records=records), until)
            return
        with committing(_origin(event)) as origin:
            changed = self._changed(place, seen, write.changed)
            try:
                batch = batch_of(self.container, self.lifetimes, self.on_commit, [changed], origin, records)
            except (ChangeTooLarge, Unpublishable) as error:
                raise ReactionRefused(str(error)) from error
            await _store(batch, until)

    def _changed(self, place: TargetRef, seen: SeenTarget[A], aggregate: A) -> Changed:
        if (aggregate.aggregate_id, aggregate.partition_key) != (place.target, place.partition_key):
            raise Unstorable(
                f"the reaction {self.name} changes {aggregate.key}, which is not the target that it named: name it, "
                "and where its partition key is not its id, as {id: partition key}"
            )
        changes = aggregate.changes()
        assert changes is not None, "without changes it is a no"
        return Changed(aggregate, None if aggregate.is_new else seen.version, changes)

    def _records(self, place: TargetRef, seen: SeenTarget[A], write: ToWrite[A]) -> list[Write]:
        record = self._record_item(place, write.record)
        made = [Write.put(record, write.over)]
        if write.cursor is not None:
            cursor, version = self._cursor_item(place, seen, write.cursor), seen.cursor.version
            made.append(Write.put(cursor, version))
        return made

    def _record_item(self, place: TargetRef, record: ReactionRecord) -> Item:
        data = {
            "reaction": self.name,
            "outcome": record.outcome.value,
            "sequence": record.sequence,
            "fingerprint": record.fingerprint,
            "reason": record.reason[:LONGEST_REASON],
            "at": self.clock().isoformat(),
        }
        return _item(record_id(place), place, REACTION_TYPE, data, self.lifetimes.reactions)

    def _cursor_item(self, place: TargetRef, seen: SeenTarget[A], last: int) -> Item:
        """Returns the cursor's item. It expires when older messages are too old to be applied; for "each in order" it
        expires only with the target."""
        for_ever = self.order is InOrder.EACH and not seen.deleted
        ttl = KEEP_FOR_EVER if for_ever else self.lifetimes.reactions
        return _item(
            _cursor_id(place), place, REACTION_CURSOR_TYPE, {"reaction": self.name, "last": last}, ttl
        )


async def _store(batch: Batch, until: float) -> None:
    """Stores the batch. If the answer does not name the refused operation, both errors lead to a consistent read."""
    try:
        await batch.store(until)
    except Unavailable as error:  # too late, or its outcome is not known
        raise StoreUnavailable(str(error), retry_after_seconds=error.retry_after_seconds) from error
    except StoreFailed as error:
        raise _error(error.failure) from error


LONGEST_REASON = 500
"""The number of characters of a reason that are stored."""


def _item(item_id: str, place: TargetRef, kind: str, data: Item, ttl: int) -> Item:
    return {"id": item_id, "partitionKey": place.partition_key, "type": kind, "data": data, "ttl": ttl}


def record_id(place: TargetRef) -> str:
    """Returns the id of the document: an aggregate can have none that begins like it."""
    return request_id(f"reaction-{place.record}")


def _cursor_id(place: TargetRef) -> str:
    return request_id(f"cursor-{place.cursor}")


def _origin(event: Event) -> Origin:
    given = {name: event.data.get(name) for name in ("correlationId", "traceparent", "tracestate")}
    given_texts = {name: value for name, value in given.items() if isinstance(value, str)}
    return Origin(
        given_texts.get("correlationId", event.id),
        given_texts.get("traceparent"),
        given_texts.get("tracestate"),
        causation_id=event.id,
    )


def _error(failure: Failure) -> Exception:
    if failure.kind in TAKEN and failure.index == 0:
        return RecordChanged("the message has an outcome: its record says which")
    if failure.kind in TAKEN:
        return EntryChanged("another writer changed the target: it is read again")
    match failure.kind:
        case Kind.TOO_LARGE:
            return ReactionRefused("the change is too large for one transaction")
        case Kind.INVALID:
            return Unstorable(f"the store refuses the change as it is ({failure.detail})")
        case _:
            return store_away(failure)


@dataclass(frozen=True)
class ReactionInbox(Generic[A]):
    """Handles the messages of one reaction. Any number of calls may run side by side, in any number of processes."""

    reactions: CosmosReactions[A]
    targets: Targets
    react: React[A]
    clock: Callable[[], datetime] = utc_now
    time: Callable[[], float] = monotonic
    counts: Counter[ReactionOutcome] = field(default_factory=Counter)
    """The outcomes since the process began, those found recorded included."""

    async def handle(self, event: Event) -> None:
        """Bring the message to an outcome at each of its targets. After a return the message is done.

        Raises:
            ReactionRefused: a target refuses it, which is recorded; or it is so old that it may have been applied.
            OutOfOrder: order EACH, and a message before it is missing.
            NotApplied: the message is from the future.
            ConcurrentUpdate: the target changed at each attempt.
            StoreUnavailable: the store did not answer.
        """
        await self._settle(event, asked=False)

    async def check(self) -> None:
        """Return if the store answers a read of a target that does not exist. Raises StoreUnavailable."""
        await self.reactions.find(TargetRef("nobody", "nobody", "nobody", ""))

    async def apply(self, event: Event) -> None:
        """As :meth:`handle`, on an operator's request: a refused message is retried (``through_the_record``)."""
        await self._settle(event, asked=True)

    async def give_up(self, event: Event, reason: str) -> None:
        """Record the message as discarded, so that no call applies it (``discard_marks``, ``overdue_marks``).

        Raises:
            AlreadyProcessed: it has an outcome already, at each of its targets.
            OutOfOrder: order EACH, and a message before it must be applied or discarded first.
            StoreUnavailable: the store did not answer.
        """
        places = self._places(event, by_id(self.targets(event)))
        gave_up = [await self._discard(place, event, reason) for place in places]
        if places and not any(gave_up):
            raise AlreadyProcessed(
                "the message was applied, or changes nothing: its record is closed as applied"
            )

    @property
    def _too_old(self) -> timedelta:
        """The age from which a message is never applied."""
        lives = timedelta(seconds=self.reactions.lifetimes.reactions)
        return lives - MARGIN - timedelta(seconds=LONGEST_CALL_SECONDS)

    async def _settle(self, event: Event, *, asked: bool) -> None:
        until = self.time() + LONGEST_CALL_SECONDS
        age = event.age(self.clock())
        if age < -MARGIN / 2:
            raise NotApplied(f"event {event.id} is from the future: set the clock of its publisher")
        too_old, failures = age >= self._too_old, list[Exception]()
        for place in self._places(event, few(by_id(self.targets(event)))):  # complete_after_all
            try:
                if too_old:
                    outcome, reason = await self._find_recorded(place, event)
                else:
                    outcome, reason = await self._once(place, event, until, asked=asked)
            except StoreUnavailable:
                raise
            except Exception as error:  # noqa: BLE001 - it affects this target alone
                failures.append(error)
                continue
            self.counts[outcome] += 1
            if outcome is ReactionOutcome.REFUSED:
                failures.append(ReactionRefused(reason))
        if failures:  # a failure that is retried is raised before a refusal, which is not
            raise min(failures, key=lambda each: isinstance(each, ReactionRefused))

    def _places(self, event: Event, targets: Mapping[str, str]) -> list[TargetRef]:
        of = self.reactions
        return [
            TargetRef.of(of.name, of.kind.aggregate_type, each, partition_key, event, of.order)
            for each, partition_key in targets.items()
        ]

    async def _find_recorded(self, place: TargetRef, event: Event) -> tuple[ReactionOutcome, str]:
        """``too_old``: without a record the message may have been applied before its record expired."""
        if (record := await self.reactions.find(place)) is None:
            return (
                ReactionOutcome.REFUSED,
                "the message is older than records live, and may have been applied",
            )
        return self._says(record, event)

    async def _once(
        self, place: TargetRef, event: Event, until: float, *, asked: bool
    ) -> tuple[ReactionOutcome, str]:
        consistent = asked
        for _ in range(ATTEMPTS):
            refused = await self.reactions.find(place) if consistent else None
            if refused is not None and not (asked and refused.is_refusal_of(event)):
                return self._says(refused, event)
            seen = await self.reactions.read(place)
            order = self.reactions.order
            try:
                decision = decide(seen, event, self.react, order, refused, consistent=consistent)
                if decision is not None:
                    await self._write(place, event, seen, decision, until, consistent=consistent)
                    self._log_outcome(place, event, decision.record)
                    return decision.record.outcome, decision.record.reason
            except ReactionRefused as error:
                return ReactionOutcome.REFUSED, str(error)
            except (RecordChanged, EntryChanged):
                pass
            consistent = True  # decide_anew
        raise ConcurrentUpdate(
            f"{self.reactions.kind.aggregate_type} {place.target} changed at each of {ATTEMPTS} attempts: it is tried "
            "again later"
        )

    async def _write(  # noqa: PLR0913 - a transaction, and the reads that it was decided by
        self,
        place: TargetRef,
        event: Event,
        seen: SeenTarget[A],
        write: ToWrite[A],
        until: float,
        *,
        consistent: bool,
    ) -> None:
        """Raises ReactionRefused: no transaction holds the change, which is recorded."""
        try:
            await self.reactions.write(place, event, seen, write, until)
        except ReactionRefused as error:
            if not consistent:
                raise EntryChanged("a newer state may be smaller: read it") from None
            if write.over is None:  # else it is recorded as refused
                record = replace(write.record, outcome=ReactionOutcome.REFUSED, reason=str(error))
                await self.reactions.write(
                    place, event, seen, replace(write, record=record, changed=None), until
                )
            raise

    async def _discard(self, place: TargetRef, event: Event, reason: str) -> bool:
        """Whether the message is discarded now; False: it has another outcome, and is done."""
        until = self.time() + LONGEST_CALL_SECONDS
        for _ in range(ATTEMPTS):
            record = await self.reactions.find(place)
            if record is not None and not record.is_refusal_of(event):
                return record.outcome is ReactionOutcome.DISCARDED or not record.is_of(event)
            seen = await self.reactions.read(place)
            write = discard(seen, event, reason, self.reactions.order, record)
            try:
                await self.reactions.write(place, event, seen, write, until)
            except (RecordChanged, EntryChanged):
                continue
            return True
        raise StoreUnavailable("the record changed at each attempt: call again")

    def _says(self, record: ReactionRecord, event: Event) -> tuple[ReactionOutcome, str]:
        """Rule ``record_says_which``."""
        if not record.is_of(event):
            _log.error(
                "event %s of %s is not applied: another event with this id was %s. Two publishers use one source, or "
                "its store was restored",
                event.id,
                event.aggregate,
                record.outcome.value,
            )
            return ReactionOutcome.REFUSED, "another event with this id came before"
        _log.info("event %s of %s is recorded as %s", event.id, event.aggregate, record.outcome.value)
        if record.outcome is not ReactionOutcome.REFUSED:  # the receiver counts refusals
            telemetry.decided(telemetry.Outcome.DUPLICATE)
        return record.outcome, record.reason

    def _log_outcome(self, place: TargetRef, event: Event, record: ReactionRecord) -> None:
        logged = event.action, event.id, event.aggregate, self.reactions.kind.aggregate_type, place.target
        if record.outcome is ReactionOutcome.APPLIED:
            telemetry.decided(telemetry.Outcome.APPLIED)
            telemetry.applied(event.created_at, self.clock())
            _log.info("applied %s %s of %s to %s %s", *logged)
        elif record.outcome is ReactionOutcome.NOTHING:
            telemetry.decided(telemetry.Outcome.DUPLICATE)
            _log.info("%s %s of %s changes nothing of %s %s", *logged)


def by_id(named: Named) -> Mapping[str, str]:
    """Returns the partition keys of the targets by their ids."""
    if named is None:
        return {}
    if isinstance(named, str):
        return {named: named}
    return dict(named) if isinstance(named, Mapping) else {each: each for each in named}


def few(targets: Mapping[str, str]) -> Mapping[str, str]:
    """Returns ``targets``. Raises ReactionRefused if they are more than one message can change."""
    if len(targets) > MOST_TARGETS:
        raise ReactionRefused(
            f"the message is for {len(targets)} aggregates, and one can change {MOST_TARGETS}: let their service raise "
            "an event for each group of them"
        )
    return targets

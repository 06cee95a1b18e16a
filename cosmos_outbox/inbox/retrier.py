"""Retries messages that were set aside, with the handler of any other message, in each aggregate's order.

A timer retries waiting records; an operator may retry one now, or discard it. The inbox detects an event that is
applied already, so concurrent retries of one record do no harm. A record is closed after its event was applied; after
a crash between the two the next attempt closes it.

A tried aggregate comes last at the next run (``looked-at-comes-last``): otherwise a few that fail, or for which alone
the store is unavailable, would be all that is ever tried.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Protocol

from cosmos_outbox.inbox import telemetry
from cosmos_outbox.inbox.errors import (
    AlreadyProcessed,
    EffectRefused,
    InboxError,
    NotApplied,
    NotSetAside,
    ReactionRefused,
    RecordChanged,
    StoreUnavailable,
    Unreadable,
    reason_of,
)
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.inbox.receiver import LONGEST_CALL_SECONDS, Handle, Read
from cosmos_outbox.inbox.set_aside import Record, RecordPage, RecordState, SetAside
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic, utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.kernel.loops import own_failures

AWAY_AT = 5
"""For how many aggregates in a row the store must be unavailable before a run assumes an outage for all."""

_log = logging.getLogger(__name__)


class OnRequest(Protocol):
    """The operator's actions on a message of a reaction or an effect; its own record decides, not the set-aside one."""

    async def apply(self, event: Event) -> object:
        """Apply a refused message. Raises EffectRefused, ReactionRefused, and the errors of a handler."""

    async def give_up(self, event: Event, reason: str) -> None:
        """Record that the event must never be applied. Raises AlreadyProcessed, OutOfOrder, StoreUnavailable."""


@dataclass(frozen=True)
class Retries:
    """When a message that was set aside is tried again: after pauses that double.

    Example::

        @service.effect("letters", of=Booking, retries=Retries(longest=timedelta(hours=6)))
        async def write(event: Event) -> None: ...
    """

    first: timedelta = timedelta(minutes=1)
    """The first pause. A timer tries what is due each minute."""
    longest: timedelta = timedelta(hours=1)
    """The longest pause."""
    give_up_after: timedelta | None = None
    """How long it is tried; None, or longer: for ``EVENT_TTL_SECONDS``."""

    def __post_init__(self) -> None:
        """Check the times. Raises ValueError."""
        longest, limit = self.longest, self.first if self.give_up_after is None else self.give_up_after
        if not timedelta() < self.first <= longest or limit <= timedelta():
            raise ValueError("Retries: times must be longer than 0, and longest not shorter than first")

    def due(self, record: Record) -> datetime:
        """Returns the time of the next attempt, counted from when the message was set aside."""
        doublings: int = min(record.attempts + 1, (self.longest // self.first).bit_length())
        in_doublings: int = 2**doublings - 1
        pauses = self.first * in_doublings + self.longest * (record.attempts + 1 - doublings)
        return record.set_aside_at + pauses


@dataclass
class OutageDetector:
    """Decides whether a store is unavailable for one aggregate or for all: for all after so many in a row.

    It can be unavailable for one aggregate alone: its partition is throttled or full, or a replica does not catch up.
    """

    at: int
    """The number in a row that means an outage for all; high enough that independent failures rarely reach it."""
    in_a_row: int = 0
    error: StoreUnavailable | None = None
    """The error of the last aggregate that failed; None: none did."""

    def answered(self) -> None:
        """Note that the store has answered for an aggregate."""
        self.in_a_row = 0

    def found(self, error: StoreUnavailable) -> None:
        """Note that the store was unavailable for an aggregate."""
        self.in_a_row, self.error = self.in_a_row + 1, error

    @property
    def for_all(self) -> bool:
        """Whether to skip the remaining aggregates."""
        return self.in_a_row >= self.at


@dataclass(frozen=True)
class Attempted:
    """The results of a run over the waiting records, as counts."""

    applied: int = 0
    waiting: int = 0
    overdue: int = 0

    def plus(self, states: Sequence[RecordState]) -> "Attempted":
        """Returns the counts with more records added, by their new states."""
        return Attempted(
            self.applied + states.count(RecordState.APPLIED),
            self.waiting + states.count(RecordState.WAITING),
            self.overdue,
        )


@dataclass(frozen=True)
class Retrier:
    """Retries, discards and lists the records of one subscription, for the timer and for operators."""

    read: Read
    handle: Handle
    set_aside: SetAside
    limit: timedelta
    """The longest that a record may wait. Older ones are closed, since the cause was never repaired."""
    now: Callable[[], datetime] = utc_now
    asked: OnRequest | None = None
    """None: applying a discarded event does no harm, as in a read model, whose entry is right after it."""
    retries: Retries | None = None
    """None: each run tries again."""

    async def run(self, *, seconds: float) -> Attempted:
        """Retry waiting records; starts none after ``seconds``, and interrupts none. Raises StoreUnavailable."""
        until = monotonic() + seconds
        closing, away = OutageDetector(AWAY_AT), OutageDetector(AWAY_AT)
        tried = Attempted(overdue=await self._close_overdue(until, closing))
        seen: set[AggregateKey | None] = set()
        async for record in self.set_aside.waiting():
            if monotonic() >= until:
                _log.warning(
                    "not all of what was set aside was tried within %.0f s: the next run goes on", seconds
                )
                break
            if record.aggregate in seen or not self._is_due(record):
                continue
            seen.add(record.aggregate)
            try:
                tried = tried.plus(await self._in_order(record.aggregate, until=until, early=False))
            except StoreUnavailable as found:
                away.found(found)
            else:
                away.answered()
            await self._put_last(record)
            if away.for_all:
                break
        if tried.applied:
            _log.info("applied %d message(s) that were set aside", tried.applied)
        if (error := away.error or closing.error) is not None:
            raise error
        return tried

    async def apply(self, record_id: str) -> None:
        """Retry one record now, after the earlier waiting ones of its aggregate.

        One that is applied already is done: the answer to an earlier call may have been lost.

        Raises:
            NotSetAside: there is no such record.
            NotApplied: this record, or one before it, cannot be applied, or was discarded.
            StoreUnavailable: the store cannot be used.
        """
        record = await self.set_aside.get(record_id)
        states = [record.state]
        if record.state.is_open:
            states = [*await self._in_order(record.aggregate, before=record)] if record.aggregate else []
            if RecordState.WAITING not in states:
                states.append(await self._try(record, asked=True))
        if states[-1] is not RecordState.APPLIED:
            raise NotApplied(
                "this record, or one of its aggregate before it, cannot be applied: read their reasons, remove the "
                "cause, then apply again"
                if states[-1].is_open
                else f"this record is closed as {states[-1].value}: nothing is left to apply"
            )

    async def discard(self, record_id: str, reason: str) -> None:
        """Discard a record for good: its event first, since a crash may leave the record open, never the event.

        A discarded record stays as it is, with its first reason: the answer to that call may have been lost.

        Raises:
            NotSetAside: there is no such record.
            NotApplied, OutOfOrder: an effect or a reaction is done already, may be running, or is not in turn.
            RecordChanged: another caller changed the record, or closed it in another way.
            StoreUnavailable: the store cannot be used.
        """
        record = await self.set_aside.get(record_id)
        if record.state.is_open:
            if await self._is_settled(record, reason):
                await self._change(record, RecordState.APPLIED, record.reason)
                raise NotApplied(
                    "the message was applied, or changes nothing: its record is closed as applied"
                )
            try:
                await self.set_aside.change(record, RecordState.DISCARDED, reason, attempts=record.attempts)
            except (
                RecordChanged
            ):  # perhaps by this call: the store's client retries a write whose answer was lost
                record = await self.set_aside.get(record_id)
            else:
                _log.warning(
                    "discarded record %s: event %s of %s", record.id, record.event_id, record.aggregate
                )
                return
        if record.state.is_open:
            raise RecordChanged("somebody else changed the record: call again")
        if record.state is not RecordState.DISCARDED:
            raise RecordChanged(f"this record is closed as {record.state.value}: nothing is left to discard")

    async def page(self, size: int, continuation_token: str | None) -> RecordPage:
        """Returns open records, oldest first."""
        return await self.set_aside.page(size, continuation_token)

    async def counts(self) -> Mapping[RecordState, int]:
        """Returns the numbers of open records by state. Raises StoreUnavailable."""
        return {state: await self.set_aside.count(state) for state in RecordState if state.is_open}

    async def show(self, record_id: str) -> Record:
        """Returns one open record with its message. Raises NotSetAside, StoreUnavailable."""
        record = await self.set_aside.get(record_id)
        if not record.state.is_open:
            raise NotSetAside(f"this record is closed as {record.state.value}, and its message is gone")
        return record

    async def _close_overdue(self, until: float, away: OutageDetector) -> int:
        closed, found_away = 0, set[AggregateKey | None]()
        async for record in self.set_aside.older(self.now() - self.limit):
            if monotonic() >= until or away.for_all:
                break
            if record.aggregate in found_away:
                continue
            try:
                is_settled = await self._is_settled(record, "it has waited for too long")  # overdue_marks
            except StoreUnavailable as error:
                away.found(error)
                found_away.add(record.aggregate)
                continue
            except InboxError as error:  # it is not in turn, for example; the others are closed all the same
                _log.info("record %s still waits: %s", record.id, error)
                continue
            away.answered()
            if is_settled:
                await self._change(record, RecordState.APPLIED, record.reason)
                continue
            _log.error(
                "gave up event %s of %s, set aside at %s: %s. Its entry, if it has one, is right again after the "
                "next walk",
                record.event_id,
                record.aggregate,
                record.set_aside_at.isoformat(),
                record.reason,
            )
            await self._change(record, RecordState.OVERDUE, record.reason)
            closed += 1
        return closed

    async def _is_settled(self, record: Record, reason: str) -> bool:
        """Discard a record's message in its own store; whether it was done already.

        Raises OutOfOrder; NotApplied: the function that names its targets fails; StoreUnavailable.
        """
        if self.asked is None or (found := await self._open(record.id)) is None or found.delivery is None:
            return False
        try:
            with suppress(Unreadable), own_failures():
                event = self.read(found.delivery)
                if event is not None:
                    await self.asked.give_up(event, reason)
        except AlreadyProcessed:
            return True
        except InboxError:
            raise
        except Exception as error:  # noqa: BLE001 - a bug of the subscriber's function affects this message alone
            raise NotApplied(f"it cannot be given up, because of a bug: {reason_of(error)}") from None
        return False

    async def _put_last(self, seen: Record) -> None:
        """Move the record by which its aggregate was found to the end, if it was not tried but waits behind another.

        Raises StoreUnavailable: the store of the records is unavailable, which affects all of them.
        """
        record = await self._open(seen.id)
        if record is not None and record.version == seen.version:
            with suppress(RecordChanged):  # another process retries it
                await self.set_aside.change(record, record.state, record.reason, attempts=record.attempts)

    async def _in_order(
        self,
        aggregate: AggregateKey | None,
        before: Record | None = None,
        until: float = math.inf,
        *,
        early: bool = True,
    ) -> list[RecordState]:
        """Retry an aggregate's waiting records by sequence, up to the first that fails (``timer-in-order``).

        ``early``: also those that are not due yet.
        """
        found = [(_order(each), each.id) async for each in self.set_aside.waiting(aggregate)]
        states: list[RecordState] = []
        for order, record_id in sorted(found):
            if monotonic() >= until or (before is not None and order >= _order(before)):
                break
            record = await self._open(record_id)
            if record is None:
                continue
            if not (early or self._is_due(record)):
                break
            state = await self._try(record)
            states.append(state)
            if state is RecordState.WAITING:
                break
        return states

    def _is_due(self, record: Record) -> bool:
        return self.retries is None or self.retries.due(record) <= self.now()

    async def _try(self, record: Record, *, asked: bool = False) -> RecordState:
        """Retry a record; returns its new state. ``asked``: an operator named it. Raises StoreUnavailable."""
        handle, failed = self.handle, RecordState.WAITING
        if self.asked is not None and asked and record.state is RecordState.REFUSED:
            handle, failed = self.asked.apply, RecordState.REFUSED
        if record.delivery is None:
            return await self._change(record, RecordState.REFUSED, "the message was too large to keep")
        try:
            with own_failures(), telemetry.of_subscription(record.delivery.subscription):
                event = self.read(record.delivery)
                if event is not None:
                    async with asyncio.timeout(LONGEST_CALL_SECONDS):
                        await handle(event)
        except StoreUnavailable:
            raise
        except (Unreadable, EffectRefused, ReactionRefused) as error:
            return await self._change(record, RecordState.REFUSED, str(error))
        except Exception as error:  # noqa: BLE001 - it affects this aggregate alone, and the record shows the error
            return await self._change(record, failed, reason_of(error))
        return await self._change(record, RecordState.APPLIED, record.reason)

    async def _change(self, record: Record, state: RecordState, reason: str) -> RecordState:
        """Change a record; returns its state now: the new one, or that in which another process has closed it."""
        try:
            await self.set_aside.change(record, state, reason, attempts=record.attempts + 1)
        except RecordChanged:
            _log.info("record %s was changed by another process in between", record.id)
            with suppress(NotSetAside):
                found = await self.set_aside.get(record.id)
                return state if found.state.is_open else found.state
        return state

    async def _open(self, record_id: str) -> Record | None:
        """Returns the record; None: it is closed or gone."""
        with suppress(NotSetAside):
            record = await self.set_aside.get(record_id)
            return record if record.state.is_open else None
        return None


def _order(record: Record) -> tuple[int, int]:
    """Returns the sort key: the event's sequence; records without one are in the order of sending."""
    return record.sequence or 0, record.enqueued_number

"""What was set aside is applied through the same handler as any message, in its aggregate's order.

A timer tries what waits; an operator may try one record now, or discard it. Applying is the inbox's: an event that was
applied meanwhile is found to be applied, so it does not matter who tries a record beside whom. A record is closed after
the event was applied; a crash between the two leaves a record that is closed by the next attempt.

Who was looked at comes last at the next run (``looked-at-comes-last``): a few aggregates that fail, or that find the
store away for themselves alone, would else be all that is ever tried.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from cosmos_outbox.inbox import telemetry
from cosmos_outbox.inbox.errors import (
    EffectRefused,
    InboxError,
    NotApplied,
    NotSetAside,
    ReactionRefused,
    RecordChanged,
    Settled,
    StoreAway,
    Unreadable,
)
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.receiver import LONGEST_CALL_SECONDS, Handle, Read, told
from cosmos_outbox.inbox.set_aside import Record, RecordPage, RecordState, SetAside
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic, utc_now
from cosmos_outbox.kernel.own_failures import own_failures

AWAY_AT = 5
"""How many aggregates in a row must find the store away before a run takes it to be away for all."""

_log = logging.getLogger(__name__)


class OnRequest(Protocol):
    """What is done of a message of a reaction or an effect only when somebody asks: the store decides, not its copy."""

    async def apply(self, event: Event) -> object:
        """Apply what was refused, after all. Raises EffectRefused, ReactionRefused, and what a handler raises."""

    async def give_up(self, event: Event, reason: str) -> None:
        """See to it that nobody applies the event any more. Raises Settled, NotInTurn, StoreAway."""


@dataclass
class Away:
    """Decides whether a store is away for one aggregate or for all: so many in a row that find it away stand for all.

    One aggregate alone can find it away: its partition is throttled or full, or a replica does not catch up.
    """

    at: int
    """How many in a row stand for all. Enough that so many, each for itself, are not met one after the other."""
    in_a_row: int = 0
    error: StoreAway | None = None
    """What the last one of all was told; None: none found the store away."""

    def answered(self) -> None:
        """The store has answered for an aggregate."""
        self.in_a_row = 0

    def found(self, error: StoreAway) -> None:
        """An aggregate found the store away."""
        self.in_a_row, self.error = self.in_a_row + 1, error

    @property
    def for_all(self) -> bool:
        """Whether the next aggregate need not be asked for."""
        return self.in_a_row >= self.at


@dataclass(frozen=True)
class Tried:
    """What became of the records that waited."""

    applied: int = 0
    waiting: int = 0
    overdue: int = 0

    def plus(self, states: Sequence[RecordState]) -> "Tried":
        """With some more records, which are in these states now."""
        return Tried(
            self.applied + states.count(RecordState.APPLIED),
            self.waiting + states.count(RecordState.WAITING),
            self.overdue,
        )


@dataclass(frozen=True)
class Retrier:
    """The timer's and the operator's work on the records of one subscription."""

    read: Read
    handle: Handle
    set_aside: SetAside
    limit: timedelta
    """How long a record may wait. Older ones are closed: nobody has repaired the cause."""
    now: Callable[[], datetime] = utc_now
    asked: OnRequest | None = None
    """None: to apply an event that was discarded does no harm, as in a read model, which is right after it."""

    async def run(self, *, seconds: float) -> Tried:
        """Try what waits; begins nothing after so many seconds, and cuts nothing off. Raises StoreAway."""
        until = monotonic() + seconds
        closing, away = Away(AWAY_AT), Away(AWAY_AT)
        tried = Tried(overdue=await self._close_overdue(until, closing))
        seen: set[AggregateKey | None] = set()
        async for record in self.set_aside.waiting():
            if monotonic() >= until:
                _log.warning(
                    "not all of what was set aside was tried within %.0f s: the next run goes on", seconds
                )
                break
            if record.aggregate in seen:
                continue
            seen.add(record.aggregate)
            try:
                tried = tried.plus(await self._in_order(record.aggregate, until=until))
            except StoreAway as found:
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
        """Try one record now, and before it what waits of its aggregate and comes earlier.

        One that is applied already is done: the answer to an earlier call may have been lost.

        Raises:
            NotSetAside: there is no such record.
            NotApplied: this record, or one before it, cannot be applied, or it was given up.
            StoreAway: the store cannot be used.
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
        """Give a record up for good: its event first, since a crash may leave the record open, never the event.

        A record that is discarded stays as it is, with its first reason: its operator's answer may have been lost.

        Raises:
            NotSetAside: there is no such record.
            NotApplied, NotInTurn: of an effect or a reaction that is done already, may be running, or is not in turn.
            RecordChanged: somebody else changed the record, or closed it in another way.
            StoreAway: the store cannot be used.
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
            ):  # perhaps by this call: the store's client repeats a write whose answer was lost
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
        """Open records, oldest first."""
        return await self.set_aside.page(size, continuation_token)

    async def counts(self) -> Mapping[RecordState, int]:
        """How many records are open, by state. Raises StoreAway."""
        return {state: await self.set_aside.count(state) for state in RecordState if state.is_open}

    async def show(self, record_id: str) -> Record:
        """One open record with its message. Raises NotSetAside, StoreAway."""
        record = await self.set_aside.get(record_id)
        if not record.state.is_open:
            raise NotSetAside(f"this record is closed as {record.state.value}, and its message is gone")
        return record

    async def _close_overdue(self, until: float, away: Away) -> int:
        closed, found_away = 0, set[AggregateKey | None]()
        async for record in self.set_aside.older(self.now() - self.limit):
            if monotonic() >= until or away.for_all:
                break
            if record.aggregate in found_away:
                continue
            try:
                is_settled = await self._is_settled(record, "it has waited for too long")  # overdue_marks
            except StoreAway as error:
                away.found(error)
                found_away.add(record.aggregate)
                continue
            except InboxError as error:  # it is not its turn, say; the others are given up all the same
                _log.info("record %s waits on: %s", record.id, error)
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
        """Whether the message of a record that is to be given up is done already; if not, nobody applies it any more.

        Raises NotInTurn; NotApplied: nobody can tell which target it is for; StoreAway.
        """
        if self.asked is None or (found := await self._open(record.id)) is None or found.delivery is None:
            return False
        try:
            with suppress(Unreadable), own_failures():
                event = self.read(found.delivery)
                if event is not None:
                    await self.asked.give_up(event, reason)
        except Settled:
            return True
        except InboxError:
            raise
        except Exception as error:  # noqa: BLE001 - the subscriber's own function: it hits this message alone
            raise NotApplied(f"it cannot be given up, because of a bug: {told(error)}") from None
        return False

    async def _put_last(self, seen: Record) -> None:
        """Move the record by which its aggregate was found, if it was not tried: it may wait behind another.

        Raises StoreAway: the store of the records is away, which hits all of them.
        """
        record = await self._open(seen.id)
        if record is not None and record.version == seen.version:
            with suppress(RecordChanged):  # another one tries it
                await self.set_aside.change(record, record.state, record.reason, attempts=record.attempts)

    async def _in_order(
        self, aggregate: AggregateKey | None, before: Record | None = None, until: float = math.inf
    ) -> list[RecordState]:
        """Try what waits of an aggregate, the lowest first, up to one that cannot be applied (``timer-in-order``)."""
        found = [(_order(each), each.id) async for each in self.set_aside.waiting(aggregate)]
        states: list[RecordState] = []
        for order, record_id in sorted(found):
            if monotonic() >= until or (before is not None and order >= _order(before)):
                break
            record = await self._open(record_id)
            if record is None:
                continue
            state = await self._try(record)
            states.append(state)
            if state is RecordState.WAITING:
                break
        return states

    async def _try(self, record: Record, *, asked: bool = False) -> RecordState:
        """The record's new state. ``asked``: by an operator, for this one. Raises StoreAway."""
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
        except StoreAway:
            raise
        except (Unreadable, EffectRefused, ReactionRefused) as error:
            return await self._change(record, RecordState.REFUSED, str(error))
        except Exception as error:  # noqa: BLE001 - it hits this aggregate alone, and the record tells an operator
            return await self._change(record, failed, told(error))
        return await self._change(record, RecordState.APPLIED, record.reason)

    async def _change(self, record: Record, state: RecordState, reason: str) -> RecordState:
        """The record's state now: the one in which somebody else has closed it meanwhile, or else the new one."""
        try:
            await self.set_aside.change(record, state, reason, attempts=record.attempts + 1)
        except RecordChanged:
            _log.info("record %s was changed by somebody else meanwhile", record.id)
            with suppress(NotSetAside):
                found = await self.set_aside.get(record.id)
                return state if found.state.is_open else found.state
        return state

    async def _open(self, record_id: str) -> Record | None:
        """The record; None: somebody has closed it."""
        with suppress(NotSetAside):
            record = await self.set_aside.get(record_id)
            return record if record.state.is_open else None
        return None


def _order(record: Record) -> tuple[int, int]:
    """By the event's sequence; what has none comes as it was sent."""
    return record.sequence or 0, record.enqueued_number

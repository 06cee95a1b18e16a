"""Calls a handler outside the store (an e-mail, a payment) at least once for each event, or at most once.

A record of each event holds the outcome. For a repeatable handler it is created after the handler has returned: a
crash in between runs the handler again, so the event's id is its idempotency key. For any other handler it is created
before, as started, and an event that stays started is listed for an operator. The receiver does order, waiting and
retries. ``docs/internals/decisions/0018-effects.md`` explains the rules by name.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from cosmos_outbox.inbox import telemetry
from cosmos_outbox.inbox.errors import (
    AlreadyProcessed,
    EffectFailed,
    EffectRefused,
    EffectRejected,
    EffectUnavailable,
    NotApplied,
    RecordChanged,
    StoreUnavailable,
    reason_of,
)
from cosmos_outbox.inbox.message import Delivery, Event, utc
from cosmos_outbox.inbox.receiver import LONGEST_CALL_SECONDS, MARGIN, Read
from cosmos_outbox.kernel.clock import monotonic, new_id, sleep, utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.kernel.loops import own_failures

EFFECT_SECONDS = 30.0
"""The longest that a handler may take."""

WRITE_SECONDS = 15.0
"""How long a call repeats a write of a record while the store does not answer."""

BEGIN = timedelta(seconds=LONGEST_CALL_SECONDS - EFFECT_SECONDS - WRITE_SECONDS)
"""The longest time from reading the record, or writing the start, to calling the handler (``deadline``)."""

OLD = timedelta(seconds=LONGEST_CALL_SECONDS + 60)
"""The age after which no call can still finish a start: the longest call, plus a margin for clocks that differ."""

Effect = Callable[[Event], Awaitable[None]]
"""Runs the effect, with ``event.id`` as its idempotency key. Raises EffectUnavailable if its service is away, and
EffectRejected if this effect surely was not done; after any other error the effect may have taken place."""

_log = logging.getLogger(__name__)


class EffectState(StrEnum):
    """The outcome of one event's effect."""

    STARTED = "started"
    """A call was about to run it."""
    FREE = "free"
    """The call that had started it has surely not run it."""
    DONE = "done"
    DISCARDED = "discarded"
    """Discarded by an operator, or because of its age."""


@dataclass(frozen=True)
class EffectRecord:
    """The stored outcome of one event's effect. It holds no personal data."""

    event_id: str
    """The original's, also for a copy that is published again (``original-id``)."""
    state: EffectState
    at: datetime
    """The time of the write."""
    call: str = ""
    """The call that has started it (``names-the-call``)."""
    version: str | None = None
    """None: not stored yet."""

    @property
    def is_closed(self) -> bool:
        """Whether the effect is never run again."""
        return self.state in (EffectState.DONE, EffectState.DISCARDED)

    def may_run(self, now: datetime) -> bool:
        """Whether the call that has started it may still be running it."""
        return self.state is EffectState.STARTED and now - self.at < OLD


class EffectRecords(Protocol):
    """Stores the records of one subscriber. Every call raises StoreUnavailable if the store does not answer."""

    async def find(self, event_id: str) -> EffectRecord | None:
        """Returns the newest record; None proves that there is none (``record-consistent``)."""

    async def write(self, record: EffectRecord) -> EffectRecord:
        """Create the record, or replace it at its version; its lifetime begins anew.

        Returns it with its new version. Raises RecordChanged: there is one, or it is at another version, perhaps by an
        earlier attempt of this same write.
        """


@dataclass(frozen=True)
class EffectRules:
    """The options of a subscriber, and the lifetime of its records."""

    lives: timedelta
    """A record's lifetime: longer than a message can still be delivered (``lives-as-long``)."""
    kinds: frozenset[str] | None = None
    """The events that have an effect, by name; None: all."""
    repeatable: bool = True
    """Whether a handler that may have run is run again automatically; else an operator decides."""
    begin: datetime | None = None
    """Earlier events are ignored; None: the subscriber begins with the first."""

    def has_effect(self, event: Event) -> bool:
        """Whether the event has an effect to run."""
        ours = self.kinds is None or event.action in self.kinds
        return ours and not event.is_skip and (self.begin is None or utc(event.created_at) >= self.begin)

    def reading(self, read: Read) -> Read:
        """Wraps ``read`` to return None for an event without an effect: its message is completed (``filter-first``)."""

        def read_effect(delivery: Delivery) -> Event | None:
            event = read(delivery)
            return event if event is not None and self.has_effect(event) else None

        return read_effect

    def is_too_old(self, event: Event, now: datetime) -> bool:
        """Whether a record of the event may have expired, or would expire too early (``too-old``)."""
        most = self.lives - MARGIN - timedelta(seconds=LONGEST_CALL_SECONDS)
        return not -MARGIN / 2 <= event.age(now) < most


@dataclass(frozen=True)
class EffectInbox:
    """Runs the effects of one subscriber. Any number of calls may run side by side, in any number of processes."""

    records: EffectRecords
    effect: Effect
    rules: EffectRules
    clock: Callable[[], datetime] = utc_now
    time: Callable[[], float] = monotonic
    pause: Callable[[float], Awaitable[object]] = sleep

    async def handle(self, event: Event) -> None:
        """Run the event's effect, unless its record holds an outcome. After a return the message is done.

        Raises:
            EffectRefused: it may have been done; an operator decides.
            EffectFailed: it was not done, or may be running: the message waits.
            RecordChanged: another call wrote first.
            StoreUnavailable: the store, or the service that the effect calls, did not answer.
        """
        await self._run(event, asked=False)

    async def apply(self, event: Event) -> None:
        """As :meth:`handle`, on an operator's request: an effect that may have been done is run again."""
        await self._run(event, asked=True)

    async def give_up(self, event: Event, reason: str) -> None:
        """Record that the effect must not run (``discard-marks``); a repeatable handler may be running already.

        Raises:
            AlreadyProcessed: it was done.
            NotApplied: a call may be running it.
            RecordChanged: another call wrote the record: call again.
            StoreUnavailable: the store did not answer.
        """
        found, now = await self.records.find(event.id), self.clock()
        if found is not None and found.state is EffectState.DONE:
            raise AlreadyProcessed("its effect is done already")
        if found is not None and found.may_run(now):
            raise NotApplied("its effect may be running: try again in some minutes")
        if found is None or not found.is_closed:
            await self._write(_record(event, EffectState.DISCARDED, now, over=found))
        _log.warning("gave up the effect of %s of %s: %s", event.id, event.aggregate, reason)

    async def _run(self, event: Event, *, asked: bool) -> None:
        looked_at = self.clock()
        found = await self.records.find(event.id)
        if found is not None and found.is_closed:
            telemetry.decided(telemetry.Outcome.DUPLICATE)
            _log.info("the effect of %s of %s is recorded as %s", event.id, event.aggregate, found.state)
            return
        if self.rules.repeatable:
            await self._run_repeatable(event, found, looked_at)
        else:
            await self._run_once(event, found, asked=asked)
        telemetry.decided(telemetry.Outcome.APPLIED)
        telemetry.applied(event.created_at, self.clock())
        _log.info("ran the effect of %s %s of %s", event.action, event.id, event.aggregate)

    async def _run_repeatable(self, event: Event, found: EffectRecord | None, looked_at: datetime) -> None:
        try:
            await self._call(event, looked_at)
        except EffectUnavailable:
            raise
        except Exception as error:
            raise EffectFailed(reason_of(error)) from error  # failure-set-aside
        with suppress(RecordChanged):  # by another call, or by an attempt of this one whose answer was lost
            await self._write(_record(event, EffectState.DONE, self.clock(), over=found))  # record-after

    async def _run_once(self, event: Event, found: EffectRecord | None, *, asked: bool) -> None:
        """Rule ``started-first``; of two calls one wins, by create or by version (``started-created-only``)."""
        now = self.clock()
        if found is not None and found.may_run(now):  # young-not-raised
            raise EffectFailed("its effect may be running, or its process has died: it is tried again soon")
        if not asked and found is not None and found.state is EffectState.STARTED:  # old-start-listed
            raise EffectRefused(
                "it may have been done: the process that had started it did not record its end"
            )
        if not asked and found is None and self.rules.is_too_old(event, now):
            raise EffectRefused("it may have been done: it is older than records live, or from the future")
        new = _record(event, EffectState.STARTED, now, over=found)
        started = await self._write(replace(new, call=new_id().hex))
        try:
            await self._call(event, started.at)
        except (EffectUnavailable, EffectRejected) as error:
            await self._write(replace(started, state=EffectState.FREE, at=self.clock()))  # put-back
            raise error if isinstance(error, EffectUnavailable) else EffectFailed(reason_of(error)) from error
        except Exception as error:
            raise EffectRefused(
                f"it may have been done: {reason_of(error)}"
            ) from error  # unknown-failure-listed
        await self._write(replace(started, state=EffectState.DONE, at=self.clock()))

    async def _call(self, event: Event, since: datetime) -> None:
        if self.clock() - since > BEGIN:  # deadline
            raise EffectUnavailable("this call took too long to begin the effect, which it has not run")
        with own_failures():
            async with asyncio.timeout(EFFECT_SECONDS):
                await self.effect(event)

    async def _write(self, record: EffectRecord) -> EffectRecord:
        """Repeats the write while the store does not answer; a call knows its own record (``look-for-start``)."""
        until = self.time() + WRITE_SECONDS
        while True:
            try:
                return await self._store(record)
            except StoreUnavailable as error:
                if self.time() >= until:
                    raise
                await self.pause(error.retry_after_seconds)

    async def _store(self, record: EffectRecord) -> EffectRecord:
        try:
            return await self.records.write(record)
        except RecordChanged:
            found = await self.records.find(record.event_id)
            if found is None or replace(found, version=record.version) != record:
                raise
            return found


def _record(event: Event, state: EffectState, at: datetime, *, over: EffectRecord | None) -> EffectRecord:
    """``over``: the record that it replaces; None: there is none."""
    return EffectRecord(event.id, state, at, version=over.version if over else None)

"""An effect outside the store (an e-mail, a payment): it runs in order, and twice only where nobody can know better.

The mark "started" is stored before the effect runs, and "handled" after it (``start-first``, ``record-after``). Between
the two a process can die, or the answer of the effect be lost: then the effect may have taken place, and no store can
tell. So the effect is asked for at least once (:attr:`cosmos_outbox.inbox.effect.Unsure.RUN_AGAIN`) or at most once
(:attr:`cosmos_outbox.inbox.effect.Unsure.SET_ASIDE`). The service that it calls makes it exactly once, if it takes the
event's id as its idempotency key. Every change is one transaction at the versions that were read (``at-its-version``);
who finds them changed reads again, behind a fence (``decide-again``), and so does who finds the effect running.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from cosmos_outbox.inbox import telemetry
from cosmos_outbox.inbox.effect import EffectMarker, EffectRules, Mark, MarkState, SeenMark, Unsure
from cosmos_outbox.inbox.effect_decision import (
    EffectCall,
    Elsewhere,
    Kept,
    MarkChange,
    Step,
    decide,
    failed,
    finished,
    is_young,
)
from cosmos_outbox.inbox.errors import (
    Contended,
    EffectAway,
    EffectNotDone,
    EffectRunning,
    InboxError,
    RecordChanged,
    StoreAway,
    Unstorable,
)
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.ledger import Ledger
from cosmos_outbox.inbox.owed import Owed, Record
from cosmos_outbox.inbox.receiver import told
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic, new_id, utc_now

ATTEMPTS = 5
"""How often a marker that changed is decided upon again before Contended is raised."""

FOLLOW_SECONDS = 15.0
"""How long after its beginning a call starts what waited for its event; the timer does the rest.

Short, since an effect that began late would be cut off when the receiver ends the call, and might have taken place.
"""

Effect = Callable[[Event], Awaitable[None]]
"""Runs the effect, with ``event.id`` as its idempotency key. Raises EffectAway where nobody can be served now, and
EffectNotDone where this one surely was not done; after any other error the effect may have taken place."""

_OUTCOMES: Mapping[Kept | Step | MarkState, telemetry.Outcome] = {
    Kept.OVER: telemetry.Outcome.DUPLICATE,
    Kept.PASSED: telemetry.Outcome.DUPLICATE,
    Kept.WAITS: telemetry.Outcome.WAITING,
    Step.WAIT: telemetry.Outcome.WAITING,
    Step.OVER: telemetry.Outcome.DUPLICATE,
    Step.UNSURE: telemetry.Outcome.SET_ASIDE,
    MarkState.UNCERTAIN: telemetry.Outcome.SET_ASIDE,
    MarkState.HANDLED: telemetry.Outcome.APPLIED,
}

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EffectInbox:
    """Runs the effects of one subscriber. Any number of calls may run side by side, in any number of processes."""

    ledger: Ledger
    effect: Effect
    rules: EffectRules
    clock: Callable[[], datetime] = utc_now
    time: Callable[[], float] = monotonic
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep
    """Before a record is tried again while the store is away."""
    counts: Counter[Kept | Step | MarkState] = field(default_factory=Counter)
    """What became of the events since the process began."""
    owed: Owed = field(default_factory=Owed)
    """What became of effects that the store was not there to take; kept for their messages, which come again."""

    async def handle(self, event: Event) -> None:
        """Run the effect of an event and of what waited for it, or keep the event until its turn. Then it is done.

        Raises:
            StoreAway: the store, or the service that the effect calls, did not answer; or the effect runs elsewhere.
            Contended: the marker changed each time.
            Unstorable: the store will never take the event.
        """
        until = self.time() + FOLLOW_SECONDS
        after = await self.settle(event)
        if after is not None and after.waiting:
            with contextlib.suppress(InboxError):  # the message is done; the timer goes on
                await self.follow(event.aggregate, until)

    async def follow(self, key: AggregateKey, until: float) -> None:
        """Go on with what waits, in order, as far as it is its turn. Raises as :meth:`handle` does."""
        moved = True
        while moved and self.time() < until:
            first = next((mark.waits for mark in await self.ledger.waiting(key) if mark.sequence), None)
            moved = first is not None and await self.settle(first, fenced=True) is not None

    async def settle(self, event: Event, *, asked: bool = False, fenced: bool = False) -> EffectMarker | None:
        """One event alone; of one that waits, the turn is known only behind a fence (``turn-fenced``).

        Returns the marker if its place is passed now; None: it stays as it is, or waits.
        """
        by = new_id().hex
        for _ in range(ATTEMPTS):
            seen = await self.ledger.read(event.aggregate, event.id, fenced=fenced)
            if _is_own(seen.mark, by):  # own-start
                return await self._run(event, seen)
            if (record := self.owed.of(event, seen)) is not None:  # owed-record
                return await self._record_outcome(event, seen, record)
            decision = decide(seen, event, self.rules, EffectCall(self.clock(), by, asked))
            if isinstance(decision, Elsewhere):
                if not fenced:
                    fenced = True
                    continue  # running-fenced
                raise EffectRunning(f"the effect of event {event.id} of {event.aggregate} {decision.value}")
            if isinstance(decision, Kept):
                self._tell(event, decision)
                return None
            with contextlib.suppress(RecordChanged):
                if decision.step is Step.START:
                    return await self._run(event, await self._start(event, decision))
                written = await self._store(event.aggregate, decision)
                self._tell(event, decision.step)
                return None if decision.step is Step.WAIT else written.marker
            fenced = True  # decide-again
        raise Contended(f"{event.aggregate} changed at each of {ATTEMPTS} attempts: it is tried again later")

    async def _start(self, event: Event, decision: MarkChange) -> SeenMark:
        """Write that the effect is started; while it is not known whether that was written, look (``look-for-start``).

        Given up, a mark that says "started" could stay, and nobody could tell any more that the effect was not run.

        Raises:
            RecordChanged: it was not written; decide again.
            StoreAway: the store did not tell in time.
        """
        try:
            return await self.ledger.write(event.aggregate, decision.marker, decision.mark)
        except StoreAway as error:
            away = error
        try:
            async with asyncio.timeout(self.rules.before_and_after_seconds):
                while True:
                    await self.pause(away.retry_after_seconds)
                    try:
                        seen = await self.ledger.read(event.aggregate, event.id, fenced=True)
                    except StoreAway as error:
                        away = error
                        continue
                    if _is_own(seen.mark, decision.mark.by):
                        return seen
                    raise RecordChanged("it was not written, or changed since: decide again")
        except TimeoutError:
            raise away from None

    async def _run(self, event: Event, started: SeenMark) -> EffectMarker | None:
        """Run an effect that this call has started."""
        assert started.mark is not None, "an effect that was started has its mark"
        fresh = timedelta(seconds=self.rules.before_and_after_seconds)
        if self.clock() - started.mark.at > fresh:  # fresh-start
            raise EffectRunning(
                f"event {event.id} was started too long ago: its effect is not run by this call"
            )
        record: Record
        try:
            async with asyncio.timeout(self.rules.effect_seconds):
                await self.effect(event)
        except (EffectAway, EffectNotDone) as error:
            record = partial(self._record_failure, event, error=error, sure=True)
        except Exception as error:  # noqa: BLE001 - whatever it is, the effect may have taken place
            record = partial(self._record_failure, event, error=error, sure=False)
        else:
            record = partial(self._record, event, state=MarkState.HANDLED, reason="")
        self.owed.keep(event, started.mark.by, record)
        return await self._record_outcome(event, started, record)

    async def _record_outcome(self, event: Event, started: SeenMark, record: Record) -> EffectMarker | None:
        """Record what became of an effect. If the store does not take it in time, it stays owed (``owed-record``)."""
        try:
            marker = await record(started)
        except EffectAway:
            self.owed.forget(event)
            raise
        except Unstorable:  # its message is set aside, and brings it again: then it is run again
            assert started.mark is not None, "an effect that was started has its mark"
            if not is_young(started.mark, self.rules, self.clock()):
                self.owed.forget(event)
            raise
        self.owed.forget(event)
        return marker

    async def _store(self, key: AggregateKey, change: MarkChange) -> SeenMark:
        """Write it. That an effect may have been handled is told also where its event is too large to be kept."""
        try:
            return await self.ledger.write(key, change.marker, change.mark)
        except Unstorable:
            if change.mark.kept is None:
                raise
            return await self.ledger.write(key, change.marker, replace(change.mark, kept=None))

    async def _record_failure(
        self, event: Event, started: SeenMark, error: Exception, *, sure: bool
    ) -> EffectMarker | None:
        reason = told(error)
        if not sure and self.rules.unsure is Unsure.SET_ASIDE:
            return await self._record(event, started, state=MarkState.UNCERTAIN, reason=reason)
        await self._write(
            event, started, lambda marker, mark: failed(marker, mark, event, self.clock(), reason)
        )
        _log.error("the effect of %s %s of %s failed: %s. It is tried again", *_names(event), reason)
        if isinstance(error, EffectAway):
            raise error
        telemetry.decided(telemetry.Outcome.WAITING)
        return None

    async def _record(
        self, event: Event, started: SeenMark, *, state: MarkState, reason: str
    ) -> EffectMarker | None:
        def over(marker: EffectMarker, mark: Mark) -> MarkChange:
            return finished(marker, replace(mark, kept=event), state, self.clock(), reason)

        after = await self._write(event, started, over)
        if (
            after is not None or state is MarkState.UNCERTAIN
        ):  # else another call tells, and has run it once more
            self._tell(event, state)
        return after

    async def _write(
        self, event: Event, started: SeenMark, change: Callable[[EffectMarker, Mark], MarkChange]
    ) -> EffectMarker | None:
        """What became of an effect that this call has run, unless somebody else took the effect over."""
        try:
            async with asyncio.timeout(self.rules.before_and_after_seconds):  # calls-end
                return await self._write_record(event, started, change)
        except TimeoutError:
            raise StoreAway(
                f"what became of the effect of event {event.id} could not be written in time"
            ) from None

    async def _write_record(
        self, event: Event, started: SeenMark, change: Callable[[EffectMarker, Mark], MarkChange]
    ) -> EffectMarker | None:
        """While the store is away it is tried again: given up, the effect would run twice (``record-after``)."""
        assert started.mark is not None, "an effect that was started has its mark"
        seen: SeenMark | None = started
        while True:
            try:
                seen = seen or await self.ledger.read(event.aggregate, event.id, fenced=True)
                if not _is_own(seen.mark, started.mark.by):  # somebody else answers for the effect now, or
                    return seen.marker if _is_recorded(seen.mark, started.mark.by) else None  # own-record
                assert seen.mark is not None, "the mark of this call is one"
                after = change(seen.marker, seen.mark)
                return (await self._store(event.aggregate, after)).marker
            except RecordChanged:
                seen = None
            except StoreAway as error:
                seen = None
                await self.pause(error.retry_after_seconds)

    def _tell(self, event: Event, what: Kept | Step | MarkState) -> None:
        self.counts[what] += 1
        telemetry.decided(_OUTCOMES[what])
        if what is MarkState.HANDLED:
            telemetry.applied(event.created_at, self.clock())
        unsure = what in (Step.UNSURE, MarkState.UNCERTAIN)
        level = logging.ERROR if unsure else logging.INFO
        _log.log(level, "%s %s of %s, sequence %s: %s", *_names(event), event.sequence or "none", what.value)


def _is_own(mark: Mark | None, by: str) -> bool:
    return mark is not None and mark.is_started_by(by)


def _is_recorded(mark: Mark | None, by: str) -> bool:
    return mark is not None and mark.state is MarkState.HANDLED and mark.by == by


def _names(event: Event) -> tuple[str, str, AggregateKey]:
    return event.action, event.id, event.aggregate

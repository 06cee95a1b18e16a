"""An effect that has begun is never cut off: start, effect and record are a task of their own (``record-after``).

The item says "running" before the effect, and its place is passed after it; between the two a process can die, and no
store can tell whether the effect took place. Who waits for a task may go (a call that is cut off), and goes by himself
where the effect takes long (``makes-room``): a session holds other aggregates too.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from cosmos_outbox.inbox import telemetry
from cosmos_outbox.inbox.effect import (
    AWAY_SECONDS,
    Effect,
    EffectItem,
    EffectItems,
    EffectRules,
    Unsure,
    WhyOpen,
)
from cosmos_outbox.inbox.effect_decision import EffectChange, recorded, with_open
from cosmos_outbox.inbox.errors import (
    EffectAway,
    EffectFailed,
    EffectNotDone,
    EffectRefused,
    EffectRunning,
    RecordChanged,
    StoreAway,
)
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.receiver import HOLD_SECONDS, told
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic, utc_now

MOST_LEFT = 8
"""So many effects go on with nobody waiting for them; more that hang hit everybody, and are waited for."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EffectRuns:
    """Carries out what was decided on effects."""

    items: EffectItems
    effect: Effect
    rules: EffectRules
    clock: Callable[[], datetime] = utc_now
    time: Callable[[], float] = monotonic
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep
    counts: Counter[str] = field(default_factory=Counter)
    """What became of the events since the process began."""
    under_way: set[asyncio.Task[EffectItem | None]] = field(default_factory=set)
    left: set[asyncio.Task[EffectItem | None]] = field(default_factory=set)
    """Those that nobody waits for."""

    async def join(self) -> None:
        """Wait for the effects that have begun: a process that stops ends none of them."""
        while self.under_way:
            await asyncio.wait(self.under_way)

    async def carry_out(
        self, key: AggregateKey, step: EffectChange, before: EffectItem | None, *, patient: bool
    ) -> EffectItem | None:
        """In a task of its own, which goes on when this call is cut off.

        Raises EffectRunning: it takes long, and goes on; unless ``patient``.
        """
        hangs = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self.write_and_run(key, step, before, hangs))
        self.under_way.add(task)
        task.add_done_callback(self._end)
        if not patient:
            await asyncio.wait({task, hangs}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and len(self.left) < MOST_LEFT:
                self.left.add(task)
                raise EffectRunning(
                    f"the effect of {key} takes longer than {HOLD_SECONDS:.0f} s, and goes on"
                )
        return await asyncio.shield(task)

    def _end(self, task: "asyncio.Task[EffectItem | None]") -> None:
        self.under_way.discard(task)
        self.left.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.debug("an effect ended: %s", told(error) if isinstance(error, Exception) else error)

    async def write_and_run(
        self, key: AggregateKey, step: EffectChange, before: EffectItem | None, hangs: "asyncio.Future[None]"
    ) -> EffectItem | None:
        """Write a step, and run its effect. ``hangs`` is done when the effect takes long."""
        written = step.item
        if not step.started:
            written = await (self.items.write if step.run is None else self._start)(key, step.item)
        for each in set(written.open) - set(before.open if before else ()):
            self.tell_open(key, each.sequence, each.why)
        return written if step.run is None else await self._run(key, step.run, written, hangs)

    async def _start(self, key: AggregateKey, item: EffectItem) -> EffectItem:
        """While it is not known whether the start was written, look (``look-for-start``): else it would stay.

        Raises RecordChanged: it was not; StoreAway: the store did not tell in time.
        """
        until = self.time() + self.rules.around_seconds
        try:
            return await self.items.write(key, item)
        except StoreAway as error:
            away = error
        while self.time() < until:
            await self.pause(away.retry_after_seconds)
            try:
                seen = await self.items.read(key, fenced=True)
            except StoreAway as error:
                away = error
                continue
            if seen is not None and seen.running == item.running:
                return seen
            raise RecordChanged("it was not written, or changed since")
        raise away

    async def _run(
        self, key: AggregateKey, event: Event, started: EffectItem, hangs: "asyncio.Future[None]"
    ) -> EffectItem | None:
        running = started.running
        assert running is not None, "an effect that is run was started"
        if self.clock() - running.at > timedelta(seconds=self.rules.around_seconds):  # fresh-start
            await self._record(key, started, lambda item: replace(item, running=None))
            raise EffectRunning(
                f"event {event.id} was started too long ago: this call does not run its effect"
            )
        try:
            await self._run_while_away(event, hangs)
        except Exception as error:  # noqa: BLE001 - whatever it is, it tells how the effect went
            return await self._record_failure(key, event, started, error)
        after = await self._record(key, started, lambda item: recorded(item, event, self.clock()))
        self.tell(event, "handled", telemetry.Outcome.APPLIED)
        telemetry.applied(event.created_at, self.clock())
        return after

    async def _run_while_away(self, event: Event, hangs: "asyncio.Future[None]") -> None:
        """A service that says that it is away is waited for: that hits everybody. One that does not answer hangs."""
        until, pause = self.time() + AWAY_SECONDS, 1.0
        while True:
            try:
                with _timed(hangs):
                    async with asyncio.timeout(self.rules.effect_seconds):  # calls-end
                        return await self.effect(event)
            except EffectAway as error:
                if self.time() + pause >= until:
                    raise
                await self.pause(max(pause, error.retry_after_seconds))
                pause *= 2

    async def _record_failure(
        self, key: AggregateKey, event: Event, started: EffectItem, error: Exception
    ) -> EffectItem | None:
        """``put-back``, unless it may have taken place and is not to be run again by itself."""
        sure, reason = isinstance(error, EffectAway | EffectNotDone), told(error)
        if not sure and self.rules.unsure is Unsure.SET_ASIDE:
            place = event.sequence or 1
            await self._record(
                key,
                started,
                lambda item: replace(
                    with_open(item, place, event.id, WhyOpen.UNSURE, self.clock()), running=None
                ),
            )
            self.tell_open(key, place, WhyOpen.UNSURE)
            raise EffectRefused(f"it may have been handled: {reason}")
        await self._record(key, started, lambda item: replace(item, running=None, at=self.clock()))
        _log.error(
            "the effect of %s %s of %s failed: %s. It is tried again", event.action, event.id, key, reason
        )
        if isinstance(error, EffectAway):
            raise error
        raise EffectFailed(reason)

    async def _record(
        self, key: AggregateKey, started: EffectItem, change: Callable[[EffectItem], EffectItem]
    ) -> EffectItem | None:
        """What became of an effect, unless somebody else answers for it now; tried again while the store is away."""
        until, seen = self.time() + self.rules.around_seconds, started
        while True:
            try:
                return await self.items.write(key, change(seen))
            except RecordChanged:
                away = None
            except StoreAway as error:
                away = error
            while True:
                if away is not None:
                    if self.time() >= until:
                        raise away
                    await self.pause(away.retry_after_seconds)
                try:
                    newest = await self.items.read(key, fenced=True)
                except StoreAway as error:
                    away = error
                    continue
                break
            if newest is None or newest.running != started.running:
                return newest
            seen = newest

    def tell_open(self, key: AggregateKey, place: int, why: WhyOpen) -> None:
        """A place was passed, and it is not known whether its effect was handled."""
        self.counts[why.value] += 1
        _log.error("place %d of %s is passed, and for an operator: %s", place, key, why.value)

    def tell(self, event: Event, what: str, outcome: telemetry.Outcome) -> None:
        """What became of an event."""
        self.counts[what] += 1
        telemetry.decided(outcome)
        told_of = event.action, event.id, event.aggregate, event.sequence or "none", what
        _log.info("%s %s of %s, sequence %s: %s", *told_of)


@contextmanager
def _timed(hangs: "asyncio.Future[None]") -> Iterator[None]:
    """Tell when the block takes long."""

    def tell() -> None:
        if not hangs.done():
            hangs.set_result(None)

    timer = asyncio.get_running_loop().call_later(HOLD_SECONDS, tell)
    try:
        yield
    finally:
        timer.cancel()

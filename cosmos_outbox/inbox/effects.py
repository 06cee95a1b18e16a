"""An effect outside the store (an e-mail, a payment): it runs in order, and twice only where nobody can know better.

The item says "running" before the effect, and its place is passed after it; between the two a process can die, and no
store can tell whether the effect took place. Start, effect and record are a task of their own, which no timer cuts off
(``record-after``); the message is done after it (``complete-last``). Every write is at the version that was read
(``at-its-version``); refused, the item is read again behind a fence (``decide-again``).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from cosmos_outbox.inbox import telemetry
from cosmos_outbox.inbox.effect import (
    AWAY_SECONDS,
    Effect,
    EffectItem,
    EffectItems,
    EffectRules,
    EffectSource,
    Unsure,
    WhyOpen,
)
from cosmos_outbox.inbox.effect_decision import (
    AT_ONCE,
    CLOCKS_DIFFER,
    Ask,
    By,
    EffectCall,
    EffectChange,
    EffectDone,
    Goal,
    Known,
    Refuse,
    Wait,
    What,
    decide,
    recorded,
    with_open,
)
from cosmos_outbox.inbox.errors import (
    Contended,
    EffectAway,
    EffectFailed,
    EffectNotDone,
    EffectRefused,
    EffectRunning,
    NotInTurn,
    RecordChanged,
    Settled,
    StoreAway,
)
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.receiver import told
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic, new_id, utc_now

ATTEMPTS = 5
"""How often an item that changed is decided upon again before Contended is raised."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EffectInbox:
    """Runs the effects of one subscriber. Any number of calls may run side by side, in any number of processes."""

    items: EffectItems
    source: EffectSource | None
    """None: nobody tells of an event that does not come, so every place is passed by a write."""
    effect: Effect
    rules: EffectRules
    clock: Callable[[], datetime] = utc_now
    time: Callable[[], float] = monotonic
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep
    counts: Counter[str] = field(default_factory=Counter)
    """What became of the events since the process began."""
    under_way: set[asyncio.Task[EffectItem | None]] = field(default_factory=set)

    async def handle(self, event: Event) -> None:
        """See to it that the event's effect has run, after those before it. When this returns, the message is done.

        Raises:
            EffectRefused: an operator decides.
            EffectFailed: the effect failed.
            NotInTurn: another event comes first, and is not to be had.
            Contended: the item changed each time.
            StoreAway: the store, or the service that the effect calls, did not answer; or the effect runs elsewhere.
        """
        young = event.age(self.clock()) < self.rules.events_live / 2
        if not self.rules.has_effect(event) and (event.sequence is None or (self.source and young)):
            self._tell(event, "has no effect", telemetry.Outcome.DUPLICATE)  # old-skips-written
        else:
            await self._settle(event, By.MESSAGE)

    async def apply(self, event: Event) -> None:
        """As :meth:`handle`, asked by an operator: what may have been handled is run again."""
        await self._settle(event, By.OPERATOR)

    async def give_up(self, event: Event, reason: str) -> None:
        """See to it that the effect is not run any more (``only-next``).

        Raises:
            Settled: its place is passed already.
            NotInTurn: another place comes first, or the effect is running.
            StoreAway: the store did not answer.
        """
        try:
            done = await self._settle(event, By.GIVING_UP)
        except EffectRunning as error:
            raise NotInTurn(str(error)) from None
        if done is EffectDone.PASSED:
            raise Settled("its place is passed: it was handled, or given up before")
        _log.warning("gave up %s of %s, place %s: %s", event.id, event.aggregate, event.sequence, reason)

    async def catch_up(self, key: AggregateKey, last: int) -> bool:
        """Go to this place with the source's events; whether anything was left. Raises as :meth:`handle` does."""
        return await self._bring(key, Goal(last, None, By.SWEEP)) is EffectDone.NOW

    async def reset(self, key: AggregateKey, to: int) -> bool:
        """After a restore: the aggregate goes on behind this place. Raises EffectRunning, Contended, StoreAway."""
        for _ in range(ATTEMPTS):
            item, now = await self.items.read(key, fenced=True), self.clock()
            if (
                item is not None
                and item.running
                and now - item.running.at < self._seconds(self.rules.call_seconds)
            ):
                raise EffectRunning(f"an effect of {key} is running: try again in some minutes")
            if item is not None and item.last == to and item.expires:
                return False
            fresh = EffectItem(
                to, item.first if item else to + 1, now, version=item.version if item else None
            )
            try:
                await self.items.write(key, fresh)
            except RecordChanged:
                continue
            _log.warning("the effects of %s go on behind place %d, as an operator asked", key, to)
            return True
        raise Contended(f"{key} changes all the time: try again")

    async def join(self) -> None:
        """Wait for the effects that have begun: a process that stops ends none of them."""
        while self.under_way:
            await asyncio.wait(self.under_way)

    async def _settle(self, event: Event, by: By) -> EffectDone:
        key, place = event.aggregate, event.sequence
        if place is None:  # it has no place among the others: the first and only one of its own
            key, place = AggregateKey(key.type, f"{key.id}/{event.id}"), 1
        done = await self._bring(key, Goal(place, event, by))
        if done is EffectDone.PASSED and by is not By.GIVING_UP:
            self._tell(event, done.value, telemetry.Outcome.DUPLICATE)
        return done

    async def _bring(self, key: AggregateKey, goal: Goal) -> EffectDone:  # noqa: C901 - a case for each kind of step
        """Decide and do, until nothing is left."""
        by, known, refused = new_id().hex, Known(self.source is not None), 0
        fenced, made = goal.by in (By.OPERATOR, By.GIVING_UP), False
        item = await self.items.read(key, fenced=fenced)
        while True:
            step = decide(item, goal, known, self.rules, EffectCall(self.clock(), by))
            match step:
                case EffectDone():
                    return EffectDone.NOW if made and step is EffectDone.PASSED else step
                case Ask(What.ITEM) | Refuse() | Wait() if not fenced:
                    item, fenced = await self.items.read(key, fenced=True), True
                case Ask(What.ITEM):
                    raise EffectRunning(f"an effect of {key} is running, or its process just died")
                case Refuse(why):
                    _log.error("place %d of %s is for an operator: %s", goal.sequence, key, why)
                    raise EffectRefused(why)
                case Wait(why):
                    raise NotInTurn(why)
                case Ask():
                    known = await self._ask(key, item, goal, known, step)
                case EffectChange(run=Event() as first) if goal.by is By.GIVING_UP:
                    raise NotInTurn(f"place {first.sequence} comes first")
                case EffectChange():
                    fenced = True
                    try:
                        item, made = await self._carry_out(key, step, item), True
                        if goal.by is By.OPERATOR and step.run is goal.event:
                            return EffectDone.NOW
                    except RecordChanged as error:  # perhaps by an earlier attempt of this one
                        refused, made = refused + 1, made or goal.by is By.GIVING_UP
                        if refused == ATTEMPTS:
                            raise Contended(f"{key} changes all the time: it is tried again later") from error
                        item = await self.items.read(key, fenced=True)  # decide-again

    async def _ask(
        self, key: AggregateKey, item: EffectItem | None, goal: Goal, known: Known, ask: Ask
    ) -> Known:
        source, place = self.source, ask.place
        assert source is not None, "nothing is asked of no source"
        after = goal.sequence + (goal.event is None)
        if ask.what is What.FIRST:
            return replace(known, first=await source.first(key, after, self.rules.begin) or 0)
        if ask.what is What.HELD:
            held, event = await source.held(key), known.events[place]
            discarded = known.discarded | frozenset(held.discarded)
            return replace(known, discarded=discarded, held_after=held.after, cleared=event.id)
        fenced = ask.what is What.PROOF
        places = range(place, known.asked.stop) if fenced else range(place, min(after, place + AT_ONCE))
        since = item.last_created_at - CLOCKS_DIFFER if item and item.last_created_at and not fenced else None
        found = await source.events(key, places, since, fenced=fenced)
        return replace(
            known,
            asked=range(known.asked.start if known.asked else place, places.stop),
            proven=places.stop if fenced else known.proven,
            events={**known.events, **{each.sequence: each for each in found if each.sequence}},
        )

    async def _carry_out(
        self, key: AggregateKey, step: EffectChange, before: EffectItem | None
    ) -> EffectItem | None:
        """In a task of its own, which goes on when this call is cut off."""
        task = asyncio.create_task(self._write_and_run(key, step, before))
        self.under_way.add(task)
        task.add_done_callback(self._end)
        return await asyncio.shield(task)

    def _end(self, task: "asyncio.Task[EffectItem | None]") -> None:
        self.under_way.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.debug("an effect ended: %s", told(error) if isinstance(error, Exception) else error)

    async def _write_and_run(
        self, key: AggregateKey, step: EffectChange, before: EffectItem | None
    ) -> EffectItem | None:
        written = step.item
        if not step.started:
            written = await (self.items.write if step.run is None else self._start)(key, step.item)
        for each in set(written.open) - set(before.open if before else ()):
            self._tell_open(key, each.sequence, each.why)
        return written if step.run is None else await self._run(key, step.run, written)

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

    async def _run(self, key: AggregateKey, event: Event, started: EffectItem) -> EffectItem | None:
        running = started.running
        assert running is not None, "an effect that is run was started"
        if self.clock() - running.at > self._seconds(self.rules.around_seconds):  # fresh-start
            await self._record(key, started, lambda item: replace(item, running=None))
            raise EffectRunning(
                f"event {event.id} was started too long ago: this call does not run its effect"
            )
        try:
            await self._run_while_away(event)
        except Exception as error:  # noqa: BLE001 - whatever it is, it tells how the effect went
            return await self._record_failure(key, event, started, error)
        after = await self._record(key, started, lambda item: recorded(item, event, self.clock()))
        self._tell(event, "handled", telemetry.Outcome.APPLIED)
        telemetry.applied(event.created_at, self.clock())
        return after

    async def _run_while_away(self, event: Event) -> None:
        until, pause = self.time() + AWAY_SECONDS, 1.0
        while True:
            try:
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
            self._tell_open(key, place, WhyOpen.UNSURE)
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

    def _tell_open(self, key: AggregateKey, place: int, why: WhyOpen) -> None:
        self.counts[why.value] += 1
        _log.error("place %d of %s is passed, and for an operator: %s", place, key, why.value)

    def _tell(self, event: Event, what: str, outcome: telemetry.Outcome) -> None:
        self.counts[what] += 1
        telemetry.decided(outcome)
        told_of = event.action, event.id, event.aggregate, event.sequence or "none", what
        _log.info("%s %s of %s, sequence %s: %s", *told_of)

    def _seconds(self, seconds: float) -> timedelta:
        return timedelta(seconds=seconds)

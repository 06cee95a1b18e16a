"""An effect outside the store (an e-mail, a payment): it runs in order, and twice only where nobody can know better.

What ``effect_decision`` decides is asked, written and run here. The message is done after the effect
(``complete-last``), or after its copy in set-aside. Start, effect and record are a task of their own, which no caller
and no timer cuts off: between start and record a process can die, and no store can tell whether the effect took place.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime

from cosmos_outbox.inbox import telemetry
from cosmos_outbox.inbox.effect import (
    AROUND,
    AWAY_SECONDS,
    EFFECT_SECONDS,
    Effect,
    EffectItem,
    EffectItems,
    EffectRules,
    EffectSource,
    HeldBack,
    WhyOpen,
)
from cosmos_outbox.inbox.effect_decision import AskSource, By, EffectCall, EffectChange
from cosmos_outbox.inbox.errors import (
    Contended,
    EffectAway,
    EffectFailed,
    EffectNotDone,
    EffectRefused,
    EffectRunning,
    InboxError,
    RecordChanged,
    Settled,
    StoreAway,
)
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.receiver import HOLD_SECONDS, told
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic, new_id, utc_now

ATTEMPTS = 5
"""How often a call begins, with an item that was changed again and again, before it raises Contended."""

MOST_LEFT = 8
"""So many effects go on with nobody waiting for them; more that hang hit everybody, and are waited for."""

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
    under_way: dict[asyncio.Task[EffectItem], bool] = field(default_factory=dict)
    """What has begun; True: and nobody waits for it."""

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
            _tell(event, "has no effect", telemetry.Outcome.DUPLICATE)  # old-skips-written
        elif not await self._settle(event, By.MESSAGE):
            _tell(event, "its place is passed", telemetry.Outcome.DUPLICATE)

    async def apply(self, event: Event) -> None:
        """As :meth:`handle`, asked by an operator: what may have been handled is run again."""
        await self._settle(event, By.OPERATOR)

    async def give_up(self, event: Event, reason: str) -> None:
        """See to it that the effect is not run any more (``only-next``).

        Raises:
            Settled: its place is passed already.
            NotInTurn: another place comes first, or an effect is running.
            StoreAway: the store did not answer.
        """
        await self._settle(event, By.GIVING_UP)
        _log.warning("gave up %s of %s, place %s: %s", event.id, event.aggregate, event.sequence, reason)

    async def catch_up(self, key: AggregateKey, last: int) -> bool:
        """Go to this place with the source's events; whether anything was left. Raises as :meth:`handle` does."""
        return await self._bring(key, last, None, By.SWEEP)

    async def join(self) -> None:
        """Wait for the effects that have begun: a process that stops ends none of them."""
        while self.under_way:
            await asyncio.wait([*self.under_way])

    async def _settle(self, event: Event, by: By) -> bool:
        key, place = event.aggregate, event.sequence
        if place is None:  # it has no place among the others: the first and only one of its own
            key, place = AggregateKey(key.type, f"{key.id}/{event.id}"), 1
        return await self._bring(key, place, event, by)

    async def _bring(self, key: AggregateKey, place: int, event: Event | None, by: By) -> bool:
        """Decide and do, until nothing is left; whether anything was. What is refused is decided anew."""
        has_source, fenced = self.source is not None, by not in (By.MESSAGE, By.SWEEP)
        call = EffectCall(self.rules, has_source, by, new_id().hex, place, event, self.clock())
        for _ in range(ATTEMPTS):
            item = await self.items.read(key, fenced=fenced)
            try:
                return await self._go(key, call.over(item, self.clock()), fenced=fenced)
            except RecordChanged:  # decide-again
                fenced = True
        raise Contended(f"{key} changes all the time: it is tried again later")

    async def _go(self, key: AggregateKey, call: EffectCall, *, fenced: bool) -> bool:
        """Raises RecordChanged: the item was changed, or is an old one."""
        made, room_at = False, self.time() + HOLD_SECONDS
        while (step := call.step()) is not None:
            if isinstance(step, Settled) and made:
                break
            if isinstance(step, InboxError):
                raise step if fenced or made else RecordChanged("this may be told by an old read")
            if isinstance(step, AskSource):
                call = await self._ask(key, call, step)
            else:
                item, made = await self._carry_out(key, call, step), True
                if call.by is By.OPERATOR and step.run is call.event:
                    break
                fetched = step.run is not None and step.run is not call.event
                if fetched and call.by is By.MESSAGE and self.time() >= room_at:  # makes-room
                    raise EffectRunning("the effects before it take long: it is tried again")
                call = call.over(item, self.clock())
        return made

    async def _ask(self, key: AggregateKey, call: EffectCall, ask: AskSource) -> EffectCall:
        """What the relay holds back is asked behind what is to be run (``discards-asked``)."""
        assert self.source is not None, "nothing is asked of no source"
        found = await self.source.events(key, ask.places, ask.since, fenced=ask.fenced)
        events = {**call.events, **{each.sequence: each for each in found if each.sequence}}
        runs = any(map(self.rules.has_effect, events.values()))
        held = await self.source.held(key) if runs else HeldBack()
        return replace(call, now=self.clock(), events=events, held=held, proven=ask.fenced)

    async def _carry_out(self, key: AggregateKey, call: EffectCall, step: EffectChange) -> EffectItem:
        """In a task of its own. Raises EffectRunning: it takes long, and goes on; an operator waits."""
        hangs = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._do(key, call.item, step, hangs))
        self.under_way[task] = False
        task.add_done_callback(self._end)
        waited = {task} if call.by is By.OPERATOR else {task, hangs}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and sum(self.under_way.values()) < MOST_LEFT:  # makes-room
            self.under_way[task] = True
            raise EffectRunning(f"the effect of {key} takes longer than {HOLD_SECONDS:.0f} s, and goes on")
        return await asyncio.shield(task)

    def _end(self, task: asyncio.Task[EffectItem]) -> None:
        del self.under_way[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.debug("an effect ended: %s", told(error) if isinstance(error, Exception) else error)

    async def _do(
        self, key: AggregateKey, before: EffectItem | None, step: EffectChange, hangs: asyncio.Future[None]
    ) -> EffectItem:
        """Write, run the effect, then write what became of it (``record-after``, ``put-back``)."""
        started, event = await self._write(key, before, step.item), step.run
        if event is None:
            return started
        failure: Exception | None = None
        try:
            await self._try(event, started, hangs)
        except Exception as error:  # noqa: BLE001 - whatever it is, it tells how the effect went
            failure = error
        surely_not = isinstance(failure, EffectAway | EffectNotDone | EffectRunning)
        unsure = not (failure is None or surely_not or self.rules.repeatable)
        place, now, why = event.sequence or 1, self.clock(), WhyOpen.UNSURE if unsure else None
        ended = replace(started, running=None, at=now)
        if failure is None or unsure:
            ended = started.after(place, now, event.id, event.created_at, why)
        try:
            newest = await self._write(key, started, ended)
        except RecordChanged:
            raise EffectRunning("its call took too long: another one answers for its effect") from failure
        if failure is None:
            _tell(event, "handled", telemetry.Outcome.APPLIED)
            telemetry.applied(event.created_at, now)
            return newest
        reason = told(failure)
        if unsure:
            raise EffectRefused(f"it may have been handled: {reason}")
        _log.error(
            "the effect of %s %s of %s failed: %s. It is tried again", event.action, event.id, key, reason
        )
        raise failure if isinstance(failure, EffectAway | EffectRunning) else EffectFailed(reason)

    async def _try(self, event: Event, started: EffectItem, hangs: asyncio.Future[None]) -> None:
        """A service that says that it is away is waited for; one that does not answer hangs."""
        assert started.running is not None, "an effect that is run was started"
        if self.clock() - started.running.at > AROUND:  # fresh-start
            raise EffectRunning("it was started too long ago: this call does not run its effect")
        until, pause = self.time() + AWAY_SECONDS, 1.0
        while True:
            timer = asyncio.get_running_loop().call_later(HOLD_SECONDS, hangs.cancel)
            try:
                async with asyncio.timeout(EFFECT_SECONDS):  # calls-end
                    return await self.effect(event)
            except EffectAway as error:
                pause = max(pause, error.retry_after_seconds)
                if self.time() + pause >= until:
                    raise
            finally:
                timer.cancel()
            await self.pause(pause)
            pause *= 2

    async def _write(self, key: AggregateKey, before: EffectItem | None, item: EffectItem) -> EffectItem:
        """At the version that was read (``at-its-version``), until the store answers.

        Raises RecordChanged: somebody else has written; StoreAway: the store did not tell in time.
        """
        until = self.time() + AROUND.total_seconds()
        while True:
            try:
                newest = await self._store(key, item)
            except StoreAway as error:
                if self.time() >= until:
                    raise
                await self.pause(error.retry_after_seconds)
            else:
                break
        for each in set(newest.open) - set(before.open if before else ()):
            _log.error("place %d of %s is passed, and for an operator: %s", each.sequence, key, each.why)
        return newest

    async def _store(self, key: AggregateKey, item: EffectItem) -> EffectItem:
        try:
            return await self.items.write(key, item)
        except RecordChanged:  # look-for-start: an earlier attempt of this one may have stored it
            newest = await self.items.read(key, fenced=True)
            if newest is None or replace(newest, version=item.version) != item:
                raise
            return newest


def _tell(event: Event, what: str, outcome: telemetry.Outcome) -> None:
    """What became of an event."""
    telemetry.decided(outcome)
    _log.info("%s %s of %s, sequence %s: %s", event.action, event.id, event.aggregate, event.sequence, what)

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
    WhyOpen,
)
from cosmos_outbox.inbox.effect_decision import AskEvents, AskHeld, By, EffectCall, EffectChange
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

Patience = asyncio.Future[None]
"""Is cancelled when an effect takes so long that nobody should wait for it."""


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
    under_way: dict[asyncio.Task[EffectItem | None], bool] = field(default_factory=dict)
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

    async def reset(self, key: AggregateKey, to: int) -> bool:
        """After a restore: the aggregate goes on behind this place. Raises EffectRunning, Contended, StoreAway."""
        changed = await self._bring(key, to, None, By.RESET)
        if changed:
            _log.warning("the effects of %s go on behind place %d, as an operator asked", key, to)
        return changed

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
        name, fenced = new_id().hex, by not in (By.MESSAGE, By.SWEEP)
        for _ in range(ATTEMPTS):
            item = await self.items.read(key, fenced=fenced)
            has_source = self.source is not None
            call = EffectCall(self.rules, has_source, by, name, place, event, item, self.clock())
            try:
                return await self._go(key, call, fenced=fenced)
            except RecordChanged:  # decide-again
                fenced = True
        raise Contended(f"{key} changes all the time: it is tried again later")

    async def _go(self, key: AggregateKey, call: EffectCall, *, fenced: bool) -> bool:
        """Raises RecordChanged: the item was changed, or is an old one."""
        made = False
        while True:
            match step := call.step():
                case None:
                    return made
                case Settled() if made:
                    return made
                case InboxError():
                    raise step if fenced or made else RecordChanged("this may be told by an old read")
                case AskHeld() | AskEvents():
                    call = await self._ask(key, call, step)
                case EffectChange():
                    call, made = replace(call, item=await self._carry_out(key, call, step)), True
                    if call.by is By.OPERATOR and step.run is call.event:
                        return made
            call = replace(call, now=self.clock())

    async def _ask(self, key: AggregateKey, call: EffectCall, ask: AskHeld | AskEvents) -> EffectCall:
        assert self.source is not None, "nothing is asked of no source"
        if isinstance(ask, AskHeld):
            return replace(call, held=await self.source.held(key), held_at=ask.place)
        found = await self.source.events(key, ask.places, ask.since, fenced=ask.fenced)
        events = {**call.events, **{each.sequence: each for each in found if each.sequence}}
        return replace(call, events=events, proven=ask.fenced)

    async def _carry_out(self, key: AggregateKey, call: EffectCall, step: EffectChange) -> EffectItem | None:
        """In a task of its own. Raises EffectRunning: it takes long, and goes on; an operator waits."""
        patience = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._write_and_run(key, call.item, step, patience))
        self.under_way[task] = False
        task.add_done_callback(self._end)
        waited = {task} if call.by is By.OPERATOR else {task, patience}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and sum(self.under_way.values()) < MOST_LEFT:  # makes-room
            self.under_way[task] = True
            raise EffectRunning(f"the effect of {key} takes longer than {HOLD_SECONDS:.0f} s, and goes on")
        return await asyncio.shield(task)

    def _end(self, task: asyncio.Task[EffectItem | None]) -> None:
        del self.under_way[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.debug("an effect ended: %s", told(error) if isinstance(error, Exception) else error)

    async def _write_and_run(
        self, key: AggregateKey, before: EffectItem | None, step: EffectChange, patience: Patience
    ) -> EffectItem | None:
        written = await self._write(key, step.item)
        _tell_open(key, before, written)
        return written if step.run is None else await self._run(key, step.run, written, patience)

    async def _write(self, key: AggregateKey, item: EffectItem) -> EffectItem:
        """At the version that was read (``at-its-version``); after a lost answer look for it (``look-for-start``).

        Raises RecordChanged: it was not written; StoreAway: the store did not tell in time.
        """
        until = self.time() + AROUND.total_seconds()
        try:
            return await self.items.write(key, item)
        except (RecordChanged, StoreAway) as error:  # an earlier attempt of this one may have stored it
            newest = await self._look(key, error, until)
        if newest is None or replace(newest, version=item.version) != item:
            raise RecordChanged("it was not written, or changed since")
        return newest

    async def _look(self, key: AggregateKey, failure: InboxError, until: float) -> EffectItem | None:
        """The item after a write that may have failed. Raises StoreAway: the store has not told in time."""
        while True:
            if isinstance(failure, StoreAway):
                if self.time() >= until:
                    raise failure
                await self.pause(failure.retry_after_seconds)
            try:
                return await self.items.read(key, fenced=True)
            except StoreAway as error:
                failure = error

    async def _run(
        self, key: AggregateKey, event: Event, started: EffectItem, patience: Patience
    ) -> EffectItem | None:
        """Run the effect, then record what became of it (``record-after``, ``put-back``)."""
        failure: Exception | None = None
        try:
            await self._try(event, started, patience)
        except Exception as error:  # noqa: BLE001 - whatever it is, it tells how the effect went
            failure = error
        surely = failure is None or isinstance(failure, EffectAway | EffectNotDone | EffectRunning)
        unsure = not surely and not self.rules.repeatable

        def ended(item: EffectItem) -> EffectItem:
            if failure is None:
                return item.recorded(event, self.clock())
            if unsure:
                return item.told(event.sequence or 1, event.id, WhyOpen.UNSURE, self.clock())
            return replace(item, running=None, at=self.clock())

        newest = await self._record(key, started, ended)
        if failure is None:
            _tell(event, "handled", telemetry.Outcome.APPLIED)
            telemetry.applied(event.created_at, self.clock())
            return newest
        _tell_open(key, started, newest)
        reason = told(failure)
        if unsure:
            raise EffectRefused(f"it may have been handled: {reason}")
        _log.error(
            "the effect of %s %s of %s failed: %s. It is tried again", event.action, event.id, key, reason
        )
        raise failure if isinstance(failure, EffectAway | EffectRunning) else EffectFailed(reason)

    async def _try(self, event: Event, started: EffectItem, patience: Patience) -> None:
        """A service that says that it is away is waited for; one that does not answer hangs."""
        assert started.running is not None, "an effect that is run was started"
        if self.clock() - started.running.at > AROUND:  # fresh-start
            raise EffectRunning("it was started too long ago: this call does not run its effect")
        until, pause = self.time() + AWAY_SECONDS, 1.0
        while True:
            try:
                return await self._ask_for(event, patience)
            except EffectAway as error:
                pause = max(pause, error.retry_after_seconds)
                if self.time() + pause >= until:  # calls-end
                    raise
                await self.pause(pause)
                pause *= 2

    async def _ask_for(self, event: Event, patience: Patience) -> None:
        timer = asyncio.get_running_loop().call_later(HOLD_SECONDS, patience.cancel)
        try:
            async with asyncio.timeout(EFFECT_SECONDS):  # calls-end
                await self.effect(event)
        finally:
            timer.cancel()

    async def _record(
        self, key: AggregateKey, started: EffectItem, ended: Callable[[EffectItem], EffectItem]
    ) -> EffectItem | None:
        """Write it, unless somebody else answers for it now. Raises StoreAway: the store has not told in time."""
        until = self.time() + AROUND.total_seconds()
        newest: EffectItem | None = started
        while newest is not None and newest.running == started.running:
            try:
                return await self.items.write(key, ended(newest))
            except (RecordChanged, StoreAway) as error:
                newest = await self._look(key, error, until)
        return newest


def _tell(event: Event, what: str, outcome: telemetry.Outcome) -> None:
    """What became of an event."""
    telemetry.decided(outcome)
    _log.info("%s %s of %s, sequence %s: %s", event.action, event.id, event.aggregate, event.sequence, what)


def _tell_open(key: AggregateKey, before: EffectItem | None, after: EffectItem | None) -> None:
    """The places of which it is not known whether their effects were handled."""
    for each in set(after.open if after else ()) - set(before.open if before else ()):
        _log.error("place %d of %s is passed, and for an operator: %s", each.sequence, key, each.why)

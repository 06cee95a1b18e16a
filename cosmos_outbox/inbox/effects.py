"""An effect outside the store (an e-mail, a payment): it runs in order, and twice only where nobody can know better.

The message is done after the effect (``complete-last``), or after its copy in set-aside. Every write is at the version
that was read (``at-its-version``); refused, the item is read again behind a fence (``decide-again``).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from cosmos_outbox.inbox import telemetry
from cosmos_outbox.inbox.effect import (
    Effect,
    EffectItem,
    EffectItems,
    EffectRules,
    EffectSource,
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
)
from cosmos_outbox.inbox.effect_runs import EffectRuns
from cosmos_outbox.inbox.errors import (
    Contended,
    EffectRefused,
    EffectRunning,
    NotInTurn,
    RecordChanged,
    Settled,
)
from cosmos_outbox.inbox.event import Event
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
    left: set[asyncio.Task[EffectItem | None]] = field(default_factory=set)

    @property
    def runs(self) -> EffectRuns:
        """What carries out the effects."""
        return EffectRuns(
            self.items, self.effect, self.rules, self.clock, self.time, self.pause, self.counts, self.under_way,
            self.left,
        )  # fmt: skip

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
            self.runs.tell(event, "has no effect", telemetry.Outcome.DUPLICATE)  # old-skips-written
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
                and now - item.running.at < timedelta(seconds=self.rules.call_seconds)
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

    async def _settle(self, event: Event, by: By) -> EffectDone:
        key, place = event.aggregate, event.sequence
        if place is None:  # it has no place among the others: the first and only one of its own
            key, place = AggregateKey(key.type, f"{key.id}/{event.id}"), 1
        done = await self._bring(key, Goal(place, event, by))
        if done is EffectDone.PASSED and by is not By.GIVING_UP:
            self.runs.tell(event, done.value, telemetry.Outcome.DUPLICATE)
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
                        item, made = await self._carry_out(key, step, item, goal), True
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
        self, key: AggregateKey, step: EffectChange, before: EffectItem | None, goal: Goal
    ) -> EffectItem | None:
        return await self.runs.carry_out(key, step, before, patient=goal.by is By.OPERATOR)

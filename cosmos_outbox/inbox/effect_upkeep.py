"""What waits is run in order, or given up: by a timer, by age, or by an operator, and always through the mark.

A message whose event waits is done, so no broker brings it again: the timer runs it (``timer-follows``). A place that
is missing, or whose effect fails, holds up its aggregate for ``waits_at_most`` (``age-gives-up``); giving up passes the
place (``only-in-turn``), so that what comes after it can go on. Nothing is given up in silence: a mark says why.

The store may be away for some aggregates alone. Those come last at the next run (``away-comes-last``): nothing could be
written of them, so they would come first in the store's order each time.
"""

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field

from cosmos_outbox.inbox.away import Away
from cosmos_outbox.inbox.effect import Begin, EffectMarker, Mark, MarkState
from cosmos_outbox.inbox.effect_decision import finished, given_up, is_passed, is_young, next_place
from cosmos_outbox.inbox.effects import ATTEMPTS, EffectInbox
from cosmos_outbox.inbox.errors import (
    Contended,
    EffectRunning,
    NotApplied,
    NotInTurn,
    NotSetAside,
    RecordChanged,
    StoreAway,
)
from cosmos_outbox.inbox.receiver import told
from cosmos_outbox.inbox.set_aside import Record
from cosmos_outbox.kernel.aggregate_key import AggregateKey

SIDE_BY_SIDE = 8
"""How many aggregates a run of the timer tends at once: one whose effect is slow does not hold up the others."""

AWAY_AT = 5
"""How many aggregates in a row must find the store away before a run takes it to be away for all."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EffectUpkeep:
    """The timer's and the operator's work on what waits."""

    inbox: EffectInbox
    found_away: set[AggregateKey] = field(default_factory=set)
    """The aggregates that found the store away when they were tended last."""

    async def run(self, *, seconds: float) -> None:
        """Go through all that waits; begins nothing after so many seconds.

        Raises StoreAway: the store, or the service that the effects call, is away for all.
        """
        until = self.inbox.time() + seconds
        places, away = asyncio.Semaphore(SIDE_BY_SIDE), Away(AWAY_AT)

        async def tend(key: AggregateKey) -> None:
            async with places:
                if self.inbox.time() < until and not away.for_all:
                    await self._tend(key, until, away)

        keys = [key async for key in self.inbox.ledger.aggregates()]
        self.found_away.intersection_update(keys)
        await asyncio.gather(*map(tend, sorted(keys, key=self.found_away.__contains__)))
        if away.for_all and away.error is not None:
            raise away.error

    async def _tend(self, key: AggregateKey, until: float, away: Away) -> None:
        self.found_away.discard(key)
        try:
            await self.tend(key, until)
        except StoreAway as error:
            _log.warning("what waits of %s is tried again by the next run: %s", key, error)
            self.found_away.add(key)
            return away.found(error)
        except Exception as error:  # noqa: BLE001 - one aggregate must not end the run over the others
            _log.error("what waits of %s cannot be tried: %s", key, told(error))
        return away.answered()

    async def tend(self, key: AggregateKey, until: float) -> None:
        """Try what waits of one aggregate, each event once. Raises as :meth:`EffectInbox.handle` does."""
        blocked = False
        for mark in await self.inbox.ledger.waiting(key):
            if self.inbox.time() >= until or mark.waits is None or (blocked and mark.sequence is not None):
                continue
            try:
                if self._is_overdue(mark):
                    await self._give_up(key, mark, until)
                moved = await self.inbox.settle(mark.waits, fenced=True)
            except EffectRunning as error:
                _log.info("the next run looks again: %s", error)
                moved = None
            blocked = blocked or moved is None

    async def apply(self, key: AggregateKey, event_id: str) -> None:
        """Run the effect of an event that waits, however old it is, if it is its turn.

        Raises:
            NotSetAside: no event of this id waits.
            NotApplied: the effect was started, and only the message has the event.
            NotInTurn: another one comes first, or the effect has failed again.
            StoreAway: the store, or the service that the effect calls, did not answer; or the effect is running.
        """
        seen = await self.inbox.ledger.read(key, event_id, fenced=True)
        if seen.mark is not None and seen.mark.state is MarkState.STARTED and seen.mark.waits is None:
            raise NotApplied(
                "the effect was started, and only the message has its event: the broker brings it again. If it does "
                "not, see what became of the effect, then discard it"
            )
        if seen.mark is None or seen.mark.waits is None:
            raise NotSetAside("no event of this id waits: it is dealt with, or never came")
        if await self.inbox.settle(seen.mark.waits, asked=True, fenced=True) is None:
            raise NotInTurn(
                "the event still waits: another one comes first, or its effect failed; the log says which"
            )

    async def discard(self, key: AggregateKey, event_id: str, reason: str) -> None:
        """Give up an event whose turn it is; repeating the call does nothing.

        Raises:
            NotSetAside: the event is not known.
            NotInTurn: another one comes first.
            EffectRunning: its effect is running, or its process died a short time ago.
        """
        for _ in range(ATTEMPTS):
            seen = await self.inbox.ledger.read(key, event_id, fenced=True)
            if seen.mark is None:
                raise NotSetAside("no event of this id is known")
            if seen.mark.state.is_over:
                return
            self._must_be_in_turn(seen.marker, seen.mark.sequence)
            if seen.mark.sequence is not None and seen.marker.running not in (None, event_id):
                raise NotInTurn(f"event {seen.marker.running} was started in its place: pass over that place")
            if await self._over(key, seen.marker, seen.mark, MarkState.DISCARDED, reason):
                return
        raise Contended(f"{key} changes all the time: try again")

    async def give_up(self, record: Record, reason: str) -> None:
        """Give up the event of a record that was set aside, so that its message runs nothing if it comes again.

        Raises:
            NotApplied: its effect has run already.
            NotInTurn: the event waits here too, and another one comes first.
            EffectRunning: its effect is running, or its process died a short time ago.
        """
        key, event_id = record.aggregate, record.event_id
        if key is None or event_id is None:
            return None  # no event was read from it
        for _ in range(ATTEMPTS):
            seen = await self.inbox.ledger.read(key, event_id, fenced=True)
            if seen.mark is not None:
                if seen.mark.state is MarkState.HANDLED:
                    raise NotApplied(
                        "its effect has run already, so there is nothing to discard: the timer closes the record"
                    )
                return await self.discard(key, event_id, reason)
            unknown = Mark(event_id, MarkState.WAITING, record.sequence, self.inbox.clock())
            after = given_up(seen.marker, unknown, self.inbox.rules, self.inbox.clock(), reason)
            with contextlib.suppress(RecordChanged):
                await self.inbox.ledger.write(key, after.marker, after.mark)
                _log.warning("gave up event %s of %s, sequence %s", event_id, key, record.sequence or "none")
                return None
        raise Contended(f"{key} changes all the time: try again")

    async def pass_over(self, key: AggregateKey, sequence: int, reason: str) -> None:
        """Give up the place that is next, whose event has not come; repeating the call does nothing.

        Raises:
            NotInTurn: another place is next, or an event waits for this one: discard the event.
            EffectRunning: the effect of this place is running, or its process died a short time ago.
        """
        for _ in range(ATTEMPTS):
            missing = f"missing {sequence}"
            seen = await self.inbox.ledger.read(key, missing, fenced=True)
            if is_passed(seen.marker, sequence):
                return
            self._must_be_in_turn(seen.marker, sequence)
            mark, state = seen.mark, MarkState.DISCARDED
            if seen.marker.running is not None:  # its message does not come again, or comes too late
                running = await self.inbox.ledger.read(key, seen.marker.running, fenced=True)
                mark, state = running.mark, MarkState.UNCERTAIN
            elif any(each.sequence == sequence for each in await self.inbox.ledger.waiting(key)):
                raise NotInTurn(f"an event waits for place {sequence}: apply or discard the event")
            mark = mark or Mark(missing, MarkState.WAITING, sequence, self.inbox.clock())
            if await self._over(key, seen.marker, mark, state, reason):
                return
        raise Contended(f"{key} changes all the time: try again")

    async def _over(
        self, key: AggregateKey, marker: EffectMarker, mark: Mark, state: MarkState, reason: str
    ) -> bool:
        now = self.inbox.clock()
        if mark.state is MarkState.STARTED:
            if is_young(mark, self.inbox.rules, now):  # young-runs
                raise EffectRunning(
                    f"the effect of event {mark.event_id} is running, or its process just died"
                )
            reason = f"{reason} (it was started at {mark.at.isoformat()}, and may have been handled)"
        after = finished(marker, mark, state, now, reason)
        try:
            await self.inbox.ledger.write(key, after.marker, after.mark)
        except RecordChanged:
            return False
        _log.warning("gave up event %s of %s, sequence %s", mark.event_id, key, mark.sequence or "none")
        return True

    def _must_be_in_turn(self, marker: EffectMarker, sequence: int | None) -> None:
        """``only-in-turn``"""
        first = marker.last is None and self.inbox.rules.begin is Begin.WHERE_SEEN
        if sequence is not None and not first and sequence > next_place(marker):
            raise NotInTurn(f"place {next_place(marker)} comes first")

    def _is_overdue(self, mark: Mark) -> bool:
        since = mark.failing_since or mark.at
        return self.inbox.clock() - since > self.inbox.rules.waits_at_most

    def _is_held(self, mark: Mark) -> bool:
        """Whether the event is so old that it is not run by itself."""
        rules = self.inbox.rules
        return mark.waits is not None and mark.waits.age(self.inbox.clock()) >= rules.events_come_for

    async def _give_up(self, key: AggregateKey, mark: Mark, until: float) -> None:
        """``age-gives-up``: the event, if it is its turn; otherwise the places before it that did not come.

        Of many places the next run gives up the rest.
        """
        seen = await self.inbox.ledger.read(key, mark.event_id, fenced=True)
        days = self.inbox.rules.waits_at_most
        place, first = mark.sequence or 0, next_place(seen.marker)
        if place == first and seen.marker.running not in (None, mark.event_id):
            await self.pass_over(key, place, f"nothing is known of its effect for {days}")
        elif place <= first and (
            mark.failures or self._is_held(mark)
        ):  # what waited for others is tried first
            await self.discard(key, mark.event_id, f"its effect could not be run for {days}")
        for sequence in range(first, place):
            if self.inbox.time() >= until:
                return
            _log.error("event %d of %s did not come within %s: it is given up", sequence, key, days)
            await self.pass_over(key, sequence, f"it did not come within {days}")

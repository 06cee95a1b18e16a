"""An operator sees the effects that nobody is done with, and tries each again or gives it up, at the version read.

Two kinds are open. One *waits* for its turn or failed, or its process died while it ran: the timer and the operator go
the same way (:mod:`cosmos_outbox.inbox.effect_upkeep`). Another *may have been handled*: nobody but an operator runs it
again. Its mark stays as it is meanwhile, so whoever else meets the event leaves it alone; it names the operator's call
(``claim-first``), so that a second call does not run the effect beside the first, unless the first is older than the
longest call (``claim-holds``). It ends as handled, or stays as it is: a crash leaves what was known before.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from cosmos_outbox.inbox import telemetry
from cosmos_outbox.inbox.effect import EffectRules, Mark, MarkState, SeenMark
from cosmos_outbox.inbox.effect_decision import EffectCall, is_young, next_place
from cosmos_outbox.inbox.effect_upkeep import EffectUpkeep
from cosmos_outbox.inbox.effects import ATTEMPTS, EffectInbox
from cosmos_outbox.inbox.errors import (
    Contended,
    EffectAway,
    EffectRunning,
    NotApplied,
    NotInTurn,
    NotSetAside,
    RecordChanged,
    StoreAway,
)
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.receiver import told
from cosmos_outbox.inbox.waiting import Waiting
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import new_id

MOST_PLACES = 100
"""How many missing places one call gives up."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OpenEffect:
    """An effect that nobody is done with. ``event`` None: only a message has it, or a list leaves it out."""

    id: str
    aggregate: AggregateKey
    action: str | None
    mark: Mark
    event: Event | None = None


@dataclass(frozen=True)
class EffectPage:
    """A page of open effects, without their events, the longest in their state first; the token of the next page."""

    items: Sequence[OpenEffect]
    continuation_token: str | None


class EffectList(Protocol):
    """The open effects of one subscriber. Every call raises StoreAway when it was not answered; each may be old."""

    async def page(self, size: int, continuation_token: str | None, died_before: datetime) -> EffectPage:
        """What waits, may have been handled, or was started before then. Raises the adapter's UnknownContinuation."""

    async def get(self, effect_id: str) -> OpenEffect:
        """One effect with its event. Raises NotSetAside: there is none of this id, or it is over."""


@dataclass(frozen=True)
class EffectOperator:
    """The operator's work on the effects of one subscriber."""

    inbox: EffectInbox
    effects: EffectList

    async def page(self, size: int, continuation_token: str | None) -> EffectPage:
        """A page of open effects. What runs at this moment is not among them."""
        longest = timedelta(seconds=self.inbox.rules.call_seconds)
        return await self.effects.page(size, continuation_token, self.inbox.clock() - longest)

    async def waiting(self) -> Waiting:
        """How many effects are open, 100 at most, and since when the oldest is. Raises StoreAway."""
        found = (await self.page(100, None)).items
        return Waiting(len(found), min(each.mark.at for each in found) if found else None)

    async def show(self, effect_id: str) -> OpenEffect:
        """One open effect with its event. Raises NotSetAside, StoreAway."""
        return await self.effects.get(effect_id)

    async def apply(self, effect_id: str, again: str | None = None) -> None:
        """Run an effect now: one that waits if it is its turn, however old it is, or one that may have been handled.

        The latter only with ``again``, the reason why it is to run once more: who saw it as one that waits has not
        decided that, and it cannot be taken back.

        Raises:
            NotSetAside: there is no such effect, or it is over.
            NotInTurn: another event comes first, or the effect has failed again.
            NotApplied: an effect that may have been handled has failed, its event was not kept here, or there is no
                reason to run it again.
            StoreAway: the store, or the service that the effect calls, did not answer; or the effect is running.
        """
        found = await self.effects.get(effect_id)
        if found.mark.state is MarkState.UNCERTAIN:
            if again is None:
                raise NotApplied(
                    "the effect may have been handled: find out, then give the reason why it is to run again, or "
                    "discard it"
                )
            await self._again(found.aggregate, found.mark.event_id, again)
        else:
            await EffectUpkeep(self.inbox).apply(found.aggregate, found.mark.event_id)

    async def discard(self, effect_id: str, reason: str) -> None:
        """Give an effect up for good, one that waits only in its turn. Raises NotSetAside, NotInTurn, StoreAway."""
        found = await self.effects.get(effect_id)
        key, event_id = found.aggregate, found.mark.event_id
        if found.mark.state is MarkState.UNCERTAIN:
            await self._change(key, event_id, lambda mark: self._given_up(mark, reason))
            _log.warning("gave up event %s of %s, which may have been handled", event_id, key)
        else:
            await EffectUpkeep(self.inbox).discard(key, event_id, reason)

    async def pass_missing(self, effect_id: str, reason: str) -> None:
        """Give up the places before an event that waits, whose own events have not come, so that it is its turn.

        Raises:
            NotSetAside: there is no such effect, or it is over.
            NotInTurn: one of the places has an event, which is to be dealt with first.
            StoreAway: the store did not answer, or an effect is running in one of the places.
        """
        found = await self.effects.get(effect_id)
        seen = await self.inbox.ledger.read(found.aggregate, found.mark.event_id, fenced=True)
        first, place = next_place(seen.marker), found.mark.sequence or 0
        for sequence in range(first, min(place, first + MOST_PLACES)):
            await EffectUpkeep(self.inbox).pass_over(found.aggregate, sequence, reason)
        if place - first > MOST_PLACES:
            raise NotInTurn(f"gave up {MOST_PLACES} places, and more are missing: call again")

    async def _again(self, key: AggregateKey, event_id: str, reason: str) -> None:
        call, rules = EffectCall(self.inbox.clock(), new_id().hex), self.inbox.rules
        seen = await self._change(key, event_id, lambda mark: claimed(mark, call, rules))
        assert seen.mark is not None, "what was written is there"
        assert seen.mark.kept is not None, "no other is claimed"
        if self.inbox.clock() - call.now > timedelta(seconds=rules.before_and_after_seconds):
            raise EffectRunning("the call took too long to begin: try again in some minutes")  # fresh-start
        failure = await self._failure(self.inbox.effect(seen.mark.kept))

        def after(mark: Mark) -> Mark:
            return ended(mark, call.by, self.inbox.clock(), failure, reason)

        await self._record(key, event_id, after, seen, ran=failure is None)
        if failure is None:
            telemetry.decided(telemetry.Outcome.APPLIED)
            _log.warning("ran the effect of event %s of %s again, as an operator asked", event_id, key)
        elif isinstance(failure, EffectAway):
            raise failure
        else:
            raise NotApplied(f"the effect failed, and still may have been handled: {told(failure)}")

    async def _record(
        self, key: AggregateKey, event_id: str, after: Callable[[Mark], Mark], seen: SeenMark, *, ran: bool
    ) -> None:
        """While the store is away it is tried again, for as long as a call may take. Raises StoreAway."""
        newest: SeenMark | None = seen
        try:
            async with asyncio.timeout(self.inbox.rules.before_and_after_seconds):
                while True:
                    try:
                        with contextlib.suppress(NotSetAside):  # somebody else answers for the effect now
                            await self._change(key, event_id, after, newest)
                    except StoreAway as error:
                        newest = None
                        await self.inbox.pause(error.retry_after_seconds)
                    else:
                        return
        except TimeoutError:
            outcome = "was run: do not apply it again, but discard it" if ran else "failed"
            raise StoreAway(
                f"the effect {outcome}. This could not be recorded, since the store is away"
            ) from None

    async def _failure(self, effect: Awaitable[None]) -> Exception | None:
        try:
            async with asyncio.timeout(self.inbox.rules.effect_seconds):
                await effect
        except Exception as error:  # noqa: BLE001 - whatever it is, it tells how the effect went
            return error
        return None

    def _given_up(self, mark: Mark, reason: str) -> Mark:
        reason, now = f"{reason} (it may have been handled)", self.inbox.clock()
        free = _free(mark, self.inbox.rules, now)
        return replace(free, state=MarkState.DISCARDED, at=now, kept=None, reason=reason)

    async def _change(
        self, key: AggregateKey, event_id: str, change: Callable[[Mark], Mark], seen: SeenMark | None = None
    ) -> SeenMark:
        """Change a mark that says "may have been handled"; ``seen``: as it was written last, which saves a read.

        Raises NotSetAside, Contended, StoreAway.
        """
        for _ in range(ATTEMPTS):
            seen = seen or await self.inbox.ledger.read(key, event_id, fenced=True)
            if seen.mark is None or seen.mark.state is not MarkState.UNCERTAIN:
                raise NotSetAside("the effect is over: somebody else dealt with it")
            changed = change(seen.mark)
            with contextlib.suppress(RecordChanged):
                return await self.inbox.ledger.write(key, seen.marker, changed)
            seen = None
        raise Contended(f"{key} changes all the time: try again")


def claimed(mark: Mark, call: EffectCall, rules: EffectRules) -> Mark:
    """The mark of an effect that may have been handled, with the call that runs it again (``claim-first``).

    A call whose answer was lost knows its own write (``own-start``). Raises EffectRunning, NotApplied.
    """
    if mark.kept is None:
        raise NotApplied("the event was not kept: see what became of its effect, then discard it")
    return mark if mark.by == call.by else replace(_free(mark, rules, call.now), by=call.by, at=call.now)


def ended(mark: Mark, by: str, now: datetime, failure: Exception | None, reason: str) -> Mark:
    """What is known after an operator's call, which had this reason.

    Raises NotSetAside: another call has taken the effect over.
    """
    if mark.by != by:
        raise NotSetAside("another call has taken the effect over")
    if failure is None:
        return replace(
            mark,
            state=MarkState.HANDLED,
            at=now,
            by="",
            kept=None,
            reason=f"run again by an operator: {reason}",
        )
    return replace(mark, at=now, by="", failures=mark.failures + 1, reason=told(failure))


def _free(mark: Mark, rules: EffectRules, now: datetime) -> Mark:
    """The mark, unless an operator's call is at it (``claim-holds``). Raises EffectRunning."""
    if mark.by and is_young(mark, rules, now):
        raise EffectRunning(
            "another call runs this effect, or its process just died: try again in some minutes"
        )
    return replace(mark, by="")

"""An operator sees the effects that nobody is done with, and has each run again or gives it up, as a message would.

An event that waits is a message that was set aside. Here is what a place itself tells: it may have been handled, it is
missing, or its process has died.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from cosmos_outbox.inbox.effect import EffectItem, Open, WhyOpen
from cosmos_outbox.inbox.effects import EffectInbox
from cosmos_outbox.inbox.errors import EffectFailed, EffectRefused, NotApplied, NotSetAside, Settled
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.waiting import Waiting
from cosmos_outbox.kernel.aggregate_key import AggregateKey

_AT_ONCE = 100


@dataclass(frozen=True)
class OpenEffect:
    """An effect that nobody is done with."""

    id: str
    aggregate: AggregateKey
    open: Open
    event: Event | None = None
    """What the source has of it, if it was asked."""


@dataclass(frozen=True)
class EffectPage:
    """Open effects of so many aggregates, without their events; the token of the next page."""

    items: Sequence[OpenEffect]
    continuation_token: str | None


@dataclass(frozen=True)
class EffectOperator:
    """The operator's work on the effects of one subscriber."""

    inbox: EffectInbox
    subscriber: str
    aggregate_type: str
    seal: Callable[[str], str]
    """Makes a token of a place in the list."""
    unseal: Callable[[str], str]
    """Its place. Raises UnknownContinuation."""
    ahead: Callable[[], AsyncIterator[tuple[AggregateKey, int]]] | None = None
    """All aggregates of the source, each with its last place; None: nobody lists them."""

    async def page(self, size: int, continuation_token: str | None) -> EffectPage:
        """The open effects of so many aggregates. Raises UnknownContinuation, StoreAway."""
        position = self.unseal(continuation_token) if continuation_token else None
        found, position = await self.inbox.items.list_unfinished(size, position)
        items = [each for key, item in found for each in self._open(key, item)]
        return EffectPage(items, self.seal(position) if position else None)

    async def waiting(self) -> Waiting:
        """How many effects are open, 100 at most, and since when the oldest is. Raises StoreAway."""
        found = (await self.page(_AT_ONCE, None)).items
        return Waiting(len(found), min((each.open.at for each in found), default=None))

    async def show(self, effect_id: str) -> OpenEffect:
        """One open effect, with its event if the source has it. Raises NotSetAside, StoreAway."""
        position = None
        while True:
            found, position = await self.inbox.items.list_unfinished(_AT_ONCE, position)
            for key, item in found:
                for each in self._open(key, item):
                    if each.id == effect_id:
                        return replace(each, event=await self._event(each))
            if position is None:
                raise NotSetAside("no open effect has this id: take an id from the list of effects")

    async def apply(self, effect_id: str, again: str | None = None) -> None:
        """Run an effect now; one that may have been handled only with ``again``, the reason to run it once more.

        Raises:
            NotSetAside: there is no such effect, or it is over.
            NotApplied: there is no reason, or the source does not have its event, or it failed.
            NotInTurn: another place comes first.
            StoreAway: the store, or the service that the effect calls, did not answer; or the effect is running.
        """
        found = await self.show(effect_id)
        if found.open.why is WhyOpen.UNSURE and again is None:
            raise NotApplied(
                "the effect may have been handled: find out, then give the reason why it is to run again, or discard it"
            )
        if found.event is None:
            raise NotApplied("its event is not to be had here: apply its message, if one was set aside")
        try:
            await self.inbox.apply(found.event)
        except (EffectFailed, EffectRefused) as error:
            raise NotApplied(f"the effect failed: {error}") from error

    async def discard(self, effect_id: str, reason: str) -> None:
        """Give an effect up for good. Raises NotSetAside, NotInTurn, StoreAway."""
        found = await self.show(effect_id)
        gone = Event(found.open.event_id, found.aggregate, "", found.open.sequence, found.open.at, {})
        with suppress(Settled):  # somebody else has dealt with it
            await self.inbox.give_up(found.event or gone, reason)

    async def reset(self, aggregate_id: str | None = None, to: int | None = None) -> int:
        """After a restore: what is ahead of its source goes on behind the source's last place; or one aggregate does.

        ``to``: the place, of one aggregate. Stop the subscriber first. Returns how many were changed.

        Raises NotApplied: nobody tells the place; EffectRunning, Contended, StoreAway.
        """
        if aggregate_id is not None:
            key = AggregateKey(self.aggregate_type, aggregate_id)
            if to is None and self.inbox.source is not None:
                to = await self.inbox.source.last(key)
            if to is None:
                raise NotApplied(
                    "no source tells how far it has come: name the place behind which it goes on"
                )
            return int(await self.inbox.reset(key, to))
        if self.ahead is None:
            raise NotApplied("nobody lists the aggregates: name one, and the place behind which it goes on")
        count = 0
        async for key, last in self.ahead():
            item = await self.inbox.items.read(key, fenced=True)
            if item is not None and item.last > last:
                count += await self.inbox.reset(key, last)
        return count

    async def _event(self, of: OpenEffect) -> Event | None:
        source, place = self.inbox.source, of.open.sequence
        if source is None:
            return None
        found = await source.events(of.aggregate, range(place, place + 1), None, fenced=True)
        return next(iter(found), None)

    def _open(self, key: AggregateKey, item: EffectItem) -> list[OpenEffect]:
        found, running = [*item.open], item.running
        if running is not None and not item.is_running(self.inbox.clock()):
            found.append(Open(running.sequence, running.event_id, WhyOpen.STARTED, running.at))
        return [OpenEffect(self._id(key, each), key, each) for each in found]

    def _id(self, key: AggregateKey, of: Open) -> str:
        name = json.dumps([self.subscriber, *key, of.sequence, of.why is WhyOpen.STARTED])
        return hashlib.sha256(name.encode()).hexdigest()[:32]

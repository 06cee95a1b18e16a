"""An operator sees the places of which nobody knows what became of their effects, and gives them up one by one.

What waits, or is to run again, is a message: one that was set aside, or is published again. Here is what only a place
tells: that its effect may have been handled, or that its event is missing.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from cosmos_outbox.inbox.effect import EffectItem, Open
from cosmos_outbox.inbox.effects import EffectInbox
from cosmos_outbox.inbox.errors import EffectRunning, NotApplied, NotSetAside, Settled
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey

_AT_ONCE = 100


@dataclass(frozen=True)
class OpenEffect:
    """An effect that nobody is done with."""

    id: str
    aggregate: AggregateKey
    open: Open


@dataclass(frozen=True)
class EffectPage:
    """Open effects of so many aggregates; the token of the next page."""

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

    async def page(self, size: int, continuation_token: str | None) -> EffectPage:
        """The open effects of so many aggregates. Raises UnknownContinuation, StoreAway."""
        position = self.unseal(continuation_token) if continuation_token else None
        found, position = await self.inbox.items.page(size, position, unfinished=True)
        items = [each for key, item in found for each in self._open(key, item)]
        return EffectPage(items, self.seal(position) if position else None)

    async def since(self) -> Sequence[datetime]:
        """Since when each open effect is one, of 100 aggregates at most. Raises StoreAway."""
        return [each.open.at for each in (await self.page(_AT_ONCE, None)).items]

    async def discard(self, effect_id: str, reason: str) -> None:
        """Give an effect up for good. Raises NotSetAside, NotInTurn, StoreAway."""
        async for key, item in self._items(unfinished=True):
            for each in self._open(key, item):
                if each.id == effect_id:
                    of = Event(each.open.event_id, key, "", each.open.sequence, each.open.at, {})
                    with suppress(Settled):  # somebody else has dealt with it
                        await self.inbox.give_up(of, reason)
                    return
        raise NotSetAside("no open effect has this id: take an id from the list of effects")

    async def reset(self, aggregate_id: str | None = None, to: int = 0) -> int:
        """After a restore, with the subscriber stopped: who is ahead of the source goes on behind its last place.

        ``aggregate_id``: one aggregate goes on behind the place ``to``. Returns how many were changed.

        Raises NotApplied: nobody tells the places; EffectRunning, RecordChanged, StoreAway.
        """
        if aggregate_id is not None:
            return await self._reset(AggregateKey(self.aggregate_type, aggregate_id), to, always=True)
        if (source := self.inbox.source) is None:
            raise NotApplied("no source tells how far it has come: name one aggregate, and its place")
        count = 0
        async for key, _ in self._items(unfinished=False):
            if (last := await source.last(key)) is not None:
                count += await self._reset(key, last)
        return count

    async def _reset(self, key: AggregateKey, to: int, *, always: bool = False) -> int:
        now = self.inbox.clock()
        item = await self.inbox.items.read(key, fenced=True) or EffectItem(to, to + 1, now)
        if item.last <= to and not always:
            return 0
        if item.is_running(now):  # young-runs
            raise EffectRunning("an effect is running: stop the subscriber, and try again in some minutes")
        await self.inbox.items.write(key, EffectItem(to, item.first, now, version=item.version))
        return 1

    async def _items(self, *, unfinished: bool) -> AsyncIterator[tuple[AggregateKey, EffectItem]]:
        position = None
        while True:
            found, position = await self.inbox.items.page(_AT_ONCE, position, unfinished=unfinished)
            for each in found:
                yield each
            if position is None:
                return

    def _open(self, key: AggregateKey, item: EffectItem) -> Sequence[OpenEffect]:
        names = [json.dumps([self.subscriber, *key, each.sequence]) for each in item.open]
        ids = [hashlib.sha256(name.encode()).hexdigest()[:32] for name in names]
        return [OpenEffect(each, key, of) for each, of in zip(ids, item.open, strict=True)]

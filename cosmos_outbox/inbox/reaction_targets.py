"""A message has the same targets each time it comes, also where a look-up tells them.

What the message itself tells is the same each time. A list that is looked up can change between two deliveries: then
some of the one and some of the other would be changed, which are the targets of no time. So it is stored before the
first of them is changed, and only ever created: who comes later goes by what is stored (``list_stored_once``). The
look-up itself reads behind a fence (``list_fenced``): an old list lacks a target that the message is for. Who gives a
message up stores an empty list, if there is none, so that a slow instance finds that (``discard_marks``).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from cosmos_outbox.inbox.errors import ReactionRefused, RecordChanged, StoreAway
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.reaction_decision import list_name

MOST_TARGETS = 100
"""Of one message: its call has to end while its session is held."""

Named = str | Sequence[str] | Mapping[str, str] | None
"""The ids of targets, or each id with its partition key; without one the id is the partition key."""

Targets = Callable[[Event], Named]
"""The targets of a message, the same each time; None: the message is not for this reaction."""

A = TypeVar("A")


class Newest(Protocol):
    """Reads aggregates of the service, as new as the last write that was committed before."""

    async def __call__(
        self, kind: type[A], aggregate_id: str, *, partition_key: str | None = None
    ) -> A | None:
        """None: there is none that lives. Raises StoreAway."""


LookUp = Callable[[Newest, Event], Awaitable[Named]]
"""Finds the targets of a message. It may be called again, until its answer is stored."""


class TargetLists(Protocol):
    """The lists that were looked up for messages. Every call raises StoreAway when it was not answered."""

    @property
    def newest(self) -> Newest:
        """What a look-up reads with."""

    async def read(self, name: str) -> Mapping[str, str] | None:
        """The list, as far as a replica knows."""

    async def find(self, name: str) -> Mapping[str, str] | None:
        """The list: None is proof, of now."""

    async def create(self, name: str, targets: Mapping[str, str], reason: str, until: float) -> None:
        """Store a list; ``until``: by the monotonic clock, no attempt is made that could end later.

        Raises RecordChanged: there is one, by this very call perhaps.
        """


@dataclass(frozen=True)
class LookedUp:
    """The targets of a reaction whose messages do not tell them."""

    reaction: str
    lists: TargetLists
    look_up: LookUp

    async def of(self, event: Event, until: float) -> Mapping[str, str]:
        """Those that are stored for the message, by this call or before.

        Raises:
            ReactionRefused: there are too many; nothing is stored.
            StoreAway: the store did not answer.
            Exception: whatever the look-up raises.
        """
        name = list_name(self.reaction, event)
        if (stored := await self.lists.read(name)) is not None:
            return stored
        targets = few(by_id(await self.look_up(self.lists.newest, event)))
        return await self._store(name, targets, "", until)

    async def find_stored(self, event: Event) -> Mapping[str, str] | None:
        """None: it was not looked up yet, so nothing is changed yet. Raises StoreAway."""
        return await self.lists.find(list_name(self.reaction, event))

    async def give_up(self, event: Event, reason: str, until: float) -> Mapping[str, str]:
        """The targets at which the message is to be given up; from now on it has no others. Raises StoreAway."""
        return await self._store(list_name(self.reaction, event), {}, reason, until)

    async def _store(
        self, name: str, targets: Mapping[str, str], reason: str, until: float
    ) -> Mapping[str, str]:
        """``list_stored_once``: these, or those that another call has stored."""
        try:
            await self.lists.create(name, targets, reason, until)
        except RecordChanged:
            if (stored := await self.lists.find(name)) is None:
                raise StoreAway("the list of targets has expired at this moment: it is tried again") from None
            return stored
        return targets


def by_id(named: Named) -> Mapping[str, str]:
    """The partition keys of the targets by their ids."""
    if named is None:
        return {}
    if isinstance(named, str):
        return {named: named}
    return dict(named) if isinstance(named, Mapping) else {each: each for each in named}


def few(targets: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same. Raises ReactionRefused: one message cannot change so many."""
    if len(targets) > MOST_TARGETS:
        raise ReactionRefused(
            f"the message is for {len(targets)} aggregates, and one can change {MOST_TARGETS}: let their service raise "
            "an event for each group of them"
        )
    return targets

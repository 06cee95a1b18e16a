"""A lost last event leaves no gap behind which it could be found: a sweep compares every entry with its source.

It goes both ways (``sweep-both-ways``): over the entries, and over the sources, since a lost only event has no entry.
It heals what is older than its source and leaves the rest as it is: a difference younger than ``YOUNG`` is on its way;
an aggregate whose events the publisher holds back is marked, and its entry is left; an entry ahead of its source is
reported, since the source was put back or two publishers write it; and so is a deleted entry of a source that lives.

A sweep works for a bounded time, stores how far it came, and goes on from there at its next run.
"""

import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from inbox.decision import Put, hides
from inbox.entry import Entry
from inbox.errors import EntryChanged
from inbox.event import AggregateKey
from inbox.state import StateInbox
from inbox.walk import Lists, Progress, Result, Seen, Side, Walk

S = TypeVar("S")

YOUNG = timedelta(minutes=10)
"""A difference that is younger is left alone: its event is on its way."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sweep(Generic[S]):
    """Compares all entries of one inbox with their sources."""

    inbox: StateInbox[S]
    lists: Lists
    blocked: Callable[[], Awaitable[Collection[AggregateKey]]]
    """The aggregates whose events the publisher holds back."""

    async def run(self, *, seconds: float) -> Progress:
        """Go on with the round, for so many seconds at most. Raises StoreAway."""
        blocked = frozenset(await self.blocked())
        look = {
            Side.ENTRIES: lambda seen: self._entry(seen, blocked),
            Side.SOURCES: lambda seen: self._source(seen, blocked),
        }
        return await Walk("sweep", self.lists, look, self.inbox.clock).run(seconds=seconds)

    async def _entry(self, seen: Seen, blocked: Collection[AggregateKey]) -> Result:
        found = await self.inbox.source.read(seen.key)
        if found is not None and found.sequence < seen.sequence:
            found = await self.inbox.source.newest(seen.key)  # the read may have been an old one
            if found is not None and found.sequence < seen.sequence:
                _log.error(
                    "the entry of %s is ahead of its source, %d to %d: the source was put back. The entry is left as "
                    "it is; after a restore, rebuild the entries",
                    seen.key,
                    seen.sequence,
                    found.sequence,
                )
                return Result.AHEAD
        is_blocked = seen.key in blocked
        if found is not None and found.state is not None and found.sequence == seen.sequence:
            await self._mark(seen, blocked=False)
            return Result.RIGHT
        if is_blocked:
            await self._mark(seen, blocked=True)
            return Result.BLOCKED
        if found is not None and self._is_young(found.changed_at):
            return Result.YOUNG
        return await self._heal(seen.key)

    async def _source(self, seen: Seen, blocked: Collection[AggregateKey]) -> Result:
        """Only a missing or a deleted entry is of interest: every other one was compared on its own side."""
        if seen.deleted:
            return Result.RIGHT
        if (read := await self.inbox.entries.read(seen.key)) is not None:
            return await self._beside(seen.key, read.entry)
        if self._is_young(seen.changed_at):
            return Result.YOUNG
        return Result.BLOCKED if seen.key in blocked else await self._heal(seen.key)

    async def _beside(self, key: AggregateKey, entry: Entry[S]) -> Result:
        """What an entry means for a source that a list shows as living; that list may be an old one."""
        if not entry.deleted or not hides(entry, await self.inbox.source.newest(key)):
            return Result.RIGHT
        _log.error(
            "%s lives, and its entry is a deleted one, at sequence %d, so that no list shows it: the id was used again "
            "after a deletion, or the source was put back. Never use an id twice. To show it now, rebuild the entries "
            "with --source-wins",
            key,
            entry.last_sequence,
        )
        return Result.AHEAD

    async def _heal(self, key: AggregateKey) -> Result:
        return Result.HEALED if isinstance(await self.inbox.heal(key), Put) else Result.RIGHT

    async def _mark(self, seen: Seen, *, blocked: bool) -> None:
        if blocked == (seen.blocked_since is not None):
            return
        read = await self.inbox.entries.read(seen.key)
        if read is None or read.entry.last_sequence != seen.sequence:
            return  # it has moved meanwhile
        try:
            await self.lists.mark(seen.key, read.version, self.inbox.clock() if blocked else None)
        except EntryChanged:
            _log.debug("the entry of %s has moved meanwhile", seen.key)

    def _is_young(self, changed_at: datetime | None) -> bool:
        return changed_at is not None and self.inbox.clock() - changed_at < YOUNG

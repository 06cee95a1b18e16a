"""A rebuild fills the entries from their sources while events go on being applied: the newer of the two wins.

Of one sequence the source's state wins: what an entry lacks of it, an earlier version of the subscriber did not keep.

With ``source_wins``, after a restore, the source wins whatever the sequences say: entries that are ahead are lowered,
entries whose source is gone are removed, and deleted entries of living sources come back. That breaks the rules by
which events are applied (``only-newer``, ``deleted-is-final``): the subscriber must be stopped, and no message left.

An entry of another form, or one that cannot be read, is written again.

A rebuild that was cut off goes on where it ended. One in which the source wins begins anew, and so does one that began
long ago, since its progress may be that of another restore, and one in another form of the entries.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Generic, TypeVar

from cosmos_outbox.inbox.decision import Because, Put
from cosmos_outbox.inbox.entry import Entry, Stamp, VersionedEntry
from cosmos_outbox.inbox.errors import Contended, EntryChanged
from cosmos_outbox.inbox.progress import Result, Seen, Side, WalkProgress
from cosmos_outbox.inbox.state import ATTEMPTS, StateInbox
from cosmos_outbox.inbox.walk import Leg, Lists, Walk
from cosmos_outbox.kernel.aggregate_key import AggregateKey

S = TypeVar("S")

GOES_ON = timedelta(days=1)
"""How long after its beginning a rebuild that was cut off goes on where it ended."""


@dataclass(frozen=True)
class Rebuild(Generic[S]):
    """Writes all entries of one inbox from their sources."""

    inbox: StateInbox[S]
    lists: Lists
    source_wins: bool

    async def run(self, tell: Callable[[WalkProgress], None]) -> WalkProgress:
        """Go on to the end. Raises StoreAway: run it again."""
        look = self._force if self.source_wins else self._heal
        legs = {
            Side.ENTRIES: Leg(lambda at: self.lists.entries(at.position), look),
            Side.SOURCES: Leg(lambda at: self.lists.sources(at.position), look),
        }
        walk = Walk("rebuild", self.lists, legs, self.inbox.clock, tell)
        progress = await self.lists.progress() or WalkProgress(self.inbox.clock())
        return await walk.run(walk.begun(progress) if self._anew(progress) else progress, seconds=None)

    def _anew(self, progress: WalkProgress) -> bool:
        return self.source_wins or self.inbox.clock() - progress.began_at > GOES_ON

    async def _heal(self, seen: Seen) -> Result:
        for _ in range(ATTEMPTS):
            with suppress(EntryChanged):
                return await self._heal_entry(seen)
        raise Contended(f"{seen.key} changed at each of {ATTEMPTS} attempts")

    async def _heal_entry(self, seen: Seen) -> Result:
        """Raises EntryChanged."""
        read = await self.inbox.entries.read(seen.key)
        if read is None and seen.deleted:
            return Result.RIGHT  # a deleted entry is of no use where no message of it can come
        if read is not None and read.entry.state is not None and not seen.deleted:
            found = await self.inbox.source.read(seen.key)
            if found is not None and found.sequence == read.entry.last_sequence:
                return (
                    Result.RIGHT if found.state == read.entry.state else await self._restate(seen.key, read)
                )
        result = await self.inbox.heal(seen.key)
        if not isinstance(result, Put):
            return Result.RIGHT
        return Result.REWRITTEN if result.because is Because.FORM else Result.HEALED

    async def _restate(self, key: AggregateKey, read: VersionedEntry[S]) -> Result:
        """Write the state of the entry's own sequence, of which a version that knew fewer fields kept a part."""
        found = await self.inbox.source.newest(key)
        if found is None or found.state is None or found.sequence != read.entry.last_sequence:
            raise EntryChanged(f"{key} has moved meanwhile")
        stamp = Stamp(self.inbox.clock(), None)
        await self.inbox.entries.put(key, replace(read.entry, state=found.state), stamp, over=read.version)
        return Result.HEALED

    async def _force(self, seen: Seen) -> Result:
        found = await self.inbox.source.newest(seen.key)
        read = await self.inbox.entries.newest(seen.key)
        if found is None:
            if read is None:
                return Result.RIGHT
            await self.inbox.entries.remove(seen.key, over=read.version)
            return Result.HEALED
        if read is None and found.state is None:
            return Result.RIGHT
        same = read is not None and (read.entry.last_sequence, read.entry.state) == (
            found.sequence,
            found.state,
        )
        if read is not None and same and not read.entry.other_form:
            return Result.RIGHT
        entry = Entry(found.sequence, None, found.state, read.entry.healed if read else 0)
        stamp = Stamp(self.inbox.clock(), None)
        await self.inbox.entries.put(seen.key, entry, stamp, over=None if read is None else read.version)
        return Result.HEALED

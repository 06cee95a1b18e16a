"""Repairs entries that differ from their sources, and creates missing ones, where events alone cannot.

A lost last event leaves no gap by which it could be found. So a walk compares entries and sources once a day, and on
an operator's request (``rebuild``):

- It covers the sources, and the entries whose source is gone (``walk-both-ways``: a lost only event has no entry, and
  a removed document is in no list of sources).
- A difference younger than ``YOUNG`` is skipped: its event is on its way. An aggregate whose events the publisher
  holds back is marked, and its entry is kept. Neither applies to a walk on demand.
- An entry ahead of its source is logged and kept, since the source was restored or two publishers write it; so is a
  deleted entry of a living source. Only ``source_wins``, after a restore, takes entries back.
- An entry of another form is written again.

Each event comes from a change of its source. So a daily walk lists the sources changed since the walk before
(``since-the-last-walk``), and costs the same however many aggregates there are. It is whole (over all) if that could
miss something: the first walk; a walk in another form; after a walk that left something unsettled; if no walk began
for half of a tombstone's life, so that a deletion may have expired unseen (``gone-unseen``); and every 60 days, for
damage that no change of a source shows, such as an entry removed by hand.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from cosmos_outbox.inbox.decision import HealReason, Put, hides
from cosmos_outbox.inbox.entry import Entry, Found, Stamp, VersionedEntry
from cosmos_outbox.inbox.errors import EntryChanged
from cosmos_outbox.inbox.ports import SourceList
from cosmos_outbox.inbox.state import StateInbox
from cosmos_outbox.inbox.walk import Counts, Leg, Result, Scan, Side, WalkProgress
from cosmos_outbox.kernel.aggregate_key import AggregateKey

S = TypeVar("S")

EVERY = timedelta(hours=23)
"""The time from one walk's start to the next: less than a day, since the timer fires each hour."""

MOST_GONE = 20
"""The most entries that a daily walk deletes because their sources are gone. More at once suggest a wrong or emptied
source: the walk keeps them, and only a rebuild, which an operator starts, deletes them."""

WHOLE_EVERY = timedelta(days=60)
"""The time between two walks over all; their cost is in :doc:`docs/operate/costs.md`."""

YOUNG = timedelta(minutes=10)
"""A younger difference is skipped: its event is on its way."""

OVERLAP = timedelta(hours=1)
"""How far before the last walk's start a walk looks: more than clock differences, replica lag and ``YOUNG``."""

GOES_ON = timedelta(days=1)
"""How long after its start an interrupted rebuild can be resumed."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Healing(Generic[S]):
    """Compares the entries of one inbox with their sources, and heals them."""

    inbox: StateInbox[S]
    sources: SourceList[S] | None
    """None: another team owns them and they cannot be listed. Then each walk compares every entry with its source."""
    form: int
    """The form in which entries are made now."""
    blocked: Callable[[], Awaitable[Collection[AggregateKey]]]
    """The aggregates whose events the publisher holds back."""
    gone_after: timedelta
    """How long the tombstone of a deleted source is listed."""
    young: timedelta = YOUNG

    async def progress(self) -> WalkProgress | None:
        """Returns the walk's progress; None: none has begun. Raises StoreUnavailable."""
        stored = await self.inbox.entries.progress()
        return None if stored is None else WalkProgress.of(*stored)

    async def run(self, *, seconds: float) -> None:
        """Continue the walk, or begin the daily one, for at most ``seconds``. Raises StoreUnavailable."""
        now, progress = self.inbox.clock(), await self.progress()
        if progress is not None and progress.is_claimed(now):
            return
        if progress is None or progress.form != self.form:
            progress = self._begun(progress, now, whole=True)
        elif progress.side is None:
            if now - progress.began_at < EVERY:
                return
            progress = self._begun(progress, now, whole=self._is_whole(progress, now))
        elif self._may_miss(progress, now):
            progress = self._begun(progress, now, whole=True)
        blocked = () if progress.on_demand else await self.blocked()
        await self._walk(progress, blocked).run(progress, seconds=seconds)

    async def rebuild(
        self, report: Callable[[WalkProgress], None], *, source_wins: bool = False
    ) -> WalkProgress:
        """Compare all to the end; an interrupted rebuild is resumed. Raises StoreUnavailable: run it again.

        ``source_wins``, after a restore: the source wins, whatever the sequences are. Entries that are ahead are
        lowered, those whose source is gone are removed, and deleted ones of living sources come back. That breaks the
        rules by which events are applied (``only-newer``, ``deleted-is-final``): the subscriber must be stopped, and no
        message left. It begins anew each time, since the progress may be that of another restore.
        """
        now, progress = self.inbox.clock(), await self.progress()
        if source_wins or progress is None or not self._goes_on(progress, now):
            progress = replace(self._begun(progress, now, whole=True), on_demand=True)
        walk = self._walk(progress, (), source_wins=source_wins)
        return await replace(walk, report=report).run(progress, seconds=None)

    def _goes_on(self, progress: WalkProgress, now: datetime) -> bool:
        is_cut_off = progress.on_demand and progress.side is not None and progress.form == self.form
        return is_cut_off and now - progress.began_at <= GOES_ON

    def _may_miss(self, progress: WalkProgress, now: datetime) -> bool:
        """``gone-unseen``: whether a source's tombstone may have expired before a walk listed it."""
        return progress.since is not None and now - progress.since > self.gone_after / 2

    def _is_whole(self, progress: WalkProgress, now: datetime) -> bool:
        """Whether the next walk must be whole."""
        at = progress.whole_at
        if self.sources is None or progress.since is None or at is None or now - at >= WHOLE_EVERY:
            return True
        return self._may_miss(progress, now)

    def _begun(self, before: WalkProgress | None, now: datetime, *, whole: bool) -> WalkProgress:
        progress = before or WalkProgress(now, self.form)
        return replace(
            progress,
            began_at=now,
            form=self.form,
            side=Side.ENTRIES if self.sources is None else Side.SOURCES,
            position=None,
            since=None if whole else progress.since,
            on_demand=False,
            counts=Counts(),
        )

    def _walk(
        self, progress: WalkProgress, blocked: Collection[AggregateKey], *, source_wins: bool = False
    ) -> Scan:
        sources = self.sources
        asked = progress.on_demand
        bounds = _Bounds(
            frozenset(blocked),
            None if asked else self.inbox.clock() - self.young,
            math.inf if asked else MOST_GONE - progress.counts.gone,
        )

        async def compare_source(key: AggregateKey, found: Found[S]) -> Result:
            if source_wins:
                return await self._force(key)
            return await self._compare(key, found, await self.inbox.entries.read(key), bounds)

        async def compare_entry(key: AggregateKey, read: VersionedEntry[S]) -> Result:
            if source_wins:
                return await self._force(key)
            found = await self.inbox.source.read(key)
            if found is not None and sources is not None:
                return Result.RIGHT  # compared when the sources were listed, or created since
            return await self._compare(key, found, read, bounds)

        legs: dict[Side, Leg[Any]] = {}
        if sources is not None:
            legs[Side.SOURCES] = Leg(lambda at: sources.page(progress.since, at), compare_source)
        if progress.since is None:
            legs[Side.ENTRIES] = Leg(self.inbox.entries.page, compare_entry)
        return Scan(self.inbox.entries, legs, self.inbox.clock, self._ended)

    @staticmethod
    def _ended(progress: WalkProgress) -> WalkProgress:
        """Let the next walk cover changes since this one's start; if it left any unsettled, since its own ``since``."""
        counts = progress.last_counts
        if counts is None or counts.blocked or counts.failed:
            return progress
        whole_at = progress.began_at if progress.since is None else progress.whole_at
        return replace(progress, since=progress.began_at - OVERLAP, whole_at=whole_at)

    async def _compare(
        self,
        key: AggregateKey,
        found: Found[S] | None,
        read: VersionedEntry[S] | None,
        bounds: "_Bounds",
    ) -> Result:
        """Compare an entry with its source. Both may be old reads: a difference is read consistently before a write."""
        entry = None if read is None else read.entry
        if (entry is None or entry.deleted) and (found is None or found.state is None):
            return Result.RIGHT
        if entry is not None and (entry.deleted or (found and found.sequence < entry.last_sequence)):
            found = await self.inbox.source.newest(key)
            if _is_ahead(key, entry, found):
                return Result.AHEAD
        right = entry is not None and (entry.deleted or _is_shown(entry, found))
        if entry is not None and entry.other_form and found and found.sequence == entry.last_sequence:
            return await self._heal(key)  # no event is missing, so none is waited for
        if right or key in bounds.blocked:
            await self._mark(key, read, blocked=not right)
            return Result.RIGHT if right else Result.BLOCKED
        if found is None:
            return await self._delete(key, bounds)
        return Result.YOUNG if bounds.is_young(found) else await self._heal(key)

    async def _delete(self, key: AggregateKey, bounds: "_Bounds") -> Result:
        """Heal an entry whose source is gone, unless the walk has deleted ``MOST_GONE``."""
        if not bounds.lets_one_go():
            return Result.FAILED
        healed = await self._heal(key)
        return Result.GONE if healed is Result.HEALED else healed

    async def _heal(self, key: AggregateKey) -> Result:
        result = await self.inbox.heal(key)
        if not isinstance(result, Put):
            return Result.RIGHT
        return Result.REWRITTEN if result.because is HealReason.FORM else Result.HEALED

    async def _mark(self, key: AggregateKey, read: VersionedEntry[S] | None, *, blocked: bool) -> None:
        if read is None or blocked == (read.blocked_since is not None):
            return
        with suppress(EntryChanged):  # by an event
            await self.inbox.entries.mark(key, read.version, self.inbox.clock() if blocked else None)

    async def _force(self, key: AggregateKey) -> Result:
        found, read = await self.inbox.source.newest(key), await self.inbox.entries.newest(key)
        if found is None and read is not None:
            await self.inbox.entries.remove(key, over=read.version)
            return Result.HEALED
        if found is None or (read is None and found.state is None):
            return Result.RIGHT
        if read is not None and _is_shown(read.entry, found):
            return Result.RIGHT
        entry = Entry(found.sequence, None, found.state, read.entry.healed if read else 0)
        stamp = Stamp(self.inbox.clock(), None)
        await self.inbox.entries.put(key, entry, stamp, over=None if read is None else read.version)
        return Result.HEALED


@dataclass
class _Bounds:
    """The limits of a walk: blocked aggregates, young differences, and deletions."""

    blocked: Collection[AggregateKey]
    young_from: datetime | None
    """A source changed since then is young; None: no source is."""
    gone_left: float
    """The number of entries that may still be deleted."""

    def is_young(self, found: Found[Any]) -> bool:
        """Whether a difference from this source is too young to heal."""
        return (
            self.young_from is not None
            and found.changed_at is not None
            and found.changed_at >= self.young_from
        )

    def lets_one_go(self) -> bool:
        """Count one deletion; whether it is allowed."""
        self.gone_left -= 1
        if self.gone_left == -1:
            _log.error(
                "more than %d entries have no source any more: the walk leaves the others. Look at the source. If they "
                "are gone, run cosmos-outbox rebuild; where entries were deleted wrongly, with --source-wins",
                MOST_GONE,
            )
        return self.gone_left >= 0


def _is_ahead(key: AggregateKey, entry: Entry[S], newest: Found[S] | None) -> bool:
    """Whether only an operator can take an entry back to its source; ``newest``: read consistently, after the entry."""
    if hides(entry, newest):
        _log.error(
            "%s exists, but its entry was deleted at sequence %d, so that no list shows it: the id was used again "
            "after a deletion, or the source was put back. Never use an id twice. To show it now, rebuild the entries "
            "with --source-wins",
            key,
            entry.last_sequence,
        )
        return True
    if newest is None or entry.deleted or newest.sequence >= entry.last_sequence:
        return False
    _log.error(
        "the entry of %s is ahead of its source, %d to %d: the source was put back. The entry is left as it is; after "
        "a restore, rebuild the entries",
        key,
        entry.last_sequence,
        newest.sequence,
    )
    return True


def _is_shown(entry: Entry[S], found: Found[S] | None) -> bool:
    """Whether an entry equals its source."""
    if found is None or entry.other_form:
        return False
    return (entry.last_sequence, entry.state) == (found.sequence, found.state)

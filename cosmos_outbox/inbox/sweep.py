"""A lost last event leaves no gap behind which it could be found: a sweep compares the entries with their sources.

It heals what is older than its source and leaves the rest as it is: a difference younger than ``YOUNG`` is on its way;
an aggregate whose events the publisher holds back is marked, and its entry is left; an entry ahead of its source is
reported, since the source was put back or two publishers write it; and so is a deleted entry of a source that lives.
What has another form is written again.

An event is of a change of its source. So it is enough to look at the sources that were changed since the last look
(``since-the-last-look``), and at what that could not settle: at rest a sweep costs the same whatever the number of
aggregates. Nothing is looked at before it is ``YOUNG`` by the store's clock, which leaves as much room for replicas
that lag and for a clock that goes back.

A whole round is the net for what no change of a source shows: an entry that somebody removed or changed, a clock that
went back further, a form that an instance of an older version wrote last. It goes both ways (``sweep-both-ways``), over
the entries, and over the sources, since a lost only event has no entry. It is rare, except where it is known to be
needed: at the first start; in another form; where the round before could not settle all; and where no look was for so
long that the tombstone of a deleted source may have expired unseen (``gone-unseen``).

Any number of processes may sweep: they share one progress for the looks and one for the rounds
(:mod:`cosmos_outbox.inbox.walk`).
"""

import logging
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from cosmos_outbox.inbox.decision import Because, Put, hides
from cosmos_outbox.inbox.entry import Entry, Found
from cosmos_outbox.inbox.errors import EntryChanged
from cosmos_outbox.inbox.progress import Result, Seen, SeenPage, Side, WalkProgress
from cosmos_outbox.inbox.state import StateInbox
from cosmos_outbox.inbox.walk import ChangeLists, Leg, Lists, Walk
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic

S = TypeVar("S")

YOUNG = timedelta(minutes=10)
"""A difference that is younger is left alone: its event is on its way."""

LOOK_EVERY = timedelta(minutes=9)
"""How often changes are looked at, whoever asks how often: somewhat less than the ten minutes of the timers."""

ROUND_EVERY = timedelta(days=60)
"""How often all is compared: :doc:`docs/operate/costs.md` says what a round costs."""

ROUND_AGAIN = timedelta(days=1)
"""How soon after a round that could not settle all, or where no look finds what was changed."""

BEFORE_THE_FIRST = timedelta(days=1)
"""How far before its own first start the first look goes back: further than two clocks differ."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sweep(Generic[S]):
    """Compares the entries of one inbox with their sources."""

    inbox: StateInbox[S]
    lists: Lists
    """With the progress of the whole rounds."""
    changes: ChangeLists | None
    """The same lists, with the progress of the looks at what was changed; None: nothing tells what was changed, as of
    another team's sources, and a whole round is due each day."""
    blocked: Callable[[], Awaitable[Collection[AggregateKey]]]
    """The aggregates whose events the publisher holds back."""
    gone_after: timedelta
    """How long the tombstone of a deleted source is there to be seen."""
    young: timedelta = YOUNG

    async def run(self, *, seconds: float) -> None:
        """Do what is due, for so many seconds at most: a look at what was changed, then more of a whole round.

        Raises StoreAway.
        """
        began = monotonic()
        rounds, look = await self.progress()
        now = self.inbox.clock()
        if look is not None and self._may_have_missed(look, rounds):
            rounds = await self._begin_anew(rounds)
            if rounds is None:
                return  # another one has just begun it, or will: the look comes after that
        if self.changes and self._look_is_due(look, now):
            await self.look(look, seconds=seconds)
        left = seconds - (monotonic() - began)
        if left > 0 and self._round_is_due(rounds, now):
            await self.round(rounds, seconds=left)

    async def progress(self) -> tuple[WalkProgress | None, WalkProgress | None]:
        """How far the whole rounds and the looks are; None: none has begun, or there are none. Raises StoreAway."""
        look = await self.changes.progress() if self.changes else None
        return await self.lists.progress(), look

    async def look(self, progress: WalkProgress | None, *, seconds: float) -> WalkProgress:
        """Go on with the look at what was changed. Raises StoreAway."""
        changes, now = self.changes, self.inbox.clock()
        assert changes is not None, "only what is listed can be looked at"
        progress = progress or WalkProgress(now, since=now - BEFORE_THE_FIRST, form=changes.form)
        if progress.side is None:  # the first one looks at nothing: the store's clock is not known yet
            progress = replace(
                progress, until=progress.as_of - self.young if progress.as_of else progress.since
            )
        since, until = progress.since, progress.until
        assert since is not None, "the first look has a beginning"
        assert until is not None, "a look that is under way has an end"
        blocked = frozenset(await self.blocked())
        legs = {
            Side.LEFT: Leg(list_left, lambda seen: self._again(seen.key, blocked, until)),
            Side.CHANGED: Leg(
                lambda at: changes.list_changed(since, until, at.position),
                lambda seen: self._look_at_changed(seen, blocked, until),
            ),
        }
        walk = Walk("look at what was changed", changes, legs, self.inbox.clock)
        if progress.side is None or progress.form != changes.form:
            progress = walk.begun(progress, Side.LEFT if progress.left else Side.CHANGED)
        return await walk.run(progress, seconds=seconds)

    async def round(self, progress: WalkProgress | None, *, seconds: float) -> WalkProgress:
        """Go on with the round over all. Raises StoreAway."""
        progress = progress or WalkProgress(self.inbox.clock())
        blocked, young_from = frozenset(await self.blocked()), self._young_from(progress)
        legs = {
            Side.ENTRIES: Leg(
                lambda at: self.lists.entries(at.position),
                lambda seen: self._entry(seen, blocked, young_from),
            ),
            Side.SOURCES: Leg(
                lambda at: self.lists.sources(at.position),
                lambda seen: self._source(seen, blocked, young_from),
            ),
        }
        return await Walk("sweep", self.lists, legs, self.inbox.clock).run(progress, seconds=seconds)

    def _young_from(self, progress: WalkProgress) -> datetime:
        return (progress.as_of or self.inbox.clock()) - self.young

    def _may_have_missed(self, look: WalkProgress, rounds: WalkProgress | None) -> bool:
        """``gone-unseen``: a source may have been deleted, and its tombstone expired, and no round has begun after."""
        as_of, since = look.as_of, look.since
        if as_of is None or since is None or as_of - since <= self.gone_after:
            return False
        return rounds is None or rounds.began_at < since + self.gone_after

    async def _begin_anew(self, rounds: WalkProgress | None) -> WalkProgress | None:
        """Begin a whole round before the look moves on, else a crash after the look would forget it; None: not now."""
        now = self.inbox.clock()
        rounds = rounds or WalkProgress(now)
        if rounds.is_claimed(now):
            return None
        try:
            return await self.lists.save(rounds.begun(now, Side.ENTRIES, self.lists.form))
        except EntryChanged:
            return None

    def _look_is_due(self, look: WalkProgress | None, now: datetime) -> bool:
        if look is None:
            return True
        if look.is_claimed(now):
            return False
        if look.side is not None:
            return True
        since = look.since or now
        rested = look.last_ended_at is None or now - look.last_ended_at >= LOOK_EVERY
        return rested and self._young_from(look) > since  # a clock that went back has nothing new

    def _round_is_due(self, rounds: WalkProgress | None, now: datetime) -> bool:
        if rounds is None or rounds.last_ended_at is None or rounds.form != self.lists.form:
            return rounds is None or not rounds.is_claimed(now)
        if rounds.is_claimed(now):
            return False
        found = rounds.last_counts
        settled = self.changes is not None and (found is None or not (found.failed or found.blocked))
        return rounds.side is not None or now - rounds.last_ended_at >= (
            ROUND_EVERY if settled else ROUND_AGAIN
        )

    async def _entry(self, seen: Seen, blocked: Collection[AggregateKey], young_from: datetime) -> Result:
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
        if found is not None and found.state is not None and found.sequence == seen.sequence:
            await self._mark(seen, blocked=False)
            return await self._heal(seen.key) if seen.other_form else Result.RIGHT
        if seen.key in blocked:
            await self._mark(seen, blocked=True)
            return Result.BLOCKED
        if found is not None and _is_young(found.changed_at, young_from):
            return Result.YOUNG
        return await self._heal(seen.key)

    async def _source(self, seen: Seen, blocked: Collection[AggregateKey], young_from: datetime) -> Result:
        """Only a missing or a deleted entry is of interest: every other one was compared on its own side."""
        if seen.deleted:
            return Result.RIGHT
        if (read := await self.inbox.entries.read(seen.key)) is not None:
            return await self._beside(seen.key, read.entry)
        return await self._missing(seen, blocked, young_from)

    async def _missing(self, seen: Seen, blocked: Collection[AggregateKey], young_from: datetime) -> Result:
        if _is_young(seen.changed_at, young_from):
            return Result.YOUNG
        return Result.BLOCKED if seen.key in blocked else await self._heal(seen.key)

    async def _look_at_changed(
        self, seen: Seen, blocked: Collection[AggregateKey], young_from: datetime
    ) -> Result:
        """The entry of a source that was changed. Where it is as the list shows the source, nothing more is read."""
        read = await self.inbox.entries.read(seen.key)
        if read is None:
            return Result.RIGHT if seen.deleted else await self._missing(seen, blocked, young_from)
        entry = read.entry
        same = entry.last_sequence == seen.sequence and not seen.deleted
        if entry.deleted:
            return Result.RIGHT if seen.deleted else await self._beside(seen.key, entry)
        if same and read.blocked_since is None and not entry.other_form:
            return Result.RIGHT
        of_entry = replace(
            seen,
            sequence=entry.last_sequence,
            blocked_since=read.blocked_since,
            other_form=entry.other_form,
        )
        return await self._entry(of_entry, blocked, young_from)

    async def _again(self, key: AggregateKey, blocked: Collection[AggregateKey], until: datetime) -> Result:
        """What an earlier look left. While it is blocked, nothing is read."""
        if key in blocked:
            return Result.BLOCKED
        found: Found[S] | None = await self.inbox.source.read(key)
        sequence, deleted = (found.sequence, found.state is None) if found else (0, True)
        changed_at = found.changed_at if found else None
        return await self._look_at_changed(Seen(key, sequence, deleted, changed_at), blocked, until)

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
        result = await self.inbox.heal(key)
        if not isinstance(result, Put):
            return Result.RIGHT
        return Result.REWRITTEN if result.because is Because.FORM else Result.HEALED

    async def _mark(self, seen: Seen, *, blocked: bool) -> None:
        if blocked == (seen.blocked_since is not None):
            return
        read = await self.inbox.entries.read(seen.key)
        if read is None or read.entry.last_sequence != seen.sequence:
            return  # it has moved meanwhile
        with suppress(EntryChanged):  # as before
            await self.lists.mark(seen.key, read.version, self.inbox.clock() if blocked else None)


async def list_left(progress: WalkProgress) -> SeenPage:
    """What an earlier look left, as one page."""
    return SeenPage([Seen(key, 0, deleted=False, changed_at=None) for key in progress.left], None)


def _is_young(changed_at: datetime | None, young_from: datetime) -> bool:
    return changed_at is not None and changed_at >= young_from

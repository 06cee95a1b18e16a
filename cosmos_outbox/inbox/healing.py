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

Progress is stored after each page, so any process can continue. A page whose progress was not saved is walked again, so
the work on an aggregate must be idempotent. A run claims the walk with each page, and no other run begins while the
claim lasts. If another run takes over all the same, this one's next save finds another version and stops it.

If the store is unavailable for one aggregate, that one counts as failed. If it is for all of a page of ``MANY`` or
more, the run ends, and the next run continues after that page: the outage may affect those aggregates alone.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Generic, TypeVar

from cosmos_outbox.inbox.entry import (
    Entry,
    Found,
    Stamp,
    VersionedEntry,
    WalkPage,
    text_or_none,
    time_or_none,
)
from cosmos_outbox.inbox.errors import EntryChanged, StoreUnavailable, reason_of
from cosmos_outbox.inbox.ports import SourceList
from cosmos_outbox.inbox.read_model import HealReason, Put, StateInbox, hides
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.kernel.loops import own_failures

S = TypeVar("S")

AT_ONCE = 8
"""The number of aggregates that are compared concurrently."""

MANY = 20
"""The smallest page on which an unavailable store for all aggregates means an outage."""

CLAIM = timedelta(minutes=5)
"""The time after a page in which a run is assumed to work on the next one."""


class Side(StrEnum):
    """The side that a walk lists."""

    SOURCES = "sources"
    ENTRIES = "entries"


class Result(StrEnum):
    """The result of comparing one aggregate."""

    RIGHT = "right"
    YOUNG = "young"
    HEALED = "healed"
    REWRITTEN = "rewritten"
    """The entry was right, but of another form."""
    BLOCKED = "blocked"
    AHEAD = "ahead"
    GONE = "gone"
    FAILED = "failed"


@dataclass(frozen=True)
class Counts:
    """The results of a walk, counted."""

    sources: int = 0
    entries: int = 0
    healed: int = 0
    rewritten: int = 0
    blocked: int = 0
    ahead: int = 0
    failed: int = 0
    gone: int = 0
    """The healed entries that became deleted ones, since their sources are gone."""

    def plus(self, side: Side, results: Sequence[Result]) -> "Counts":
        """Returns the counts with one more page."""
        more = Counter(each.value for each in results) + Counter({side.value: len(results)})
        more[Result.HEALED.value] += more[Result.GONE.value]
        return Counts(**{name: number + more[name] for name, number in asdict(self).items()})


@dataclass(frozen=True)
class WalkProgress:
    """The progress of a walk, and the counts of the last one."""

    began_at: datetime
    form: int
    """The form of the entries that the walk compares."""
    side: Side | None = None
    """None: the walk has ended."""
    position: str | None = None
    since: datetime | None = None
    """Only sources changed since then, by the store's clock, are walked; None: all, and the entries too."""
    on_demand: bool = False
    """Whether an operator started the walk."""
    whole_at: datetime | None = None
    """The start of the last walk over all that left nothing unsettled."""
    counts: Counts = field(default_factory=Counts)
    last_counts: Counts | None = None
    last_ended_at: datetime | None = None
    claimed_until: datetime | None = None
    version: str | None = None

    def document(self) -> dict[str, Any]:
        """Returns the progress as it is stored, without its version."""
        return {
            "beganAt": self.began_at.isoformat(),
            "form": self.form,
            "side": self.side,
            "position": self.position,
            "since": text_or_none(self.since),
            "onDemand": self.on_demand,
            "wholeAt": text_or_none(self.whole_at),
            "counts": asdict(self.counts),
            "lastCounts": asdict(self.last_counts) if self.last_counts else None,
            "lastEndedAt": text_or_none(self.last_ended_at),
            "claimedUntil": text_or_none(self.claimed_until),
        }

    @classmethod
    def of(cls, document: Mapping[str, Any], version: str) -> "WalkProgress":
        """Returns the progress in a stored document."""
        side, last = document["side"], document["lastCounts"]
        return cls(
            began_at=datetime.fromisoformat(document["beganAt"]),
            form=document["form"],
            side=Side(side) if side else None,
            position=document["position"],
            since=time_or_none(document["since"]),
            on_demand=document["onDemand"],
            whole_at=time_or_none(document["wholeAt"]),
            counts=Counts(**document["counts"]),
            last_counts=Counts(**last) if last else None,
            last_ended_at=time_or_none(document["lastEndedAt"]),
            claimed_until=time_or_none(document["claimedUntil"]),
            version=version,
        )

    def is_claimed(self, now: datetime) -> bool:
        """Whether a run is at work on it."""
        return self.claimed_until is not None and now < self.claimed_until


def _log_end(counts: Counts | None) -> None:
    if counts is None or counts == Counts():
        return
    level = logging.WARNING if counts.healed or counts.ahead or counts.failed else logging.INFO
    _log.log(
        level,
        "a walk has ended: %s",
        ", ".join(f"{name} {number}" for name, number in asdict(counts).items()),
    )


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
        run = _Run(math.inf)
        if not progress.on_demand:
            run = _Run(MOST_GONE - progress.counts.gone, frozenset(await self.blocked()), now - self.young)
        await self._walk(progress, run, seconds=seconds)

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
        run = _Run(math.inf, source_wins=source_wins, report=report)
        return await self._walk(progress, run, seconds=None)

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

    async def _walk(self, progress: WalkProgress, run: "_Run", *, seconds: float | None) -> WalkProgress:
        """Continue to the end or for ``seconds``. Raises StoreUnavailable."""
        try:
            async with asyncio.timeout(seconds):
                progress = await self._save(progress)
                while progress.side is not None:
                    progress = await self._page(progress, progress.side, run)
        except TimeoutError:
            _log.debug("the walk goes on at its next run")
        except EntryChanged:
            _log.info("another process runs this walk: this one stops")
        else:
            _log_end(progress.last_counts)
        return progress

    async def _page(self, progress: WalkProgress, side: Side, run: "_Run") -> WalkProgress:
        """Compare one page and save the progress. Raises StoreUnavailable: the store is unavailable for all."""
        page: WalkPage[Any]
        if side is Side.SOURCES and self.sources is not None:
            page = await self.sources.page(progress.since, progress.position)
        else:
            page = await self.inbox.entries.page(progress.position)
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(key: AggregateKey, listed: Any) -> Result | StoreUnavailable:
            async with slots:
                try:
                    with own_failures():
                        return await self._compare_listed(side, key, listed, run)
                except StoreUnavailable as error:
                    _log.error("the walk cannot compare %s before its next run: %s", key, error)
                    return error
                except Exception as error:  # noqa: BLE001 - one aggregate must not end the walk over the others
                    _log.error("the walk cannot compare %s: %s", key, reason_of(error))
                    return Result.FAILED

        found = await asyncio.gather(*(one(key, listed) for key, listed in page.items))
        away = [each for each in found if isinstance(each, StoreUnavailable)]
        results = [Result.FAILED if isinstance(each, StoreUnavailable) else each for each in found]
        progress = replace(progress, counts=progress.counts.plus(side, results), position=page.position)
        if page.position is None:
            whole = side is Side.SOURCES and progress.since is None
            progress = replace(progress, side=Side.ENTRIES) if whole else self._ended(progress)
        progress = await self._save(progress)
        run.report(progress)
        if len(away) == len(found) >= MANY:
            raise away[-1]
        return progress

    async def _save(self, progress: WalkProgress) -> WalkProgress:
        claim = self.inbox.clock() + CLAIM if progress.side else None
        progress = replace(progress, claimed_until=claim)
        version = await self.inbox.entries.save_progress(progress.document(), over=progress.version)
        return replace(progress, version=version)

    def _ended(self, progress: WalkProgress) -> WalkProgress:
        """Let the next walk cover changes since this one's start; if it left any unsettled, since its own ``since``."""
        counts = progress.counts
        progress = replace(
            progress, side=None, counts=Counts(), last_counts=counts, last_ended_at=self.inbox.clock()
        )
        if counts.blocked or counts.failed:
            return progress
        whole_at = progress.began_at if progress.since is None else progress.whole_at
        return replace(progress, since=progress.began_at - OVERLAP, whole_at=whole_at)

    async def _compare_listed(self, side: Side, key: AggregateKey, listed: Any, run: "_Run") -> Result:
        """``listed``: the call that reads the listed aggregate, or an entry."""
        if run.source_wins:
            return await self._force(key)
        if side is Side.SOURCES:
            return await self._compare(key, listed(), await self.inbox.entries.read(key), run)
        found = await self.inbox.source.read(key)
        if found is not None and self.sources is not None:
            return Result.RIGHT  # compared when the sources were listed, or created since
        return await self._compare(key, found, listed, run)

    async def _compare(
        self,
        key: AggregateKey,
        found: Found[S] | None,
        read: VersionedEntry[S] | None,
        run: "_Run",
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
        if right or key in run.blocked:
            await self._mark(key, read, blocked=not right)
            return Result.RIGHT if right else Result.BLOCKED
        if found is None:
            return await self._delete(key, run)
        return Result.YOUNG if run.is_young(found) else await self._heal(key)

    async def _delete(self, key: AggregateKey, run: "_Run") -> Result:
        """Heal an entry whose source is gone, unless the walk has deleted ``MOST_GONE``."""
        if not run.lets_one_go():
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
class _Run:
    """The limits of one run of a walk, and its report."""

    gone_left: float
    """The number of entries that may still be deleted."""
    blocked: Collection[AggregateKey] = ()
    young_from: datetime | None = None
    """A source changed since then is young; None: no source is."""
    source_wins: bool = False
    report: Callable[[WalkProgress], None] = lambda _: None
    """Called after each page."""

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
            "%s exists, but its entry was deleted at sequence %d, so lists omit it: its id was used again after a "
            "deletion, or the source was restored from a backup. Never use an id twice. To show it now, run "
            "cosmos-outbox rebuild with --source-wins",
            key,
            entry.last_sequence,
        )
        return True
    if newest is None or entry.deleted or newest.sequence >= entry.last_sequence:
        return False
    _log.error(
        "the entry of %s is at sequence %d, ahead of its source at %d: was the source restored from a backup? The "
        "entry stays as it is; after a restore, run cosmos-outbox rebuild with --source-wins",
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

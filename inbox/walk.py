"""A walk goes over all entries and over all sources, page by page, and goes on where it ended, whoever walks next.

What it does with an aggregate is the walker's: a sweep heals, a rebuild fills. A page whose progress was not saved is
looked at again, so what is done with an aggregate must bear being done twice.

A store may be away for one aggregate alone: it is looked at once more at the end of its page, and then left to the next
round. Where very many in a row find it away, the walk ends, and its next run goes on with that page. A page that has
held the walk for half an hour is looked at to its end: those many may be the only ones that find the store away.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from inbox.away import Away
from inbox.errors import EntryChanged, StoreAway
from inbox.event import AggregateKey
from inbox.receiver import told

AT_ONCE = 8
"""How many aggregates are looked at at the same time."""

AWAY_AT = 20
"""How many aggregates in a row must find the store away before it is taken to be away for all.

More than at a retry of messages, which begins elsewhere each time: these come in the store's order, and the same row
would end the walk at the same place until it is held.
"""

HELD = timedelta(minutes=30)
"""So long after the progress was saved, a page holds the walk. In an outage of an hour two pages are gone by."""

_log = logging.getLogger(__name__)


class Side(StrEnum):
    """What a walk goes over: first the entries, then the sources."""

    ENTRIES = "entries"
    SOURCES = "sources"


class Result(StrEnum):
    """What a walk found of one aggregate, or did about it."""

    RIGHT = "right"
    YOUNG = "young"
    HEALED = "healed"
    BLOCKED = "blocked"
    AHEAD = "ahead"
    FAILED = "failed"
    AWAY = "away"
    """The store did not answer for it. It counts as failed."""


@dataclass(frozen=True)
class Seen:
    """An entry or a source, as a list shows it."""

    key: AggregateKey
    sequence: int
    deleted: bool
    changed_at: datetime
    blocked_since: datetime | None = None
    healed: int = 0


@dataclass(frozen=True)
class SeenPage:
    """A page of a list, and where it goes on; None: the list ends here."""

    items: Sequence[Seen]
    position: str | None


@dataclass(frozen=True)
class Counts:
    """What a round found, over both sides."""

    entries: int = 0
    sources: int = 0
    healed: int = 0
    blocked: int = 0
    ahead: int = 0
    failed: int = 0
    healed_ever: int = 0
    """How often the entries that are there now were put right, by events or by sweeps."""

    def plus(self, side: Side, items: Sequence[Seen], results: Sequence[Result]) -> "Counts":
        """With a page more."""
        of_entries = side is Side.ENTRIES
        return Counts(
            entries=self.entries + (len(items) if of_entries else 0),
            sources=self.sources + (0 if of_entries else len(items)),
            healed=self.healed + results.count(Result.HEALED),
            blocked=self.blocked + results.count(Result.BLOCKED),
            ahead=self.ahead + results.count(Result.AHEAD),
            failed=self.failed + results.count(Result.FAILED) + results.count(Result.AWAY),
            healed_ever=self.healed_ever + sum(each.healed for each in items),
        )


@dataclass(frozen=True)
class Progress:
    """How far the present round has come, and what the last whole round found."""

    began_at: datetime
    side: Side = Side.ENTRIES
    position: str | None = None
    counts: Counts = field(default_factory=Counts)
    last_counts: Counts | None = None
    last_ended_at: datetime | None = None
    version: str | None = None
    saved_at: datetime | None = None
    """When an earlier run saved it; None: this run did."""
    ended: bool = False
    """Whether the page before was the last of its round. This is not saved."""

    def after(self, page: SeenPage, results: Sequence[Result], now: datetime) -> "Progress":
        """The progress after a page."""
        counts = self.counts.plus(self.side, page.items, results)
        if page.position is not None:
            return replace(self, position=page.position, counts=counts)
        if self.side is Side.ENTRIES:
            return replace(self, side=Side.SOURCES, position=None, counts=counts)
        return Progress(now, last_counts=counts, last_ended_at=now, version=self.version, ended=True)

    def begun(self, now: datetime) -> "Progress":
        """A round that begins now, after what was before."""
        return replace(self, began_at=now, side=Side.ENTRIES, position=None, counts=Counts(), ended=False)

    @property
    def at_the_beginning(self) -> bool:
        """Whether a round has ended and no other has begun."""
        return self.side is Side.ENTRIES and self.position is None and self.counts == Counts()


class Lists(Protocol):
    """What a walk goes over, and where it notes its progress. Every call raises StoreAway when it was not answered."""

    async def entries(self, position: str | None) -> SeenPage:
        """A page of living entries."""

    async def sources(self, position: str | None) -> SeenPage:
        """A page of sources."""

    async def mark(self, key: AggregateKey, version: str, since: datetime | None) -> None:
        """Note in an entry since when it is blocked, at the version that was read. Raises EntryChanged."""

    async def progress(self) -> Progress | None:
        """The progress that was saved last."""

    async def save(self, progress: Progress) -> Progress:
        """Save at the version that was loaded; with the new one. Raises EntryChanged: somebody else walks."""


Look = Callable[[Seen], Awaitable[Result]]


@dataclass(frozen=True)
class Walk:
    """Looks at each entry and at each source."""

    name: str
    lists: Lists
    look: Mapping[Side, Look]
    now: Callable[[], datetime]
    tell: Callable[[Progress], None] = lambda _: None
    """Called after each page."""
    anew: Callable[[Progress], bool] = lambda _: False
    """Whether a round that was cut off is begun anew."""

    async def run(self, *, seconds: float | None) -> Progress:
        """Go on, to the end of the round or for so many seconds. Raises StoreAway."""
        progress = await self.lists.progress() or Progress(self.now())
        if progress.at_the_beginning or self.anew(progress):
            progress = progress.begun(self.now())
        away = Away(AWAY_AT)
        try:
            async with asyncio.timeout(seconds):
                if progress.version is None:
                    # Else nothing would tell how long the first page of all has held the walk.
                    progress = await self.lists.save(progress)
                while not progress.ended:
                    progress = await self._page(progress, away)
                    self.tell(progress)
        except TimeoutError:
            _log.debug("the %s goes on at its next run", self.name)
        except EntryChanged:
            _log.info("somebody else is at this %s: this run stops", self.name)
        else:
            self._log_end(progress)
        return progress

    async def _page(self, progress: Progress, away: Away) -> Progress:
        side = progress.side
        page = await (self.lists.entries if side is Side.ENTRIES else self.lists.sources)(progress.position)
        is_held = progress.saved_at is not None and self.now() - progress.saved_at >= HELD
        if is_held:
            away = Away(len(page.items) + 1)
        results = await self._looked(side, page.items, away)
        again = [number for number, result in enumerate(results) if result is Result.AWAY]
        if again and (len(again) < AWAY_AT or not is_held):  # else that would take all the time of a run
            each_for_itself = Away(len(again) + 1)
            second = await self._looked(side, [page.items[number] for number in again], each_for_itself)
            if each_for_itself.in_a_row < len(again):
                away.answered()
            for number, result in zip(again, second, strict=True):
                results[number] = result
        self._log_away(side, page.items, results, away)
        after = replace(progress.after(page, results, self.now()), saved_at=None)
        return await self.lists.save(after)

    async def _looked(self, side: Side, items: Sequence[Seen], away: Away) -> list[Result]:
        """Raises StoreAway: it is away for all."""
        look, places = self.look[side], asyncio.Semaphore(AT_ONCE)

        async def one(seen: Seen) -> Result:
            async with places:
                if away.for_all:
                    return Result.AWAY
                try:
                    result = await look(seen)
                except StoreAway as error:
                    away.found(error)
                    return Result.AWAY
                except Exception as error:  # noqa: BLE001 - one aggregate must not end the walk over the others
                    _log.error("the %s cannot compare %s: %s", self.name, seen.key, told(error))
                    result = Result.FAILED
                away.answered()
                return result

        results = await asyncio.gather(*map(one, items))
        if away.for_all and away.error is not None:
            raise away.error
        return results

    def _log_away(self, side: Side, items: Sequence[Seen], results: Sequence[Result], away: Away) -> None:
        if missed := results.count(Result.AWAY):
            first = items[results.index(Result.AWAY)].key
            text = "the %s leaves %d of %d %s to its next round, the first is %s: %s"
            _log.error(text, self.name, missed, len(items), side.value, first, away.error)

    def _log_end(self, progress: Progress) -> None:
        counts = progress.last_counts
        assert counts is not None, "a round has ended"
        level = logging.WARNING if counts.healed or counts.ahead or counts.failed else logging.INFO
        found = ", ".join(f"{name} {number}" for name, number in asdict(counts).items())
        _log.log(level, "a %s has ended: %s", self.name, found)

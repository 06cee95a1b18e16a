"""A walk goes over all entries and over all sources, page by page, and goes on where it ended, whoever walks next.

What it does with an aggregate is the walker's: a sweep heals, a rebuild fills. A page whose progress was not saved is
looked at again, so what is done with an aggregate must bear being done twice.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from inbox.errors import EntryChanged, StoreAway
from inbox.event import AggregateKey
from inbox.receiver import told

AT_ONCE = 8
"""How many aggregates are looked at at the same time."""

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
            failed=self.failed + results.count(Result.FAILED),
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

    def after(self, page: SeenPage, results: Sequence[Result], now: datetime) -> "Progress":
        """The progress after a page."""
        counts = self.counts.plus(self.side, page.items, results)
        if page.position is not None:
            return replace(self, position=page.position, counts=counts)
        if self.side is Side.ENTRIES:
            return replace(self, side=Side.SOURCES, position=None, counts=counts)
        return Progress(began_at=now, last_counts=counts, last_ended_at=now, version=self.version)

    def begun(self, now: datetime) -> "Progress":
        """A round that begins now, after what was before."""
        return Progress(
            now, last_counts=self.last_counts, last_ended_at=self.last_ended_at, version=self.version
        )

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
        try:
            async with asyncio.timeout(seconds):
                while True:
                    progress = await self._page(progress)
                    self.tell(progress)
                    if progress.at_the_beginning:
                        self._log_end(progress)
                        return progress
        except TimeoutError:
            _log.debug("the %s goes on at its next run", self.name)
        except EntryChanged:
            _log.info("somebody else is at this %s: this run stops", self.name)
        return progress

    async def _page(self, progress: Progress) -> Progress:
        of_entries = progress.side is Side.ENTRIES
        page = await (self.lists.entries if of_entries else self.lists.sources)(progress.position)
        look, places = self.look[progress.side], asyncio.Semaphore(AT_ONCE)

        async def one(seen: Seen) -> Result:
            async with places:
                try:
                    return await look(seen)
                except StoreAway:
                    raise
                except Exception as error:  # noqa: BLE001 - one aggregate must not end the walk over the others
                    _log.error("the %s cannot compare %s: %s", self.name, seen.key, told(error))
                    return Result.FAILED

        results = await asyncio.gather(*map(one, page.items))
        return await self.lists.save(progress.after(page, results, self.now()))

    def _log_end(self, progress: Progress) -> None:
        counts = progress.last_counts
        assert counts is not None, "a round has ended"
        level = logging.WARNING if counts.healed or counts.ahead or counts.failed else logging.INFO
        found = ", ".join(f"{name} {number}" for name, number in asdict(counts).items())
        _log.log(level, "a %s has ended: %s", self.name, found)

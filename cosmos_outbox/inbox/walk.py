"""A walk goes over aggregates page by page, and goes on where it ended, whoever walks next and in whichever process.

What it goes over, and what it does with an aggregate, is the walker's: a sweep heals, a rebuild fills. A page whose
progress was not saved is looked at again, so what is done with an aggregate must bear being done twice. Progress of
another form of the entries counts for nothing: the walk begins anew (``progress-of-its-form``).

A walk for a bounded time claims its progress for that time, so that others do not begin the same page; who does all the
same cannot save it. A claim is never given back before its round ends: it runs out.

A store may be away for one aggregate alone: it is looked at once more at the end of its page, and then left to the next
round. Where very many in a row find it away, the walk ends, and its next run goes on with that page. A page that has
held the walk for half an hour is looked at to its end: those many may be the only ones that find the store away.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from cosmos_outbox.inbox.away import Away
from cosmos_outbox.inbox.errors import EntryChanged, StoreAway
from cosmos_outbox.inbox.progress import Counts, Result, Seen, SeenPage, Side, WalkProgress
from cosmos_outbox.inbox.receiver import told
from cosmos_outbox.kernel.aggregate_key import AggregateKey

AT_ONCE = 8
"""How many aggregates are looked at at the same time."""

AWAY_AT = 20
"""How many aggregates in a row must find the store away before it is taken to be away for all.

More than at a retry of messages, which begins elsewhere each time: these come in the store's order, and the same row
would end the walk at the same place until it is held.
"""

HELD = timedelta(minutes=30)
"""So long after the page before, a page holds the walk. In an outage of an hour two pages are gone by."""

CLAIM_MARGIN = timedelta(seconds=30)
"""How much longer than its time a walk is believed to be at it: the last page in hand is saved after it."""

_log = logging.getLogger(__name__)


class Lists(Protocol):
    """What a walk goes over, and where it notes its progress. Every call raises StoreAway when it was not answered."""

    @property
    def form(self) -> int:
        """The form in which entries are made now."""

    async def entries(self, position: str | None) -> SeenPage:
        """A page of living entries."""

    async def sources(self, position: str | None) -> SeenPage:
        """A page of sources."""

    async def mark(self, key: AggregateKey, version: str, since: datetime | None) -> None:
        """Note in an entry since when it is blocked, at the version that was read. Raises EntryChanged."""

    async def progress(self) -> WalkProgress | None:
        """The progress that was saved last."""

    async def save(self, progress: WalkProgress) -> WalkProgress:
        """Save at the version that was loaded; with the new one. Raises EntryChanged: somebody else walks."""


class ChangeLists(Lists, Protocol):
    """Lists of which it can be asked what was changed, too."""

    async def list_changed(self, since: datetime, until: datetime, position: str | None) -> SeenPage:
        """A page of the sources that were last changed in that time, by the store's clock."""


Look = Callable[[Seen], Awaitable[Result]]


@dataclass(frozen=True)
class Leg:
    """One side of a walk: what it goes over, and what is done with each aggregate."""

    page: Callable[[WalkProgress], Awaitable[SeenPage]]
    """The page at the progress."""
    look: Look


@dataclass(frozen=True)
class Walk:
    """Goes over its legs, one after the other."""

    name: str
    lists: Lists
    legs: Mapping[Side, Leg]
    now: Callable[[], datetime]
    tell: Callable[[WalkProgress], None] = lambda _: None
    """Called after each page."""

    def begun(self, progress: WalkProgress, first: Side | None = None) -> WalkProgress:
        """A round that begins now, at the first leg unless another one is given."""
        return progress.begun(self.now(), first or next(iter(self.legs)), self.lists.form)

    async def run(self, progress: WalkProgress, *, seconds: float | None) -> WalkProgress:
        """Go on, to the end of the round or for so many seconds. Raises StoreAway."""
        if progress.side is None or progress.form != self.lists.form:  # progress-of-its-form
            progress = self.begun(progress)
        away = Away(AWAY_AT)
        try:
            async with asyncio.timeout(seconds):
                claim = None if seconds is None else self.now() + timedelta(seconds=seconds) + CLAIM_MARGIN
                progress = await self.lists.save(replace(progress, claimed_until=claim))
                while not progress.ended:
                    progress = await self._page(progress, away)
                    self.tell(progress)
        except TimeoutError:
            _log.debug("the %s goes on at its next run", self.name)
        except EntryChanged:
            _log.info("another one is at this %s: this run stops", self.name)
        else:
            self._log_end(progress)
        return progress

    async def _page(self, progress: WalkProgress, away: Away) -> WalkProgress:
        side = progress.side
        assert side is not None, "a round is under way"
        page = await self.legs[side].page(progress)
        is_held = progress.moved_at is not None and self.now() - progress.moved_at >= HELD
        if is_held:
            away = Away(len(page.items) + 1)
        results = await self._look_at(side, page.items, away)
        again = [number for number, result in enumerate(results) if result is Result.AWAY]
        if again and (len(again) < AWAY_AT or not is_held):  # else that would take all the time of a run
            each_for_itself = Away(len(again) + 1)
            second = await self._look_at(side, [page.items[number] for number in again], each_for_itself)
            if each_for_itself.in_a_row < len(again):
                away.answered()
            for number, result in zip(again, second, strict=True):
                results[number] = result
        self._log_away(side, page.items, results, away)
        sides = [*self.legs, None]
        return await self.lists.save(progress.after(page, results, self.now(), sides[sides.index(side) + 1]))

    async def _look_at(self, side: Side, items: Sequence[Seen], away: Away) -> list[Result]:
        """Raises StoreAway: it is away for all."""
        look, places = self.legs[side].look, asyncio.Semaphore(AT_ONCE)

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

    def _log_end(self, progress: WalkProgress) -> None:
        counts = progress.last_counts
        assert counts is not None, "a round has ended"
        if counts == Counts():
            return
        level = logging.WARNING if counts.healed or counts.ahead or counts.failed else logging.INFO
        found = ", ".join(f"{name} {number}" for name, number in asdict(counts).items())
        _log.log(level, "a %s has ended: %s", self.name, found)

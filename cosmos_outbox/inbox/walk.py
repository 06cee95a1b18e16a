"""Walks over sources and entries page by page; progress is stored after each page, so any process can continue.

A page whose progress was not saved is walked again, so the work on an aggregate must be idempotent. A run claims the
walk with each page, and no other run begins while the claim lasts. If another run takes over all the same, this one's
next save finds another version and stops it.

If the store is unavailable for one aggregate, that one counts as failed. If it is for all of a page of ``MANY`` or
more, the run ends, and the next run continues after that page: the outage may affect those aggregates alone.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Generic, TypeVar

from cosmos_outbox.inbox.entry import WalkPage
from cosmos_outbox.inbox.errors import EntryChanged, StoreUnavailable
from cosmos_outbox.inbox.ports import Entries
from cosmos_outbox.inbox.receiver import reason_of
from cosmos_outbox.inbox.serialization import text_or_none, time_or_none
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.handler_failures import own_failures

T = TypeVar("T")

AT_ONCE = 8
"""The number of aggregates that are compared concurrently."""

MANY = 20
"""The smallest page on which an unavailable store for all aggregates means an outage."""

CLAIM = timedelta(minutes=5)
"""The time after a page in which a run is assumed to work on the next one."""

_log = logging.getLogger(__name__)


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


@dataclass(frozen=True)
class Leg(Generic[T]):
    """One side of a walk: its pages, and the comparison of each aggregate."""

    page: Callable[[str | None], Awaitable[WalkPage[T]]]
    """Returns the page at a position; None: the first."""
    compare: Callable[[AggregateKey, T], Awaitable[Result]]


@dataclass(frozen=True)
class Scan:
    """Runs its legs one after the other."""

    store: Entries[Any]
    """Stores the progress."""
    legs: Mapping[Side, Leg[Any]]
    now: Callable[[], datetime]
    ended: Callable[[WalkProgress], WalkProgress]
    """Returns the progress with which the next walk begins, from that of one that has just ended."""
    report: Callable[[WalkProgress], None] = lambda _: None
    """Called after each page."""

    async def run(self, progress: WalkProgress, *, seconds: float | None) -> WalkProgress:
        """Continue to the end or for ``seconds``. Raises StoreUnavailable."""
        try:
            async with asyncio.timeout(seconds):
                progress = await self._save(progress)
                while progress.side is not None:
                    progress = await self._page(progress, progress.side)
        except TimeoutError:
            _log.debug("the walk goes on at its next run")
        except EntryChanged:
            _log.info("another run is at this walk: this one stops")
        else:
            _log_end(progress.last_counts)
        return progress

    async def _page(self, progress: WalkProgress, side: Side) -> WalkProgress:
        """Compare one page and save the progress. Raises StoreUnavailable: the store is unavailable for all."""
        page = await self.legs[side].page(progress.position)
        found = await self._compare(side, page.items)
        away = [each for each in found if isinstance(each, StoreUnavailable)]
        results = [Result.FAILED if isinstance(each, StoreUnavailable) else each for each in found]
        progress = replace(progress, counts=progress.counts.plus(side, results), position=page.position)
        if page.position is None:
            sides = [*self.legs, None]
            progress = replace(progress, side=sides[sides.index(side) + 1])
        if progress.side is None:
            done = replace(progress, counts=Counts(), last_counts=progress.counts, last_ended_at=self.now())
            progress = self.ended(done)
        progress = await self._save(progress)
        self.report(progress)
        if len(away) == len(found) >= MANY:
            raise away[-1]
        return progress

    async def _save(self, progress: WalkProgress) -> WalkProgress:
        claim = self.now() + CLAIM if progress.side else None
        progress = replace(progress, claimed_until=claim)
        version = await self.store.save_progress(progress.document(), over=progress.version)
        return replace(progress, version=version)

    async def _compare(
        self, side: Side, items: Sequence[tuple[AggregateKey, Any]]
    ) -> list[Result | StoreUnavailable]:
        compare, slots = self.legs[side].compare, asyncio.Semaphore(AT_ONCE)

        async def one(key: AggregateKey, listed: Any) -> Result | StoreUnavailable:
            async with slots:
                try:
                    with own_failures():
                        return await compare(key, listed)
                except StoreUnavailable as error:
                    _log.error("the walk leaves %s to the next one: %s", key, error)
                    return error
                except Exception as error:  # noqa: BLE001 - one aggregate must not end the walk over the others
                    _log.error("the walk cannot compare %s: %s", key, reason_of(error))
                    return Result.FAILED

        return await asyncio.gather(*(one(key, listed) for key, listed in items))


def _log_end(counts: Counts | None) -> None:
    if counts is None or counts == Counts():
        return
    level = logging.WARNING if counts.healed or counts.ahead or counts.failed else logging.INFO
    _log.log(
        level,
        "a walk has ended: %s",
        ", ".join(f"{name} {number}" for name, number in asdict(counts).items()),
    )

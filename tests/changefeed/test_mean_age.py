"""The mean age of what waits, from a few of its changes: near the true one, at a price that does not grow."""

import random
from typing import Any

import pytest

from cosmos_changefeed.ages import mean_time
from cosmos_changefeed.errors import FeedRangeGone
from cosmos_changefeed.feed import ContainerIdentity, FeedPage, FeedReader
from cosmos_changefeed.lease import EpkRange

ALL = EpkRange("", "FF")


class Feed(FeedReader):
    """The changes that are still there, by their LSN, each with its time."""

    def __init__(self, times: dict[int, int]) -> None:
        super().__init__(None, ContainerIdentity("", "", ""))  # type: ignore[arg-type]  # nothing is asked
        self.times = times
        self.reads = 0
        self.items_read = 0
        self.split = False

    async def read(
        self, feed_range: EpkRange, *, continuation: str | None, max_items: int | None = None, **_: Any
    ) -> FeedPage:
        if self.split:
            raise FeedRangeGone("split")
        self.reads += 1
        after = int((continuation or '"0"').strip('"'))
        page = self.page(after, max_items or 100)
        self.items_read += len(page.items)
        return page

    def page(self, after: int, max_items: int = 1) -> FeedPage:
        found = sorted(lsn for lsn in self.times if lsn > after)[:max_items]
        items = [{"_lsn": lsn, "_ts": self.times[lsn]} for lsn in found]
        return FeedPage(items, f'"{after}"', f"0:-1#{max(self.times)}", 1.0)

    async def mean(self, samples: int) -> float | None:
        return await mean_time(self, ALL, self.page(0), max(self.times), samples=samples)


async def test_of_changes_that_come_evenly_the_mean_is_in_the_middle() -> None:
    feed = Feed({lsn: 1000 + lsn for lsn in range(1, 101)})
    assert await feed.mean(8) == pytest.approx(1000 + 50.5)
    assert (feed.reads, feed.items_read) == (8, 8), "an item each"


async def test_a_flood_after_one_old_change_is_not_taken_for_old() -> None:
    """One change waits for an hour, and 1000 came just now: the average is near now, not half an hour."""
    feed = Feed({1: 0} | dict.fromkeys(range(2, 1002), 3600))
    assert await feed.mean(8) == pytest.approx(3600, abs=3600 / 16)
    assert feed.reads == 8


async def test_it_is_never_further_off_than_it_says() -> None:
    luck = random.Random()
    for _ in range(200):
        at, times = 0, {}
        for lsn in range(1, luck.randint(3, 400)):
            at += luck.choice((0, 0, 0, 1, 100))
            times[lsn] = at
        true, span = sum(times.values()) / len(times), max(times.values()) - min(times.values())
        feed = Feed(times)
        found = await feed.mean(8)
        assert found is not None
        assert abs(found - true) <= span / 16 + span / len(times) + 1e-6, times
        assert feed.reads <= 8

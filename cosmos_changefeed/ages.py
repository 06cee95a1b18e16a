"""Estimates the mean age of waiting changes from a few samples, however many wait.

Times grow with the LSN. So samples at equal LSN distances, from the oldest change without a checkpoint to the newest,
bound the time of each transaction between them: with n samples the mean is off by at most 1/(2n) of the time from the
oldest to the newest. Each costs the read of one item.
"""

import asyncio
from itertools import pairwise

from cosmos_changefeed.errors import FeedRangeGone
from cosmos_changefeed.feed import FeedPage, FeedReader
from cosmos_changefeed.lease import EpkRange


async def mean_time(
    reader: FeedReader, feed_range: EpkRange, first: FeedPage, newest: int, *, samples: int
) -> float | None:
    """Returns the mean write time of the transactions from the page's first change to ``newest``, as a POSIX time.

    None: the range was split during the reads. Raises the SDK's errors.
    """
    oldest = int(first.items[0]["_lsn"])
    known = {oldest: _time(first)}
    wanted = {oldest + round(number * (newest - oldest) / samples) for number in range(samples + 1)}
    try:
        pages = await asyncio.gather(
            *(
                reader.read(feed_range, continuation=f'"{lsn - 1}"', start="Beginning", max_items=1)
                for lsn in sorted(wanted - {oldest})
            )
        )
    except FeedRangeGone:
        return None
    known |= {int(page.items[0]["_lsn"]): _time(page) for page in pages if page.items}
    return _mean(sorted(known.items()), newest)


def _time(page: FeedPage) -> float:
    return min(float(item["_ts"]) for item in page.items)


def _mean(known: list[tuple[int, float]], newest: int) -> float:
    """Returns the mean, interpolating between known times; changes after the last one count with its time."""
    oldest, (last, at) = known[0][0], known[-1]
    if newest <= oldest:
        return at
    whole = sum((right - left) * (before + after) / 2 for (left, before), (right, after) in pairwise(known))
    return (whole + max(0, newest - last) * at) / max(newest - oldest, last - oldest)

"""The mean age of what waits is known from a few of its changes, however many wait.

Times grow with the LSN. So some LSNs, at equal distances from the oldest change without a checkpoint to the newest one,
tell the time of each transaction between them to within the step they are in: with n of them the mean is off by at most
1/(2n) of the time from the oldest to the newest. Each costs the read of one item.
"""

import asyncio
from itertools import pairwise

from cosmos_changefeed.errors import FeedRangeGone
from cosmos_changefeed.feed import FeedPage, FeedReader
from cosmos_changefeed.lease import EpkRange


async def mean_time(
    reader: FeedReader, feed_range: EpkRange, first: FeedPage, newest: int, *, samples: int
) -> float | None:
    """When the transactions from the page's first change up to ``newest`` were written, on average; a POSIX time.

    None: the range was split meanwhile. Raises the SDK's errors.
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
    """Between two that are known times grow evenly; behind the last one there is nothing newer, or only a little."""
    oldest, (last, at) = known[0][0], known[-1]
    if newest <= oldest:
        return at
    whole = sum((right - left) * (before + after) / 2 for (left, before), (right, after) in pairwise(known))
    return (whole + max(0, newest - last) * at) / max(newest - oldest, last - oldest)

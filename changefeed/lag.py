"""The lag of a lease is counted as the .NET SDK's estimator counts it, so that both show the same number.

The unit of the lag is transactions of the physical partition, not items and not time. Transactions of all partition
keys in the physical partition count.
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

from azure.cosmos.aio import ContainerProxy

from changefeed.feed import FeedPage, FeedReader
from changefeed.lease import EpkRange, Lease
from changefeed.lease_store import LeaseStore

NOTHING_CHECKPOINTED = 1
"""The lag of a lease before its first checkpoint: the true lag is not known."""


@dataclass(frozen=True)
class LeaseLag:
    """How far the processing of one lease is behind."""

    lease_token: str
    owner: str | None
    lag: int
    """Transactions without a checkpoint; 0: all are handled; 1 also before the first checkpoint."""
    waiting_since: datetime | None
    """When the oldest change without a checkpoint was written, to the second; None when no change waits. Watch this
    time rather than the lag: the lag counts transactions, whatever their age.
    """


async def estimate_lag(
    monitored: ContainerProxy, leases: ContainerProxy, *, lease_prefix: str = ""
) -> list[LeaseLag]:
    """The lag of every lease of a processor, whether the processor runs or not. Costs one small read for each lease.

    The list is empty when no processor was ever started with this prefix. Raises the SDK's errors.
    """
    reader = await FeedReader.open(monitored)
    store = LeaseStore(leases, monitored=reader.identity, prefix=lease_prefix)
    return list(await asyncio.gather(*(_lag_of(lease, reader) for lease in await store.all())))


async def _lag_of(lease: Lease, reader: FeedReader) -> LeaseLag:
    if lease.feed_range is None:
        return LeaseLag(lease.token, lease.owner, NOTHING_CHECKPOINTED, None)
    page = await _first_change(lease.feed_range, lease.continuation, reader)
    lag = NOTHING_CHECKPOINTED if lease.continuation is None else transactions_behind(page)
    return LeaseLag(lease.token, lease.owner, lag, _written_at(page))


async def _first_change(feed_range: EpkRange, continuation: str | None, reader: FeedReader) -> FeedPage:
    return await reader.read(feed_range, continuation=continuation, start="Beginning", max_items=1)


def _written_at(page: FeedPage) -> datetime | None:
    """The time of the page's oldest item. Items of a later page are not older; inside a page any order is possible."""
    times = [int(item["_ts"]) for item in page.items]
    return datetime.fromtimestamp(min(times), UTC) if times else None


def transactions_behind(page: FeedPage) -> int:
    """The lag, from the page after the checkpoint: the partition's LSN minus the LSN before the first change."""
    newest = session_lsn(page.session_token)
    last_handled = int(page.items[0]["_lsn"]) - 1 if page.items else newest
    return max(0, newest - last_handled)


def session_lsn(session_token: str) -> int:
    """The LSN in a session token: 12 for ``0:-1#12`` and for ``0:12``."""
    version = session_token.partition(":")[2] or session_token
    segments = version.split("#")
    return int(segments[1] if len(segments) > 1 else segments[0])

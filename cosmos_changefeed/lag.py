"""Measures the lag of every part of a feed, whether a processor runs or not, and names the parts without a lease.

The lag of a lease is counted as by the .NET SDK's estimator, so that both show the same number. The unit is
transactions of the physical partition, not items and not time. Transactions of all partition keys in the physical
partition count. Unlike that estimator, this one also measures a lease whose partition was split while no processor
ran, in the partitions that hold its range now.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from azure.cosmos.aio import ContainerProxy

from cosmos_changefeed.coverage import common, find_gaps, leases_for
from cosmos_changefeed.errors import FeedRangeGone
from cosmos_changefeed.feed import FeedPage, FeedReader
from cosmos_changefeed.lease import EpkRange, Lease
from cosmos_changefeed.lease_store import LeaseStore
from cosmos_changefeed.splitting import without_parents

NOTHING_CHECKPOINTED = 1
"""The lag of a lease before its first checkpoint: the true lag is not known."""

_ATTEMPTS_DURING_SPLITS = 4


@dataclass(frozen=True)
class PartitionLag:
    """The progress in the part of a lease's range that one physical partition holds."""

    partition: str
    """The partition's id, as session tokens name it."""
    feed_range: EpkRange
    newest: int
    """The LSN of the newest transaction on the replica that answered."""
    waiting: int | None
    """The LSN of the oldest change without a checkpoint, on that replica; None: none waits."""

    def is_past(self, lsn: int) -> bool:
        """Whether every change up to this LSN has a checkpoint; independent of clocks and of lagging replicas.

        A replica that shows a change has all earlier ones, in the order of the LSNs.
        """
        return self.newest >= lsn if self.waiting is None else self.waiting > lsn


@dataclass(frozen=True)
class LeaseLag:
    """The lag of one lease."""

    lease_token: str
    owner: str | None
    lag: int
    """Transactions without a checkpoint; 0: all are handled; 1 also before the first checkpoint.

    After a split the sum of the children's, in which a transaction from before the split counts for each of them.
    """
    waiting_since: datetime | None
    """The write time of the oldest change without a checkpoint, to the second; None: no change waits. Watch this
    time rather than the lag: the lag counts transactions, whatever their age.
    """
    position: int | None = None
    """The LSN up to which all is handled; None before the first checkpoint. The difference of two readings of a lease
    is the number of transactions handled in between, by whichever instance."""
    partitions: Sequence[PartitionLag] = ()
    """The partitions that hold the range now: several after a split that no processor has followed yet."""
    feed_range: EpkRange | None = None
    """The keys that the lease covers; None for a lease of an old .NET version."""
    stored_at: datetime | None = None
    """The time of the lease's last write, by the store's clock; its owner renews it regularly."""

    @property
    def newest(self) -> int | None:
        """The LSN of the partition's newest transaction; None if the range lies in several partitions."""
        return self.partitions[0].newest if len(self.partitions) == 1 else None


@dataclass(frozen=True)
class FeedLag:
    """The lag of a whole feed."""

    leases: list[LeaseLag]
    missing: list[str]
    """The tokens of missing leases, whose partitions no instance works on. All, before the first start."""

    def is_past(self, session_token: str) -> bool | None:
        """Whether every change up to the token has a checkpoint, in all partitions that the token names.

        None: not known, since a partition has no lease or was split since: take another token.
        """
        named = [(each.partition(":")[0], _lsn(each)) for each in session_token.split(",")]
        found = [
            [
                part.is_past(lsn)
                for lease in self.leases
                for part in lease.partitions
                if part.partition == name
            ]
            for name, lsn in named
        ]
        return all(map(all, found)) if all(found) else None


async def estimate_lag(
    monitored: ContainerProxy,
    leases: ContainerProxy,
    *,
    lease_prefix: str = "",
    session_token: str | None = None,
) -> FeedLag:
    """Returns the lag of every lease of a processor, running or not. Costs one small read for each lease.

    A replica that lags shows less than there is. With a session token of the monitored container no change written
    before the token is missed; a token for several physical partitions is their tokens, joined by commas.

    Raises the SDK's errors; LeasesUnusable for a lease that cannot be read; FeedRangeGone if the partitions keep
    splitting during the reads: call again.
    """
    reader = await FeedReader.open(monitored)
    store = LeaseStore(leases, monitored=reader.identity, prefix=lease_prefix)
    found = without_parents(await store.all())
    missing = await _missing(found, store, reader)
    lags = await asyncio.gather(*(_lag_of(lease, reader, session_token) for lease in found))
    return FeedLag(list(lags), missing)


async def _missing(leases: list[Lease], store: LeaseStore, reader: FeedReader) -> list[str]:
    gaps = await find_gaps(leases, reader)
    if not gaps:
        return []
    # One query may see neither the children's leases nor the parent's, if a split is followed at that moment.
    gaps = common(gaps, await find_gaps(await store.all(), reader))
    return [lease.token for lease in leases_for(gaps, await reader.partitions(), lease_id=store.lease_id)]


async def _lag_of(lease: Lease, reader: FeedReader, session_token: str | None) -> LeaseLag:
    if lease.feed_range is None:
        return LeaseLag(lease.token, lease.owner, NOTHING_CHECKPOINTED, None, stored_at=lease.stored_at)
    parts = await _first_changes(lease.feed_range, lease.continuation, reader, session_token)
    pages = [page for _, page in parts]
    behind = sum(transactions_behind(page) for page in pages)
    return LeaseLag(
        lease.token,
        lease.owner,
        NOTHING_CHECKPOINTED if lease.continuation is None else behind,
        min((time for page in pages if (time := _written_at(page))), default=None),
        position=None if lease.continuation is None else int(lease.continuation.strip('"')),
        partitions=[_partition_lag(*part) for part in parts],
        feed_range=lease.feed_range,
        stored_at=lease.stored_at,
    )


async def _first_changes(
    feed_range: EpkRange, continuation: str | None, reader: FeedReader, session_token: str | None
) -> list[tuple[EpkRange, FeedPage]]:
    """Returns each physical partition's part of the range, and the first page after the continuation in it."""
    parts = [feed_range]
    for _ in range(_ATTEMPTS_DURING_SPLITS):
        try:
            pages = await asyncio.gather(
                *(
                    reader.read(
                        part,
                        continuation=continuation,
                        start="Beginning",
                        max_items=1,
                        session_token=session_token,
                    )
                    for part in parts
                )
            )
        except FeedRangeGone:
            parts = common([feed_range], await reader.ranges())
        else:
            return list(zip(parts, pages, strict=True))
    raise FeedRangeGone(f"{feed_range} is split again and again while its lag is read: try again")


def _partition_lag(feed_range: EpkRange, page: FeedPage) -> PartitionLag:
    waiting = int(page.items[0]["_lsn"]) if page.items else None
    newest = session_lsn(page.session_token)
    return PartitionLag(page.session_token.partition(":")[0], feed_range, newest, waiting)


def _written_at(page: FeedPage) -> datetime | None:
    """Returns the time of the page's oldest item. Later pages have no older ones; a page has no order of times."""
    times = [int(item["_ts"]) for item in page.items]
    return datetime.fromtimestamp(min(times), UTC) if times else None


def transactions_behind(page: FeedPage) -> int:
    """Returns the lag from the page after the checkpoint: the partition's LSN minus the LSN before the first change."""
    newest = session_lsn(page.session_token)
    last_handled = int(page.items[0]["_lsn"]) - 1 if page.items else newest
    return max(0, newest - last_handled)


def session_lsn(session_token: str) -> int:
    """Returns the LSN in a session token: 12 for ``0:-1#12`` and for ``0:12``; of tokens joined by commas the highest.

    Tokens are joined if a partition was split: a child's LSNs continue those of its parent.
    """
    return max(map(_lsn, session_token.split(",")))


def _lsn(session_token: str) -> int:
    version = session_token.partition(":")[2] or session_token
    segments = version.split("#")
    return int(segments[1] if len(segments) > 1 else segments[0])

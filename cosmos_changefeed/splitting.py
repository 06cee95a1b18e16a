"""The leases that follow a split cover exactly the range of the old lease, and start at its position.

The rule is that of the .NET SDK (``PartitionSynchronizerCore.HandlePartitionGoneAsync``).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from cosmos_changefeed.errors import LeasesUnusable
from cosmos_changefeed.feed import PhysicalPartition
from cosmos_changefeed.lease import EpkRange, Lease, LeaseVersion


def successors(
    lease: Lease, partitions: Sequence[PhysicalPartition], *, lease_id: Callable[[str], str]
) -> list[Lease]:
    """The leases that replace ``lease``, not yet stored and without an owner.

    Raises:
        LeasesUnusable: the range of ``lease`` is not known, or lies in one partition.
    """
    covered = _range_of(lease)
    overlapping = [each for each in partitions if each.feed_range.overlaps(covered)]
    if len(overlapping) < 2:
        raise LeasesUnusable(
            f"lease {lease.token} was reported split, but {covered} is served by {overlapping}"
        )
    if lease.version is LeaseVersion.PARTITION_KEY_RANGE:
        return [_successor(lease, each.id, each.feed_range, lease_id) for each in overlapping]
    pieces = [each.feed_range.intersection(covered) for each in overlapping]
    return [_successor(lease, f"{piece.min}-{piece.max}", piece, lease_id) for piece in pieces]


def _range_of(lease: Lease) -> EpkRange:
    if lease.feed_range is None:
        raise LeasesUnusable(f"lease {lease.token} does not say which range it covers")
    return lease.feed_range


def _successor(lease: Lease, token: str, feed_range: EpkRange, lease_id: Callable[[str], str]) -> Lease:
    return replace(lease, id=lease_id(token), token=token, feed_range=feed_range, owner=None, etag=None)

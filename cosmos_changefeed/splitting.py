"""Computes the leases that follow a split: they cover exactly the old lease's range, and start at its position.

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
    """Returns the leases that replace ``lease``, not yet stored and without an owner.

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


def without_parents(leases: Sequence[Lease]) -> list[Lease]:
    """Returns the leases to work on: all but those whose whole range is covered by smaller ones.

    Such a lease was split and could not be deleted, for example without the permission to delete. Its successors start
    at its position: working on it too would deliver everything twice.
    """
    return [lease for lease in leases if not _is_parent(lease, leases)]


def _is_parent(lease: Lease, leases: Sequence[Lease]) -> bool:
    if lease.feed_range is None:
        return False
    reached = lease.feed_range.min
    inner = [
        each.feed_range
        for each in leases
        if each.feed_range is not None and each.id != lease.id and each.feed_range != lease.feed_range
        if each.feed_range.intersection(lease.feed_range) == each.feed_range
    ]
    for each in sorted(inner, key=lambda each: each.min):
        if each.min > reached:
            return False
        reached = max(reached, each.max)
    return reached >= lease.feed_range.max


def _range_of(lease: Lease) -> EpkRange:
    if lease.feed_range is None:
        raise LeasesUnusable(f"lease {lease.token} does not say which range it covers")
    return lease.feed_range


def _successor(lease: Lease, token: str, feed_range: EpkRange, lease_id: Callable[[str], str]) -> Lease:
    return replace(lease, id=lease_id(token), token=token, feed_range=feed_range, owner=None, etag=None)

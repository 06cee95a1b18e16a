"""Finds the gaps between leases, and the leases that fill them: every key belongs to a lease or to a gap."""

from collections.abc import Callable, Iterable, Sequence

from cosmos_changefeed.feed import FeedReader, PhysicalPartition
from cosmos_changefeed.lease import EpkRange, Lease, LeaseVersion

ALL_KEYS = EpkRange("", "FF")


def gaps(covered: Iterable[EpkRange]) -> list[EpkRange]:
    """Returns the parts of the key space that are in none of the ranges, in order."""
    found: list[EpkRange] = []
    reached = ALL_KEYS.min
    for each in sorted(covered, key=lambda each: each.min):
        if each.min > reached:
            found.append(EpkRange(reached, each.min))
        reached = max(reached, each.max)
    if reached < ALL_KEYS.max:
        found.append(EpkRange(reached, ALL_KEYS.max))
    return found


def common(some: Iterable[EpkRange], others: Sequence[EpkRange]) -> list[EpkRange]:
    """Returns the parts that are in both."""
    return [one.intersection(other) for one in some for other in others if one.overlaps(other)]


async def find_gaps(leases: Sequence[Lease], reader: FeedReader) -> list[EpkRange]:
    """Returns the gaps between leases. A lease covers its whole range, also after its partition was split.

    Asks the service only if a lease of an old .NET version names its partition without the range.
    """
    covered = [lease.feed_range for lease in leases if lease.feed_range is not None]
    nameless = {lease.token for lease in leases if lease.feed_range is None}
    if nameless:
        covered += [each.feed_range for each in await reader.partitions() if each.id in nameless]
    return gaps(covered)


def leases_for(
    missing: Iterable[EpkRange], partitions: Sequence[PhysicalPartition], *, lease_id: Callable[[str], str]
) -> list[Lease]:
    """Returns new leases that fill the gaps, without owner and checkpoint: one for each physical partition in a gap.

    A gap that ends inside a partition, as after a merge, gets a lease of that part of the key space.
    """
    found: list[Lease] = []
    for gap in missing:
        for partition in partitions:
            if not partition.feed_range.overlaps(gap):
                continue
            piece = partition.feed_range.intersection(gap)
            if piece == partition.feed_range:
                found.append(Lease(lease_id(partition.id), partition.id, piece))
            else:
                token = f"{piece.min}-{piece.max}"
                found.append(Lease(lease_id(token), token, piece, version=LeaseVersion.EPK_RANGE))
    return found

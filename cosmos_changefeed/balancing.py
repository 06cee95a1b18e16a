"""Decides which leases an instance takes; the instances' decisions converge, so that shares differ by at most one.

Each decides alone, from the same documents, by the .NET SDK's ``EqualPartitionsBalancingStrategy``: both can share.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from math import ceil

from cosmos_changefeed.lease import Lease


def leases_to_take(
    leases: Sequence[Lease], *, owner: str, now: datetime, expiration_seconds: float
) -> list[Lease]:
    """Returns the leases that ``owner`` should acquire: free ones up to its share, otherwise one of the richest owner.

    An owner whose leases have all expired does not count as an instance; ``owner`` itself always counts.
    """
    expiration = timedelta(seconds=expiration_seconds)
    free: list[Lease] = []
    taken: list[Lease] = []
    for lease in leases:
        (free if lease.owner is None or lease.timestamp + expiration < now else taken).append(lease)
    shares = Counter(lease.owner for lease in taken if lease.owner is not None)
    shares.setdefault(owner, 0)
    target = ceil(len(leases) / len(shares))
    missing = target - shares[owner]
    if missing <= 0:
        return []
    if free:
        return free[:missing]
    return _steal(taken, shares, target, missing)


def _steal(taken: Iterable[Lease], shares: Counter[str], target: int, missing: int) -> list[Lease]:
    richest, count = shares.most_common(1)[0]
    # An instance that needs more than one lease may take one from an instance that has exactly the target: otherwise,
    # with 4 leases over 3 instances at 2, 2 and 0, the third instance would get no lease.
    if count <= target - (1 if missing > 1 else 0):
        return []
    return [next(lease for lease in taken if lease.owner == richest)]

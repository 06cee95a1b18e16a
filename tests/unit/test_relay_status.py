"""How far the relay is follows from the oldest change that waits, and is unknown where a lease is missing."""

from datetime import UTC, datetime

import pytest

from cosmos_changefeed import EpkRange, FeedLag, LeaseLag, PartitionLag
from cosmos_outbox.cosmos.maintenance.event_list import KeyProgress

ALL = EpkRange("", "FF")


def at(second: int | None) -> datetime | None:
    return None if second is None else datetime.fromtimestamp(second, UTC)


def part(newest: int, waiting: int | None, name: str = "0") -> PartitionLag:
    return PartitionLag(name, ALL, newest, waiting)


@pytest.mark.parametrize(
    ("newest", "waiting", "token", "past"),
    [
        (7, None, "0:-1#7", True),
        (7, 8, "0:-1#7", True),
        (8, None, "0:-1#7", True),
        (7, 7, "0:-1#7", False),
        (9, 3, "0:-1#7", False),
        (6, None, "0:-1#7", False),  # a replica that lags
        (6, 5, "0:-1#7", False),
        (7, None, "0:-1#8#1=6", False),
        (7, None, "0:-1#5,1:-1#8", False),  # of a partition that was split: the child counts on
        (8, None, "0:-1#5,1:-1#8", True),
        (7, None, "0:7", True),
        (7, None, None, False),
    ],
)
def test_by_the_numbers_of_transactions_alone(
    newest: int, waiting: int | None, token: str | None, *, past: bool
) -> None:
    """A waiting change that the clock has put after the change, or before it, says nothing."""
    for waits_since in (None, at(1), at(1001)):
        assert KeyProgress("0", waits_since, part(newest, waiting)).is_past(token) is past


def test_without_a_partition_nothing_is_known() -> None:
    assert not KeyProgress(None, None).is_past("0:-1#7")
    assert not KeyProgress("0", None).is_past("0:-1#7")


def lease(*parts: PartitionLag) -> LeaseLag:
    return LeaseLag("l", None, 0, None, 5, parts, ALL)


@pytest.mark.parametrize(
    ("leases", "token", "past"),
    [
        ([lease(part(7, None)), lease(part(90, None, "1"))], "0:-1#7,1:-1#90", True),
        ([lease(part(7, None)), lease(part(90, 90, "1"))], "0:-1#7,1:-1#90", False),
        ([lease(part(7, None), part(90, 90, "1"))], "0:-1#7,1:-1#90", False),  # a split nobody has followed
        ([lease(part(7, None), part(90, 91, "1"))], "0:-1#7,1:-1#90", True),
        (
            [lease(part(7, 7)), lease(part(7, None))],
            "0:-1#7",
            False,
        ),  # the lease of the parent is still there
        ([lease(part(7, None))], "0:-1#7,1:-1#90", None),  # no lease, or no such partition any more
        ([lease(part(7, 3))], "0:-1#7,1:-1#90", None),
        ([], "0:-1#7", None),
    ],
)
def test_of_all_partitions_each_goes_by_its_own_numbers(
    leases: list[LeaseLag], token: str, *, past: bool | None
) -> None:
    assert FeedLag(leases, []).is_past(token) is past

"""The leases after a split cover the range of the old lease, and start at its position."""

import pytest

from cosmos_changefeed.errors import LeasesUnusable
from cosmos_changefeed.feed import PhysicalPartition
from cosmos_changefeed.lease import EpkRange, Lease, LeaseVersion
from cosmos_changefeed.splitting import successors, without_parents

PARTITIONS = [
    PhysicalPartition("1", EpkRange("", "3F")),
    PhysicalPartition("2", EpkRange("3F", "7F")),
    PhysicalPartition("3", EpkRange("7F", "FF")),
]


def lease_id(token: str) -> str:
    return f"prefix..{token}"


def test_each_child_partition_gets_a_lease_at_the_position_of_the_parent() -> None:
    parent = Lease("prefix..0", "0", EpkRange("", "7F"), "me", '"42"', properties={"k": "v"}, etag='"e"')

    children = successors(parent, PARTITIONS, lease_id=lease_id)

    assert [(each.id, each.token, each.feed_range) for each in children] == [
        ("prefix..1", "1", EpkRange("", "3F")),
        ("prefix..2", "2", EpkRange("3F", "7F")),
    ]
    assert {each.continuation for each in children} == {'"42"'}
    assert {each.owner for each in children} == {None}
    assert [each.properties for each in children] == [{"k": "v"}, {"k": "v"}]


def test_a_lease_of_a_range_is_cut_at_the_partitions_borders() -> None:
    """What the .NET processor leaves after a merge: a range that is not a partition's."""
    parent = Lease("prefix..1F-9F", "1F-9F", EpkRange("1F", "9F"), version=LeaseVersion.EPK_RANGE)

    children = successors(parent, PARTITIONS, lease_id=lease_id)

    assert [(each.id, each.feed_range) for each in children] == [
        ("prefix..1F-3F", EpkRange("1F", "3F")),
        ("prefix..3F-7F", EpkRange("3F", "7F")),
        ("prefix..7F-9F", EpkRange("7F", "9F")),
    ]
    assert {each.version for each in children} == {LeaseVersion.EPK_RANGE}


def test_a_range_that_was_not_split_has_no_successors() -> None:
    with pytest.raises(LeasesUnusable, match="was reported split"):
        successors(Lease("prefix..1", "1", EpkRange("", "3F")), PARTITIONS, lease_id=lease_id)


def test_a_lease_that_does_not_say_its_range_has_no_successors() -> None:
    with pytest.raises(LeasesUnusable, match="lease 1 does not say which range"):
        successors(Lease("prefix..1", "1", None), PARTITIONS, lease_id=lease_id)


@pytest.mark.parametrize(
    ("ranges", "left"),
    [
        ([("", "7F"), ("", "3F"), ("3F", "7F")], ["1", "2"]),
        ([("", "7F"), ("", "3F")], ["0", "1"]),
        ([("", "7F"), ("", "3F"), ("4F", "7F")], ["0", "1", "2"]),
        ([("", "FF"), ("", "7F"), ("7F", "FF"), ("", "3F"), ("3F", "7F")], ["2", "3", "4"]),
        ([("", "7F"), ("7F", "FF")], ["0", "1"]),
        ([("", "7F"), ("3F", "FF"), ("", "3F")], ["0", "1", "2"]),
    ],
)
def test_a_lease_whose_successors_have_its_whole_range_is_left(
    ranges: list[tuple[str, str]], left: list[str]
) -> None:
    leases = [Lease(f"l..{token}", str(token), EpkRange(*each)) for token, each in enumerate(ranges)]
    assert [each.token for each in without_parents(leases)] == left

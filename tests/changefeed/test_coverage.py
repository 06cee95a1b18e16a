"""Which parts of the key space have no lease, and which leases fill them."""

import pytest

from cosmos_changefeed.coverage import common, gaps, leases_for
from cosmos_changefeed.feed import PhysicalPartition
from cosmos_changefeed.lease import EpkRange, LeaseVersion

PARTITIONS = [
    PhysicalPartition("1", EpkRange("", "3F")),
    PhysicalPartition("2", EpkRange("3F", "7F")),
    PhysicalPartition("3", EpkRange("7F", "FF")),
]


@pytest.mark.parametrize(
    ("covered", "missing"),
    [
        ([], [("", "FF")]),
        ([("", "FF")], []),
        ([("3F", "7F"), ("", "3F"), ("7F", "FF")], []),
        ([("", "3F")], [("3F", "FF")]),
        ([("3F", "7F")], [("", "3F"), ("7F", "FF")]),
        # The parent's lease and one of its children's, in the middle of a split: the parent covers all of its range.
        ([("", "7F"), ("3F", "7F"), ("7F", "FF")], []),
        ([("", "7F"), ("", "1F")], [("7F", "FF")]),
    ],
)
def test_gaps(covered: list[tuple[str, str]], missing: list[tuple[str, str]]) -> None:
    assert gaps(EpkRange(*each) for each in covered) == [EpkRange(*each) for each in missing]


def test_only_what_is_in_both_is_common() -> None:
    before = [EpkRange("", "3F"), EpkRange("7F", "FF")]
    now = [EpkRange("1F", "7F"), EpkRange("9F", "BF"), EpkRange("DF", "FF")]
    assert common(before, now) == [EpkRange("1F", "3F"), EpkRange("9F", "BF"), EpkRange("DF", "FF")]
    assert common(before, []) == []


def test_each_partition_in_a_gap_gets_a_lease_without_owner_and_checkpoint() -> None:
    made = leases_for([EpkRange("", "7F")], PARTITIONS, lease_id=lambda token: f"prefix..{token}")

    assert [(each.id, each.token, each.feed_range) for each in made] == [
        ("prefix..1", "1", EpkRange("", "3F")),
        ("prefix..2", "2", EpkRange("3F", "7F")),
    ]
    assert {(each.owner, each.continuation, each.version) for each in made} == {
        (None, None, LeaseVersion.PARTITION_KEY_RANGE)
    }


def test_a_gap_inside_a_partition_gets_a_lease_of_that_part() -> None:
    """After a merge the leases of the former partitions stay, and one of them may be lost."""
    [made] = leases_for([EpkRange("9F", "FF")], PARTITIONS, lease_id=lambda token: f"prefix..{token}")

    assert (made.id, made.token, made.feed_range) == ("prefix..9F-FF", "9F-FF", EpkRange("9F", "FF"))
    assert made.version is LeaseVersion.EPK_RANGE

"""Instances that each follow the rule, on the same documents, end with equal shares."""

from datetime import UTC, datetime, timedelta

import pytest

from cosmos_changefeed.balancing import leases_to_take
from cosmos_changefeed.lease import Lease

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EXPIRATION = 60.0


def lease(number: int, owner: str | None = None, *, age: float = 1.0) -> Lease:
    return Lease(f"p..{number}", str(number), None, owner, timestamp=NOW - timedelta(seconds=age))


def take(leases: list[Lease], owner: str) -> list[str]:
    taken = leases_to_take(leases, owner=owner, now=NOW, expiration_seconds=EXPIRATION)
    return [each.token for each in taken]


def test_a_lonely_instance_takes_everything_that_is_free() -> None:
    assert take([lease(0), lease(1), lease(2)], "a") == ["0", "1", "2"]


def test_free_leases_are_taken_up_to_the_share() -> None:
    leases = [lease(0, "b"), lease(1, "b"), lease(2), lease(3)]

    assert take(leases, "a") == ["2", "3"]


def test_an_instance_with_its_share_takes_no_free_and_no_others_lease() -> None:
    """The share is four of eight leases over two, and two of six over three."""
    more = [lease(number, "a") for number in range(5)]
    assert take([*more, lease(5, "b"), lease(6), lease(7)], "a") == []
    others = [lease(0, "b"), lease(1, "b"), lease(2, "b"), lease(3, "c")]
    assert take([*others, lease(4, "a"), lease(5, "a")], "a") == []


def test_a_lease_unwritten_for_the_expiration_interval_is_free() -> None:
    assert take([lease(0, "b", age=60.1)], "a") == ["0"]
    assert take([lease(0, "b", age=59.9)], "a") == []


def test_an_instance_whose_leases_have_all_expired_does_not_count() -> None:
    leases = [lease(0, "dead", age=61), lease(1, "dead", age=61), lease(2, "a"), lease(3, "a")]

    assert take(leases, "a") == ["0", "1"]


def test_a_newcomer_steals_one_lease_at_a_time_from_the_richest() -> None:
    leases = [lease(0, "b"), lease(1, "c"), lease(2, "b"), lease(3, "b"), lease(4, "c"), lease(5, "b")]

    assert take(leases, "a") == ["0"]


def test_nothing_is_stolen_when_the_shares_differ_by_one() -> None:
    assert take([lease(0, "b"), lease(1, "b"), lease(2, "a")], "a") == []


def test_a_newcomer_without_a_lease_takes_one_though_none_has_too_many() -> None:
    """Four leases over three make two each at most: at 2, 2 and 0 nobody has too many, and yet one has none."""
    assert take([lease(0, "b"), lease(1, "b"), lease(2, "c"), lease(3, "c")], "a") == ["0"]


@pytest.mark.parametrize(("leases", "instances"), [(8, 1), (8, 2), (8, 4), (8, 3), (5, 3), (4, 3), (3, 4)])
def test_shares_become_even_and_stay_so(leases: int, instances: int) -> None:
    """Instances come one after the other, and each looks in turn, as they do in the real thing."""
    current = [lease(number) for number in range(leases)]
    names = [f"instance {number}" for number in range(instances)]
    for _ in range(leases * instances):
        for name in names:
            taken = take(current, name)
            current = [each.owned_by(name) if each.token in taken else each for each in current]

    shares = [sum(each.owner == name for each in current) for name in names]
    assert sum(shares) == leases
    assert max(shares) - min(shares) <= 1
    assert [take(current, name) for name in names] == [[]] * instances

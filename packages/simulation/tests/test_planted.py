"""Each planted bug that is in reach is seen, by a rule that is about it; some of the quickest at every run."""

from collections import Counter

import pytest

from outbox_simulation.engine.plan import KINDS
from simulated.planted import hunt, in_reach
from simulated.planted_bugs import ALONE, ALSO_SEEN_BY, BEHIND_THE_PORT, MEETING, ONLY_WITH
from tests.torture.planted import fits
from tests.torture.planted_bugs import PLANTED, Planted

AT_ONCE = (
    "feed-order-instead-of-sequence",
    "events-in-a-second-write",
    "repetition-makes-a-second-contact",
    "inbox-applies-before-it-checks",
)
"""Seen in one of the first seeds, in some seconds."""


def _seen(name: str) -> None:
    bug = in_reach()[name]
    result = hunt(bug)
    assert result.found(bug), result.output


@pytest.mark.long  # each is a process of its own, with seeds until one sees it
@pytest.mark.parametrize("name", AT_ONCE)
def test_a_bug_that_no_failure_hides_is_seen_at_once(name: str) -> None:
    _seen(name)


@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [name for name in in_reach() if name not in AT_ONCE])
def test_a_bug_is_seen(name: str) -> None:
    _seen(name)


@pytest.mark.parametrize("bug", MEETING, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted(bug: Planted) -> None:
    assert fits(bug), f"{bug.file} has changed: plant {bug.name} anew"


def test_each_bug_has_its_own_name_and_each_table_names_real_bugs() -> None:
    names = Counter(bug.name for bug in (*PLANTED, *MEETING))
    assert [name for name, times in names.items() if times > 1] == []
    assert ALSO_SEEN_BY.keys() | ONLY_WITH.keys() | ALONE.keys() <= in_reach().keys()
    assert {bug.name for bug in PLANTED} >= BEHIND_THE_PORT
    assert {*ONLY_WITH.values()}.union(*ALONE.values()) <= KINDS

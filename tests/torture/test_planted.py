"""Each planted bug fits the code: what it replaces is there once, and the checker has its rules."""

import pytest

from tests.support.paths import JUDGES
from tests.torture.plan import PROFILES
from tests.torture.planted import fits
from tests.torture.planted_bugs import PLANTED, Planted

RULES = "".join(each.read_text() for each in JUDGES.glob("*.py"))


def test_each_bug_has_a_name_of_its_own() -> None:
    assert len({bug.name for bug in PLANTED}) == len(PLANTED)


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted(bug: Planted) -> None:
    assert fits(bug), f"{bug.file} has changed: plant {bug.name} anew"
    assert bug.profile in PROFILES
    assert [rule for rule in bug.rules if f'"{rule}"' not in RULES] == []

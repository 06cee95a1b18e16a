"""What the lists of operators and read models show while all fails was so; one that shows something else is seen."""

from typing import Any

import pytest

from outbox_simulation.engine import lists
from outbox_simulation.engine.lists_at_rest import _difference
from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.world import SimulatedRun, run
from simulated.contacts import CONTACTS

FAULTS = frozenset(
    {"lists", "bus.refuse_one", "floods", "store.throttled", "store.unavailable", "meet.parking"}
)
SEEDS = (23, 18, *range(1, 11))
"""As many as it takes: the first shows parked events and entries at once."""


def _run(seed: int) -> SimulatedRun:
    return run(SimulationPlan(seed, FAULTS, aggregates=2, seconds=15.0), CONTACTS)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_under_faults_what_is_listed_was_so(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[tuple[str, int]]()
    judged = lists._Walk.judged

    def counted(self: lists._Walk, lags: float, *, whole: bool) -> Any:
        seen.append((self.of.container, len(self.shown)))
        return judged(self, lags, whole=whole)

    monkeypatch.setattr(lists._Walk, "judged", counted)
    for seed in SEEDS:
        assert _run(seed).violations == []
        if {"parked-events", "directory"} <= {container for container, shown in seen if shown}:
            return
    pytest.fail("nothing parked was ever listed, or no entry of the directory")


@pytest.mark.parametrize(
    ("shown", "result"),
    [
        ("abc", ""),
        ("ab", "leaves c out"),
        ("abbc", "shows b 2 times, which is there 1 times"),
        ("abcd", "shows d 1 times, which is there 0 times"),
        ("acb", "is not sorted by name"),
    ],
)
def test_at_rest_nothing_is_forgiven(shown: str, result: str) -> None:
    assert _difference("abc", shown, sort="name") == result
    if shown == "acb":
        assert _difference("abc", shown, sort="") == ""

"""Where no relay runs for days, what expires unsent was reported before, leaves its gap, and nothing else is lost."""

from collections.abc import Iterator

import pytest

from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.world import SimulatedRun, run
from outbox_simulation.invariants.checker import check
from simulated.contacts import CONTACTS


def _runs(first: int) -> Iterator[SimulatedRun]:
    """From the seed on that shows it."""
    for seed in range(first, first + 20):
        yield run(SimulationPlan(seed, frozenset({"then.away"}), aggregates=3, seconds=10.0), CONTACTS)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_what_expires_unsent_leaves_a_gap_and_no_other_event_is_missing() -> None:
    result = next(each for each in _runs(10) if each.violations or each.history.expired)
    assert result.violations == []
    history = result.history
    assert history.stored.keys() - history.deliveries.keys() == history.expired
    stored = history.stored.values()
    ended = {each.aggregate for each in stored if each.action == CONTACTS.language.deleted}
    assert {each.aggregate for each in stored} - ended <= history.shown.keys()
    history.expired = set()
    assert {"lost event", "order"} <= {each.rule for each in check(history, CONTACTS.language)}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_relay_that_comes_back_in_time_says_so_and_loses_nothing() -> None:
    result = next(each for each in _runs(8) if each.violations or not each.history.expired)
    assert result.violations == []
    assert result.history.stored.keys() == result.history.deliveries.keys()

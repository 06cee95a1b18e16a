"""The full form: the same world over the real SDK of the broker, and each of the broker's troubles befalls it there."""

from collections import Counter

import pytest

from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.world import SimulatedRun, run
from simulated.contacts import CONTACTS

KINDS = (
    "lost_before",
    "lost_after",
    "busy",
    "quota",
    "cut",
    "refuse_one",
    "refuse_mix",
    "lock_lost",
    "stolen",
    "buried",
)
FIRST, SEEDS = 7, 10
"""Not each seed has each trouble."""


def _told(result: SimulatedRun) -> Counter[str]:
    return Counter(step.what for step in result.trace)


def test_what_is_stored_goes_over_the_wire_as_it_was_committed() -> None:
    result = run(SimulationPlan(seed=1, faults=frozenset(), aggregates=2, seconds=15.0, full=True), CONTACTS)
    assert result.violations == []
    assert len(result.history.stored) > 5
    assert result.history.stored.keys() == result.history.deliveries.keys()
    told = _told(result)
    assert told["bus takes"] == told["bus gives"] == told["completed"] == len(result.history.stored)


@pytest.mark.long  # test_bus has the broker's troubles, test_amqp those of its lines
def test_whatever_befalls_the_broker_and_its_lines_each_promise_is_kept() -> None:
    faults = frozenset(f"bus.{kind}" for kind in KINDS)
    missing = {
        *("connection cut", "bus refuses", "bus drops", "lock over", "stolen", "dead letter"),
        *("throttle", "full", "fail-before-commit", "drop-after-commit"),
    }
    for seed in range(FIRST, FIRST + SEEDS):
        result = run(SimulationPlan(seed, faults, aggregates=4, seconds=40.0, full=True), CONTACTS)
        assert result.violations == [], seed
        missing -= _told(result).keys()
        missing -= {step.detail for step in result.trace if step.what == "send failed"}
        if not missing:
            return
    raise AssertionError(f"befell nobody in {SEEDS} seeds: {missing}")

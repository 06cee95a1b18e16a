"""A receiver gets each aggregate's events in their order, under any fault; one that fails holds up no other."""

from dataclasses import replace

import pytest

from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.world import SimulatedRun, run
from simulated.contacts import CONTACTS

COPY_OF_REFUSED = 134_013
"""In this seed a copy of what was refused, and given up since, comes late: it is refused as the first one was."""
FIRST = 5
"""With sixteen kinds of faults, and still quick."""

pytestmark = pytest.mark.filterwarnings(  # the world imports all of the SDK
    "ignore:azure.cosmos.errors module:DeprecationWarning"
)


def simulated(plan: SimulationPlan) -> SimulatedRun:
    return run(replace(plan, transport="webhook"), CONTACTS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "seed",
    [FIRST, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3, 4, 6, COPY_OF_REFUSED))],
)
def test_under_faults_every_promise_is_kept(seed: int) -> None:
    drawn = SimulationPlan.drawn(seed, transport="webhook")
    result = simulated(replace(drawn, aggregates=2, seconds=10.0) if seed == FIRST else drawn)
    assert [str(each) for each in result.violations] == []
    assert len(result.history.stored) > 5


RESTORED = replace(
    SimulationPlan(10, frozenset({"then.restore", "bus.cut", "bus.lost_after", "store.lag"}), transport="webhook"),
    aggregates=2, seconds=10.0,
)  # fmt: skip


@pytest.mark.long
def test_after_a_restore_the_receiver_begins_anew() -> None:
    result = run(RESTORED, CONTACTS)
    assert [step.detail for step in result.trace if step.what == "afterwards"] == ["then.restore"]
    assert [str(each) for each in result.violations] == []

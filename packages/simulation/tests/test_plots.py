"""Each plot brings about what it is there for, and the code bears it."""

from dataclasses import replace

import pytest

from outbox_simulation.engine.plan import PLOTS, THEN, SimulationPlan
from outbox_simulation.engine.world import SimulatedRun, run
from simulated.contacts import CONTACTS

SHOWS = {
    "plot.again": {"bus refuses", "discards", "lost lease"},
    "plot.moved": {"bus refuses", "stops", "story"},
    "plot.two hands": {"bus refuses", "plot"},
    "plot.absent": {"stolen", "story"},
    "plot.alone": {"bus away"},
}
"""What happens in each that happens in no calm run."""


def _played(*kinds: str) -> SimulatedRun:
    drawn = SimulationPlan.drawn(1)
    return run(replace(drawn, faults=frozenset(kinds), seconds=30.0, aggregates=4), CONTACTS)


@pytest.mark.long
@pytest.mark.parametrize("kind", PLOTS)
def test_what_a_plot_leads_to_happens_and_breaks_no_promise(kind: str) -> None:
    result = _played(kind)
    assert result.violations == []
    outcome = {step.what for step in result.trace}
    assert SHOWS[kind] <= outcome
    assert "plot fails" not in outcome


@pytest.mark.parametrize("of", [PLOTS, THEN])
def test_a_run_has_one_or_none(of: tuple[str, ...]) -> None:
    drawn = [SimulationPlan.drawn(seed).faults & {*of} for seed in range(200)]
    assert {len(each) for each in drawn} == {0, 1}
    assert {kind for each in drawn for kind in each} == {*of}

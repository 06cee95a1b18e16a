"""Whatever fails, the canary says that nothing was lost; and where one event is lost, it says one."""

from dataclasses import replace

import pytest

from cosmos_outbox.outbox.canary import TYPE
from cosmos_outbox.outbox.publisher import Accepted, AggregateEvents, Outcome
from cosmos_outbox.testing.judging.violation import Violation
from cosmos_outbox.testing.simulation.bus_publisher import BusPublisher
from cosmos_outbox.testing.simulation.plan import KINDS, SimulationPlan
from tests.simulation.singing import NEVER_SENT, RULE, sing

FIRST = 8
"""With seven kinds of faults, another version and another number of sessions among them, and still quick."""
ONE_IS_TAKEN = 7
"""Somebody else receives one of the canary's messages, so one may be told."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "seed", [FIRST, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2, 3, 4, ONE_IS_TAKEN))]
)
def test_under_faults_nothing_is_lost(seed: int) -> None:
    assert sing(seed).violations == []


def test_the_faults_are_there() -> None:
    assert any(len(SimulationPlan.drawn(seed).faults - NEVER_SENT) > 10 for seed in (1, 2, 3, 4))
    assert NEVER_SENT < KINDS


@pytest.mark.long
@pytest.mark.timeout(300)
def test_one_that_is_lost_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker says that it has an event, and has it not."""
    take = BusPublisher.take

    def losing(self: BusPublisher, group: AggregateEvents) -> Outcome:
        kept = [each for each in group.events if (group.aggregate.type, each.sequence) != (TYPE, 5)]
        return take(self, replace(group, events=kept)) if kept else Accepted()

    monkeypatch.setattr(BusPublisher, "take", losing)
    assert sing(1).violations == [Violation(RULE, "5 is said to be lost")]

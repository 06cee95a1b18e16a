"""A receiver gets each aggregate's events in their order, whatever befalls it; one that fails holds up no other."""

from dataclasses import dataclass, replace

import pytest

from outbox_simulation.engine.befalls import Befalls
from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.posts import Posts
from outbox_simulation.engine.world import SimulatedRun, run
from simulated.contacts import CONTACTS

HELD_UP_SECONDS = 45.0
"""Nobody is, for so long, whose own events do not fail."""
GIVEN_UP = 221
"""In this seed an operator gives one up, once, and it is a quick one."""
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
    told = simulated(SimulationPlan.drawn(seed, transport="webhook"))
    assert [str(each) for each in told.violations] == []
    assert len(told.history.stored) > 5


@pytest.mark.timeout(300)
def test_what_an_operator_gives_up_the_receiver_reads() -> None:
    kinds = frozenset({"discards", "meet.parking", "bus.refuse_one", "plot.again"})
    drawn = SimulationPlan.drawn(GIVEN_UP, transport="webhook")
    told = simulated(replace(drawn, faults=kinds, aggregates=3, seconds=30.0))
    assert [str(each) for each in told.violations] == []
    assert [step.what for step in told.trace if step.what in {"is read", "is not read"}] == ["is read"]


RESTORED = replace(
    SimulationPlan(10, frozenset({"then.restore", "bus.cut", "bus.lost_after", "store.lag"}), transport="webhook"),
    aggregates=2, seconds=10.0,
)  # fmt: skip


def test_after_a_restore_the_receiver_begins_anew() -> None:
    told = run(RESTORED, CONTACTS)
    assert [step.detail for step in told.trace if step.what == "afterwards"] == ["then.restore"]
    assert [str(each) for each in told.violations] == []


@pytest.mark.long  # examples/receiver/tests/test_begin_anew.py has what goes wrong
def test_a_receiver_that_does_not_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(_posts: Posts) -> None:
        """It goes on with what it has."""

    monkeypatch.setattr(Posts, "begin_anew", never)
    assert {"entry differs from the events"} <= {each.rule for each in run(RESTORED, CONTACTS).violations}


@dataclass(frozen=True)
class OneFails(SimulationPlan):
    """The receiver fails at some aggregates, more slowly than a page lasts, and at nothing else."""

    @property
    def settings(self) -> dict[str, str]:
        return super().settings | {
            "RELAY_MAX_ITEMS": "10", "RELAY_SEND_SECONDS": "10", "WEBHOOK_SECONDS": "10", "WEBHOOK_CONCURRENCY": "8",
        }  # fmt: skip

    @property
    def bus(self) -> Befalls:
        return Befalls(buried=0.01, longest_way_seconds=0.01)


@pytest.mark.timeout(300)
def test_an_aggregate_that_fails_slowly_holds_up_no_other() -> None:
    plan = OneFails(seed=2, faults=frozenset({"bus.buried"}), aggregates=12, seconds=90.0)
    told = simulated(plan)
    assert [str(each) for each in told.violations] == []
    sick = {step.about for step in told.trace if step.what == "is refused"}
    waited = [
        (each.aggregate in sick, told.history.deliveries[each.event][0].at - each.at)
        for each in told.history.stored.values()
    ]
    assert max(seconds for is_sick, seconds in waited if is_sick) > HELD_UP_SECONDS
    assert max(seconds for is_sick, seconds in waited if not is_sick) < HELD_UP_SECONDS

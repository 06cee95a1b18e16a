"""Two versions side by side break no promise, and a change of the number of sessions heals nothing where it is made
as docs/use/messages.md says."""

from collections.abc import Iterator

import pytest

from devstack.http_in_memory import SentRequest, StoreResponse
from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.watching import written
from outbox_simulation.engine.world import SimulatedRun, run
from outbox_simulation.invariants.checker import check
from simulated.contacts import CONTACTS


def _plans(*faults: str) -> Iterator[SimulationPlan]:
    return (SimulationPlan(seed, frozenset(faults), aggregates=4, seconds=20.0) for seed in range(1, 50))


def _numbers(result: SimulatedRun) -> set[str]:
    """The numbers of sessions that the topic got messages of."""
    sessions = {each.session for event in result.history.events() for each in event.deliveries}
    return {str(each).partition("-")[0] if str(each).count("-") == 1 else "aggregate" for each in sessions}


class _Healed:
    """How often an entry was healed: a look at each that is written."""

    def __init__(self) -> None:
        self.times: dict[str, int] = {}

    def __call__(self, _at: float, request: SentRequest, response: StoreResponse) -> None:
        if "/colls/directory/docs" in request.path and response.status < 300 and request.method == "POST":
            for each in written(request):
                if each.get("type") == "entry":
                    self.times[each["id"]] = each["healed"]


@pytest.mark.long  # test_mixed_fleet rolls out at every run, test_arriving changes the number
def test_a_rollout_goes_by_process_and_both_versions_number_the_sessions() -> None:
    plan = next(each for each in _plans("rollout", "sessions") if not each.no_relay_during_it)
    result = run(plan, CONTACTS)
    assert result.violations == []
    assert _numbers(result) == {
        plan.settings["SERVICEBUS_SESSIONS"],
        (plan.settings_after or {})["SERVICEBUS_SESSIONS"],
    }
    stops = [(each.at, each.instance) for each in result.trace if each.what == "stops"]
    kinds = {name.partition(".")[0].partition("-")[0] for _, name in stops}
    assert kinds == {"api", "relay", "subscriber", "operator"}
    assert stops[0][0] < stops[-1][0], "one after the other"
    result.history.numbers_of_sessions = 1
    assert "several sessions" in {each.rule for each in check(result.history, CONTACTS.language)}


@pytest.mark.long
def test_a_session_number_changed_while_nothing_waits_heals_nothing() -> None:
    plan, healed = next(each for each in _plans("sessions") if each.no_relay_during_it), _Healed()
    result = run(plan, CONTACTS, saw=healed)
    assert result.violations == []
    assert [each.what for each in result.trace if each.what == "sessions change"] == ["sessions change"]
    assert len(_numbers(result)) == 2
    assert {*healed.times.values()} == {0}


@pytest.mark.parametrize("kind", ["rollout", "sessions"])
def test_a_plan_without_it_deploys_no_other_version(kind: str) -> None:
    assert SimulationPlan(1, frozenset()).settings_after is None
    after = SimulationPlan(1, frozenset({kind})).settings_after
    assert after is not None
    same = after["SERVICEBUS_SESSIONS"] == SimulationPlan(1, frozenset()).settings["SERVICEBUS_SESSIONS"]
    assert same is (kind == "rollout")

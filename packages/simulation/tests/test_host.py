"""The Functions host in a simulated run: the service's own functions as it runs them, beside workers or alone."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from cosmos_outbox.settings.transports import Name
from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.world import SimulatedRun, run
from simulated.contacts import CONTACTS


def _subscribing(
    hosts: int, *faults: str, over: Name = "servicebus", first: int = 0
) -> Iterator[SimulationPlan]:
    """With so many hosts in the place of subscriber workers; from the seed on that shows it."""
    for seed in range(first, first + 60):
        plan = SimulationPlan(
            seed, frozenset({"triggers", *faults}), aggregates=3, seconds=30.0, transport=over
        )
        if plan.subscriber_hosts == hosts:
            yield plan


def _plan(hosts: int, *faults: str, seconds: float = 20.0) -> SimulationPlan:
    """With so many hosts in the place of relay workers."""
    plans = (
        SimulationPlan(seed, frozenset({"host", *faults}), aggregates=3, seconds=seconds)
        for seed in range(50)
    )
    return next(plan for plan in plans if plan.hosts == hosts)


def _what(result: SimulatedRun, what: str) -> list[str]:
    return [each.instance for each in result.trace if each.what == what]


@pytest.mark.parametrize("hosts", [pytest.param(1, marks=pytest.mark.long), 2])
def test_the_host_relays_alone_and_beside_a_worker(hosts: int) -> None:
    result = run(_plan(hosts), CONTACTS)
    assert result.violations == []
    assert {each for each in _what(result, "begins") if each.startswith(("host", "relay"))} == {
        *(f"host-{n}.1" for n in range(hosts)),
        *(f"relay-{n}.1" for n in range(hosts, 2)),
    }
    assert len(result.history.stored) > 10
    assert result.history.stored.keys() == result.history.deliveries.keys()


@pytest.mark.long
def test_an_unsendable_page_is_delivered_again_and_never_given_up() -> None:
    result = run(_plan(2, "bus.quota", "bus.busy", "deploy", seconds=30.0), CONTACTS)
    assert result.violations == []
    assert _what(result, "send failed")
    assert _what(result, "host gives up") == []


@pytest.mark.parametrize(
    ("hosts", "over"),
    [
        (1, "servicebus"),
        pytest.param(2, "servicebus", marks=pytest.mark.long),
        pytest.param(1, "storagequeue", marks=pytest.mark.long),
        pytest.param(2, "storagequeue", marks=pytest.mark.long),
    ],
)
def test_the_host_subscribes_alone_and_beside_a_worker(hosts: int, over: Name) -> None:
    result = run(replace(next(_subscribing(hosts, over=over)), seconds=10.0), CONTACTS)
    assert result.violations == []
    assert len(result.history.stored) > 10
    begun = {each for each in _what(result, "begins") if each.startswith(("trigger", "subscriber"))}
    workers = {f"subscriber-{n}.1" for n in range(hosts, 2)}
    assert begun == {*workers, *(f"trigger-{n}.1" for n in range(hosts))}
    assert result.history.shown.keys() == {each.aggregate for each in result.history.stored.values()}

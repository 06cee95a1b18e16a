"""The Functions host in a simulated run: the service's own functions as it runs them, beside workers or alone."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from cosmos_outbox.inbox import receiver
from cosmos_outbox.settings.transports import Name
from outbox_simulation.engine import host
from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.subscriber_host import SubscriberHost
from outbox_simulation.engine.world import SimulatedRun, World, run
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


def _what(told: SimulatedRun, what: str) -> list[str]:
    return [each.instance for each in told.trace if each.what == what]


@pytest.mark.parametrize("hosts", [1, 2])
def test_the_host_relays_alone_and_beside_a_worker(hosts: int) -> None:
    told = run(_plan(hosts), CONTACTS)
    assert told.violations == []
    assert {each for each in _what(told, "begins") if each.startswith(("host", "relay"))} == {
        *(f"host-{n}.1" for n in range(hosts)),
        *(f"relay-{n}.1" for n in range(hosts, 2)),
    }
    assert len(told.history.stored) > 10
    assert told.history.stored.keys() == told.history.deliveries.keys()


def test_a_page_that_cannot_be_sent_is_delivered_again_and_nothing_is_given_up() -> None:
    told = run(_plan(2, "bus.quota", "bus.busy", "deploy", seconds=30.0), CONTACTS)
    assert told.violations == []
    assert _what(told, "send failed")
    assert _what(told, "host gives up") == []


def test_a_function_that_gives_up_loses_events_and_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    real = host._functions

    def without_retry(service: Any) -> Any:
        functions = real(service)
        monkeypatch.setattr(functions["relay"], "get_settings_dict", lambda _name: None)
        return functions

    monkeypatch.setattr(host, "_functions", without_retry)
    plan = _plan(2, "bus.quota", "bus.busy", seconds=30.0)
    told = run(plan, CONTACTS, type("Impatient", (World,), {"patience_seconds": 120.0}))
    assert _what(told, "host gives up")
    assert {each.rule for each in told.violations} & {"lost event", "order"}


def test_a_call_that_lasts_too_long_ends_its_process_and_another_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(host, "FUNCTION_TIMEOUT_SECONDS", 0.02)  # less than a request and a send take
    told = run(_plan(2, seconds=8.0), CONTACTS, type("Impatient", (World,), {"patience_seconds": 10.0}))
    ended = _what(told, "functionTimeout")
    assert "host-0.1" in ended or "host-1.1" in ended
    again = ended[0].replace(".1", ".2")
    assert again in _what(told, "begins")


@pytest.mark.parametrize("over", ["servicebus", "storagequeue"])
@pytest.mark.parametrize("hosts", [1, 2])
def test_the_host_subscribes_alone_and_beside_a_worker(hosts: int, over: Name) -> None:
    told = run(replace(next(_subscribing(hosts, over=over)), seconds=10.0), CONTACTS)
    assert told.violations == []
    assert len(told.history.stored) > 10
    begun = {each for each in _what(told, "begins") if each.startswith(("trigger", "subscriber"))}
    workers = {f"subscriber-{n}.1" for n in range(hosts, 2)}
    assert begun == {*workers, *(f"trigger-{n}.1" for n in range(hosts))}
    assert told.history.shown.keys() == {each.aggregate for each in told.history.stored.values()}


@pytest.fixture
def soon_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "WAIT_SECONDS", 2.0)


STORE_AWAY: Mapping[Name, int] = {"servicebus": 339, "storagequeue": 7}
"""From these seeds on the store is away in some for as long as a call waits: elsewhere in three of a hundred."""


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("soon_raised")
@pytest.mark.parametrize(("over", "first"), STORE_AWAY.items())
def test_what_a_trigger_raises_is_abandoned_and_comes_again(over: Name, first: int) -> None:
    for plan in _subscribing(2, "store away", over=over, first=first):
        told = run(plan, CONTACTS)
        assert told.violations == []
        if any("StoreAway" in each.detail for each in told.trace if each.what == "host abandons"):
            return
    pytest.fail("in no seed the store is away for as long as a call waits for it")


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("soon_raised")
@pytest.mark.parametrize(
    ("over", "first"),
    [
        ("servicebus", STORE_AWAY["servicebus"]),
        pytest.param("storagequeue", STORE_AWAY["storagequeue"], marks=pytest.mark.long),
    ],
)
def test_a_trigger_that_completes_what_it_could_not_apply_is_found_out(
    monkeypatch: pytest.MonkeyPatch, over: Name, first: int
) -> None:
    invoke = SubscriberHost.invoke

    async def content(self: SubscriberHost, function: Any, *arguments: object) -> None:
        await invoke(self, function, *arguments)

    monkeypatch.setattr(SubscriberHost, "invoke", content)
    found = (
        run(plan, CONTACTS, type("Impatient", (World,), {"patience_seconds": 120.0})).violations
        for plan in _subscribing(2, "store away", over=over, first=first)
    )
    assert "completed, and not applied" in {each.rule for each in next(filter(None, found))}

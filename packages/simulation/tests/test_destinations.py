"""A further destination, with faults of its own, gets what it is for, and is in no other's way."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cosmos_outbox.cosmos.relay.parked_documents import PARTITION
from cosmos_outbox.outbox.destination import Destination
from cosmos_outbox.settings.environment import FeedSettings
from cosmos_outbox.wiring import relaying
from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.world import SimulatedRun, run
from outbox_simulation.judging.destinations import Wants, destination
from outbox_simulation.judging.records import HandedOut, Stored
from simulated.contacts import CONTACTS

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SICK = frozenset({"bus.refuse_one", "meet.parking"})
STORMS = frozenset(
    {"crash", "lost lease", "bus.busy", "bus.lost_after", "store.throttled", "store.lost_after", "split"}
)


def ran(seed: int, *kinds: str) -> SimulatedRun:
    plan = SimulationPlan(seed, frozenset({"partner", *kinds}), aggregates=4, seconds=20.0)
    assert plan.partner
    told = run(plan, CONTACTS)
    assert len(told.history.stored) > 5
    return told


def rules(seed: int, *kinds: str) -> set[str]:
    return {each.rule for each in ran(seed, *kinds).violations}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 9))])
def test_under_faults_each_destination_gets_what_it_is_for(seed: int) -> None:
    assert rules(seed, *STORMS, *SICK) == set()


def test_a_partner_that_is_away_to_the_end_holds_up_nothing_and_then_gets_all() -> None:
    trace = [str(each) for each in ran(3).trace]
    left, back = (
        next(at for at, each in enumerate(trace) if f"partner: {what}" in each)
        for what in ("is away", "is there")
    )
    taken = [at for at, each in enumerate(trace) if "partner: bus takes" in each]
    assert not [at for at in taken if left + 5 < at < back]
    assert [at for at in taken if at > back]


def test_a_seed_draws_a_partner_for_all_or_for_some_from_the_beginning_or_from_later_on() -> None:
    plans = [SimulationPlan.drawn(seed) for seed in range(300)]
    share = sum(each.partner for each in plans) / len(plans)
    assert 0.1 < share < 0.3
    assert all("PARTNER_SERVICEBUS_TOPIC" in each.settings for each in plans if each.partner)


@pytest.mark.timeout(300)
@pytest.mark.long
def test_relays_that_share_their_place_in_the_feed_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FeedSettings, "towards", lambda self, _name: self)
    monkeypatch.setattr("outbox_simulation.engine.partner._PATIENCE_SECONDS", 60.0)
    assert {"lost event", "partner: lost event"} & rules(1)


@pytest.mark.timeout(300)
def test_a_beginning_that_nobody_looks_at_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Destination, "takes", lambda _self, _event: True)
    assert any("partner: not for it" in rules(seed) for seed in range(1, 6))


@pytest.mark.timeout(300)
@pytest.mark.long  # tests/contract/test_destinations.py has what is parked for one alone
def test_a_parking_lot_that_destinations_share_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relaying, "partition_of", lambda _name: PARTITION)
    monkeypatch.setattr("outbox_simulation.engine.partner._PATIENCE_SECONDS", 60.0)
    assert any("partner: lost event" in rules(seed, *SICK) for seed in range(1, 31))


def stored(sequence: int, action: str = "Renamed", minutes: int = 0) -> Stored:
    at = (NOON + timedelta(minutes=minutes)).isoformat()
    return Stored(
        at=sequence,
        event=f"e{sequence}",
        aggregate="p",
        action=action,
        sequence=sequence,
        body={"createdAt": at},
    )


def taken(of: Stored, **changes: Any) -> HandedOut:
    told = {
        "message_id": of.event,
        "aggregate": "p",
        "subject": of.action,
        "sequence": of.sequence,
        "body": of.body,
    }
    return HandedOut(at=of.at, broker_number=1, delivery_count=0, lock="", **told | changes)


FIRST, SECOND, OTHER, LATE = stored(1), stored(2), stored(3, "Added"), stored(4, minutes=5)
ALL = (FIRST, SECOND, OTHER, LATE)


@pytest.mark.parametrize(
    ("wants", "got", "wrong"),
    [
        (Wants(), [*ALL], []),
        (Wants(), [FIRST, FIRST, SECOND, FIRST, OTHER, LATE], []),
        (Wants(), [FIRST, SECOND, OTHER], ["lost event"]),
        (Wants(), [SECOND, FIRST, OTHER, LATE], ["order"]),
        (Wants(frozenset({"Renamed"})), [FIRST, SECOND, LATE], []),
        (Wants(frozenset({"Renamed"})), [*ALL], ["not for it"]),
        (Wants(begin=NOON + timedelta(minutes=5)), [LATE], []),
        (Wants(begin=NOON + timedelta(minutes=5)), [], ["lost event"]),
        (Wants(begin=NOON + timedelta(minutes=5)), [OTHER, LATE], ["not for it"]),
        (Wants(frozenset({"Added"})), [OTHER, stored(9)], ["sent, and never stored"]),
    ],
)
def test_what_a_destination_got_is_judged_by_what_it_is_for(
    wants: Wants, got: list[Stored], wrong: list[str]
) -> None:
    found = destination("partner", {each.event: each for each in ALL}, [taken(each) for each in got], wants)
    assert [each.rule for each in found] == [f"partner: {rule}" for rule in wrong]


def test_a_message_that_differs_from_the_store_is_seen() -> None:
    [found] = destination("partner", {"e1": FIRST}, [taken(FIRST, body={})], Wants())
    assert found.rule == "partner: message and store differ"

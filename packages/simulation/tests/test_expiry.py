"""Where no relay runs for days, what expires unsent was told of before, leaves its gap, and nothing else is lost."""

from collections.abc import Iterator

import pytest

from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.world import SimulatedRun, run
from outbox_simulation.judging.checker import check
from simulated.contacts import CONTACTS


def _runs(first: int) -> Iterator[SimulatedRun]:
    """From the seed on that shows it."""
    for seed in range(first, first + 20):
        yield run(SimulationPlan(seed, frozenset({"then.away"}), aggregates=3, seconds=10.0), CONTACTS)


@pytest.mark.timeout(300)
def test_what_expires_unsent_leaves_a_gap_and_no_other_event_is_missing() -> None:
    told = next(each for each in _runs(10) if each.violations or each.history.expired)
    assert told.violations == []
    history = told.history
    assert history.stored.keys() - history.deliveries.keys() == history.expired
    stored = history.stored.values()
    ended = {each.aggregate for each in stored if each.action == CONTACTS.language.deleted}
    assert {each.aggregate for each in stored} - ended <= history.shown.keys()
    history.expired = set()
    assert {"lost event", "order"} <= {each.rule for each in check(history, CONTACTS.language)}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_what_was_discarded_before_is_not_among_what_expires() -> None:
    faults = frozenset({"discards", "bus.refuse_one", "then.away"})
    told = run(SimulationPlan(2, faults, aggregates=4, seconds=20.0), CONTACTS)
    assert told.violations == []
    assert told.history.discarded
    assert told.history.expired


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_relay_that_comes_back_in_time_says_so_and_loses_nothing() -> None:
    told = next(each for each in _runs(8) if each.violations or not each.history.expired)
    assert told.violations == []
    assert told.history.stored.keys() == told.history.deliveries.keys()


@pytest.mark.long
@pytest.mark.timeout(300)
def test_an_event_that_was_discarded_has_its_notice_and_does_not_expire() -> None:
    faults = frozenset(
        {"then.away", "operators", "discards", "bus.refuse_one", "bus.refuse_mix", "meet.parking"}
    )
    told = run(SimulationPlan(4, faults, aggregates=4, seconds=30.0), CONTACTS)
    assert told.violations == []
    assert told.history.expired
    assert told.history.notices().keys() & told.history.stored.keys(), "one was discarded before it was sent"


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("then", ["then.publish again", "then.away"])
def test_what_befalls_next_waits_for_the_timer_of_the_host_to_make_a_lost_lease_again(then: str) -> None:
    """Five minutes later its part of the feed comes once more: no second run, and no alarm that comes too early."""
    faults = frozenset({"host", "lost lease", then})
    assert run(SimulationPlan(3, faults, aggregates=2, seconds=5.0), CONTACTS).violations == []


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_lease_that_was_lost_at_the_last_moment_is_made_again_before_the_relays_go_away() -> None:
    """A partition without a lease counts as at risk: what was asked then, was told rightly."""
    faults = frozenset({"host", "plot.again", "then.away"})
    told = run(SimulationPlan(102067, faults, aggregates=1, seconds=5.0, shuffled=False), CONTACTS)
    assert told.violations == []

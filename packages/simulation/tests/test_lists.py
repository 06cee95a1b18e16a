"""What the lists of operators and read models show while all fails was so; one that shows something else is seen."""

import dataclasses
from functools import partial
from typing import Any

import pytest

from cosmos_outbox.cosmos.inbox.listing import CosmosItems
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.outbox.parking_lot import ParkedPage
from cosmos_outbox.wiring.declared import ReadModelOf
from outbox_simulation.deriving.derived import subject
from outbox_simulation.deriving.resting_world import RestingWorld
from outbox_simulation.engine import lists, lists_at_rest
from outbox_simulation.engine.lists import ListReader
from outbox_simulation.engine.lists_at_rest import ListsAtRest, _difference
from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.world import SimulatedRun, run
from simulated import mixed_fleet
from simulated.contacts import CONTACTS

FAULTS = frozenset(
    {"lists", "bus.refuse_one", "floods", "store.throttled", "store.unavailable", "meet.parking"}
)
SEEDS = (11, *range(1, 11))
"""As many as it takes: the first shows parked events and entries at once."""


def _run(seed: int) -> SimulatedRun:
    return run(SimulationPlan(seed, FAULTS, aggregates=3, seconds=30.0), CONTACTS)


def _told(told: SimulatedRun) -> list[str]:
    return [each.about for each in told.violations if each.rule == lists.RULE]


@pytest.mark.timeout(300)
def test_under_faults_what_is_listed_was_so(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = list[tuple[str, int]]()
    judged = lists._Walk.judged

    def counted(self: lists._Walk, lags: float, *, whole: bool) -> Any:
        seen.append((self.of.container, len(self.shown)))
        return judged(self, lags, whole=whole)

    monkeypatch.setattr(lists._Walk, "judged", counted)
    for seed in SEEDS:
        assert _run(seed).violations == []
        if {"parked-events", "directory"} <= {container for container, shown in seen if shown}:
            return
    pytest.fail("nothing parked was ever listed, or no entry of the directory")


def test_a_read_model_that_is_sorted_by_nothing_has_no_list() -> None:
    plan = SimulationPlan(1, frozenset({"lists"}), aggregates=1, seconds=3.0)
    assert [
        each.form.orders for each in mixed_fleet.service.subscribers if isinstance(each, ReadModelOf)
    ] == [[]]
    of = subject(mixed_fleet.service, [mixed_fleet.commands()])
    assert run(plan, of, partial(RestingWorld, mixed_fleet.uncounted)).violations == []


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda page: dataclasses.replace(page, items=[*page.items, *page.items]), "times"),
        (
            lambda page: dataclasses.replace(
                page, items=[dataclasses.replace(each, id=each.id[::-1]) for each in page.items]
            ),
            "which never was in it",
        ),
    ],
)
def test_a_list_that_shows_something_else_is_seen(
    wrong: Any, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = CosmosParkingLot.page

    async def page(self: CosmosParkingLot, size: int, token: str | None, **given: Any) -> ParkedPage:
        found = await right(self, size, token, **given)
        is_reader = size in lists._SIZES[:3]
        changed: ParkedPage = wrong(found) if is_reader else found
        return changed

    monkeypatch.setattr(CosmosParkingLot, "page", page)
    assert any(told in each for seed in SEEDS for each in _told(_run(seed)))


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("wrong", "told"),
    [(lambda items: items[1:], "directory leaves"), (lambda items: [*items, *items], "times")],
)
def test_a_page_of_a_read_model_that_goes_on_elsewhere_is_seen(
    wrong: Any, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = CosmosItems.first

    async def first(self: CosmosItems, conditions: Any, by: Any, most: int, after: Any) -> Any:
        found = await right(self, conditions, by, most, after)
        return found if after is None else wrong(found)

    monkeypatch.setattr(CosmosItems, "first", first)
    plans = (SimulationPlan(seed, frozenset({"lists"}), aggregates=12, seconds=60.0) for seed in SEEDS)
    assert any(told in each for plan in plans for each in _told(run(plan, CONTACTS)))


def test_a_reader_is_there_only_where_the_plan_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ListReader, "go_on", lambda *_: pytest.fail("there is a reader"))
    monkeypatch.setattr(ListsAtRest, "look", lambda *_: pytest.fail("lists are walked at rest"))
    run(SimulationPlan(1, frozenset(), aggregates=2, seconds=2.0), CONTACTS)


def test_the_walk_at_rest_changes_nothing_that_came_before(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = SimulationPlan(1, frozenset({"lists"}), aggregates=4, seconds=5.0)
    held, walk = list[tuple[str, int]](), ListsAtRest._walk

    async def told(self: ListsAtRest, of: Any, *more: Any) -> list[str]:
        shown = await walk(self, of, *more)
        held.append((of.container, len(shown)))
        return shown

    monkeypatch.setattr(lists_at_rest, "_SIZES", (1,))
    monkeypatch.setattr(ListsAtRest, "_walk", told)
    walked = run(plan, CONTACTS)
    assert walked.violations == []

    async def nothing(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(ListsAtRest, "look", nothing)
    before = run(plan, CONTACTS).trace.steps
    after = walked.trace.steps[len(before) :]
    assert walked.trace.steps[: len(before)] == before
    for desk in ("operator.1", "reader.1"):
        assert any(each.instance == desk and each.what != "begins" for each in after)
    assert [container for container, shown in held if shown < 2] == []
    assert {container for container, _ in held} == {"directory", "parked-events", "set-aside"}


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ("abc", ""),
        ("ab", "leaves c out"),
        ("abbc", "shows b 2 times, which is there 1 times"),
        ("abcd", "shows d 1 times, which is there 0 times"),
        ("acb", "is not sorted by name"),
    ],
)
def test_at_rest_nothing_is_forgiven(shown: str, told: str) -> None:
    assert _difference("abc", shown, sort="name") == told
    if shown == "acb":
        assert _difference("abc", shown, sort="") == ""

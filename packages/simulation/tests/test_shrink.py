"""The shortest story is found with few runs, and never by taking one violation for another."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from outbox_simulation.engine.shrink import shrink
from outbox_simulation.judging.violation import Violation

ALL = frozenset({"crash", "pause", "lag", "split", "throttle", "lost answer", "broker away", "lock lost"})


@dataclass(frozen=True)
class Plan:
    seed: int = 7
    faults: frozenset[str] = ALL
    aggregates: int = 50
    seconds: float = 600.0
    shuffled: bool = True


@dataclass
class Runs:
    """Breaks a rule where a plan fulfils a condition; every run is counted."""

    breaks: Callable[[Plan], str]
    tried: list[Plan]

    def __call__(self, plan: Plan) -> Violation | None:
        self.tried.append(plan)
        rule = self.breaks(plan)
        return Violation(rule, f"{len(plan.faults)} faults") if rule else None


def runs(breaks: Callable[[Plan], str]) -> Runs:
    return Runs(breaks, [])


def needs(*faults: str, aggregates: int = 1, seconds: float = 5.0) -> Callable[[Plan], str]:
    def breaks(plan: Plan) -> str:
        there = plan.faults >= {*faults} and plan.aggregates >= aggregates and plan.seconds >= seconds
        return "order" if there else ""

    return breaks


def test_a_plan_that_breaks_nothing_has_no_story() -> None:
    run = runs(lambda _: "")
    assert shrink(Plan(), run) is None
    assert len(run.tried) == 1


def test_what_needs_nothing_is_told_with_nothing() -> None:
    run = runs(needs())
    story = shrink(Plan(), run)
    assert story is not None
    assert story.plan == Plan(faults=frozenset(), aggregates=1, seconds=5.0, shuffled=False)
    assert (story.confirmed, story.runs) == (True, len(run.tried))
    assert story.violation == Violation("order", "0 faults")
    assert story.runs <= 6


@pytest.mark.parametrize("faults", [{"lag"}, {"lag", "lost answer"}, {"crash", "lag", "throttle"}, ALL])
def test_the_faults_that_it_needs_stay(faults: set[str]) -> None:
    story = shrink(Plan(), runs(needs(*faults)))
    assert story is not None
    assert story.plan.faults == faults


def test_numbers_come_near_to_the_smallest() -> None:
    run = runs(needs("lag", aggregates=7, seconds=130.0))
    story = shrink(Plan(), run)
    assert story is not None
    assert story.plan.aggregates == 7
    assert 130.0 <= story.plan.seconds <= 146.0
    assert story.runs <= 40


def test_another_rule_is_another_story() -> None:
    def breaks(plan: Plan) -> str:
        return "lost event" if len(plan.faults) < 3 else "order"

    story = shrink(Plan(), runs(breaks))
    assert story is not None
    assert (story.violation.rule, len(story.plan.faults)) == ("order", 3)


def test_what_is_broken_in_a_shuffled_order_alone_is_shortened_and_not_confirmed() -> None:
    def breaks(plan: Plan) -> str:
        return needs("lag")(plan) if plan.shuffled else ""

    story = shrink(Plan(), runs(breaks))
    assert story is not None
    assert (story.plan, story.confirmed) == (
        Plan(faults=frozenset({"lag"}), aggregates=1, seconds=5.0),
        False,
    )


def test_a_small_story_is_confirmed_where_the_large_one_was_not() -> None:
    def breaks(plan: Plan) -> str:
        return needs("lag")(plan) if plan.shuffled or plan.aggregates < 10 else ""

    story = shrink(Plan(), runs(breaks))
    assert story is not None
    assert (story.plan.aggregates, story.confirmed) == (1, True)


def test_a_plan_without_shuffling_stays_so() -> None:
    run = runs(needs("lag"))
    story = shrink(Plan(shuffled=False), run)
    assert story is not None
    assert not [plan for plan in run.tried if plan.shuffled]


@pytest.mark.parametrize("most", [1, 2, 3, 10, 25])
def test_runs_are_bounded_and_the_best_so_far_is_told(most: int) -> None:
    run = runs(needs("crash", "lag", "throttle", aggregates=17, seconds=301.0))
    story = shrink(Plan(), run, most_runs=most)
    assert story is not None
    assert len(run.tried) == story.runs <= most
    assert run.breaks(story.plan) == "order"


def test_when_time_is_over_the_best_so_far_is_told_and_that_there_may_be_a_shorter_one() -> None:
    run = runs(needs("crash", "lag"))
    story = shrink(Plan(), run, has_time=lambda: len(run.tried) < 6)
    assert story is not None
    assert (story.ended, story.runs) == (False, len(run.tried))
    assert story.runs <= 7
    assert run.breaks(story.plan) == "order"
    whole = shrink(Plan(), runs(needs("crash", "lag")))
    assert whole is not None
    assert whole.ended


def test_no_plan_is_run_twice() -> None:
    run = runs(needs("crash", "lag", aggregates=3, seconds=50.0))
    shrink(Plan(), run, most_runs=200)
    assert len({*run.tried}) == len(run.tried)


def test_what_comes_only_with_a_certain_number_is_found_although_less_hides_it() -> None:
    """A smaller number need not break what a larger one does: then the larger one stays."""
    story = shrink(Plan(aggregates=6), runs(lambda plan: "order" if plan.aggregates in (4, 6) else ""))
    assert story is not None
    assert story.plan.aggregates in (4, 6)
    assert replace(story.plan, aggregates=6) == Plan(
        faults=frozenset(), aggregates=6, seconds=5.0, shuffled=False
    )

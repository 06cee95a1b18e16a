"""The rules of parking hold together, and none of them can be left out."""

import pytest

from tests.models.code import words_of
from tests.models.parking import Parking, Rule, State
from tests.models.search import search
from tests.support.paths import ROOT


@pytest.mark.long
@pytest.mark.timeout(120)
def test_no_order_of_steps_breaks_the_rules() -> None:
    model = Parking()
    searched = search(State(), model.steps, model.wrong)
    assert searched.trace is None, "\n".join(searched.trace)
    assert searched.states > 40_000


DEEP_DOWN = {
    Rule.ONE_REPLAY,
    Rule.IDS_SURVIVE,
    Rule.REMEMBER_ACCEPTED,
    Rule.REMEMBER_DISCARDED,
    Rule.END_AT_ZERO,
    Rule.TIMER_HEALS,
    Rule.ONE_TRANSACTION,
    Rule.SKIP_MARKER,
}
"""Without them it takes the most steps until something goes wrong."""


@pytest.mark.parametrize(
    "rule", [rule if rule not in DEEP_DOWN else pytest.param(rule, marks=pytest.mark.long) for rule in Rule]
)
def test_without_any_one_of_the_rules_something_goes_wrong(rule: Rule) -> None:
    model = Parking(off=rule)
    assert search(State(), model.steps, model.wrong).trace is not None


@pytest.mark.parametrize("rule", Rule)
def test_each_rule_is_in_the_decision_and_in_the_code_by_its_name(rule: Rule) -> None:
    decision = (ROOT / "docs/internals/decisions/0009-parking.md").read_text()
    assert f"`{rule.value}`" in decision
    assert rule.value in words_of("outbox") | words_of("cosmos/relay")

"""The rules for an effect that an operator runs again hold together, and none of them can be left out."""

import re

import pytest

from tests.models.effect_again import Model, Rule, World
from tests.models.search import search
from tests.support.paths import ROOT


def trace_of(off: Rule | None = None) -> tuple[str, ...] | None:
    model = Model(off)
    return search(World(), model.steps, model.wrong).trace


def test_no_order_of_steps_breaks_the_rules() -> None:
    trace = trace_of()
    assert trace is None, "\n".join(trace)


@pytest.mark.parametrize("rule", Rule)
def test_without_any_one_of_the_rules_something_goes_wrong(rule: Rule) -> None:
    assert trace_of(rule) is not None


@pytest.mark.parametrize("rule", Rule)
def test_each_rule_is_in_the_decision_and_in_the_code_by_its_name(rule: Rule) -> None:
    assert f"`{rule.value}`" in (ROOT / "docs/internals/decisions/0018-effects.md").read_text()
    code = "".join(path.read_text() for path in (ROOT / "cosmos_outbox" / "inbox").glob("*.py"))
    assert re.search(rf"\b{rule.value}\b", code)

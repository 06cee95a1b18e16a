"""The rules of the effect mode hold together, and none of them can be left out."""

import re

import pytest

from cosmos_outbox.inbox.effect import Unsure
from tests.models.inbox_effects import (
    AGES,
    DISCARD,
    FAILS,
    LOST,
    OLD,
    OPERATOR,
    Model,
    Rule,
    Story,
    first,
)
from tests.models.search import search
from tests.support.paths import ROOT

STORIES = [
    Story("EEE", 0),
    Story("EEE", 1, unsure=Unsure.SET_ASIDE),
    Story("EEE", 1, LOST),
    Story("EEE", 0, LOST, Unsure.SET_ASIDE),
    Story("ENE", 1),
    Story("BE", 0),
    Story("EQE", 1),
    Story("QE", 0, AGES),
    Story("EE", 0, OLD),
    Story("NE", 1, OLD),
    Story("EE", 0, FAILS),
    Story("EE", 0, OPERATOR),
    Story("EE", 0, DISCARD),
    Story("QE", 0, DISCARD, Unsure.SET_ASIDE),
    Story("BE", 0, DISCARD),
]

CAUGHT_IN = {
    Rule.OVER_IS_FINAL: Story("QE", 0),
    Rule.PASSED: Story("BE", 0),
    Rule.ONE_IN_A_PLACE: Story("BE", 0),
    Rule.NOTICE_PASSES: Story("BE", 0),
    Rule.AT_ITS_VERSION: Story("EE", 0, OLD),
    Rule.ONLY_IN_TURN: Story("EE", 0, OPERATOR),
    Rule.DISCARD_MARKS: Story("EE", 0, DISCARD),
    Rule.TOO_OLD: Story("QE", 0, AGES),
    Rule.IDS_OUTLIVE_EVENTS: Story("QE", 0, AGES),
    Rule.AGE_GIVES_UP: Story("EE", 0, LOST),
}
"""For a rule the story that goes wrong without it; for the others it is the plain one."""


def trace_of(story: Story, off: Rule | None = None) -> tuple[str, ...] | None:
    model = Model(story, off)
    return search(first(story), model.steps, model.wrong).trace


@pytest.mark.deep
@pytest.mark.timeout(120)
@pytest.mark.parametrize("story", STORIES, ids=str)
def test_no_order_of_steps_breaks_the_rules(story: Story) -> None:
    trace = trace_of(story)
    assert trace is None, "\n".join(trace)


@pytest.mark.parametrize("rule", Rule)
def test_without_any_one_of_the_rules_something_goes_wrong(rule: Rule) -> None:
    assert trace_of(CAUGHT_IN.get(rule, Story("EE", 0)), off=rule) is not None


@pytest.mark.parametrize(
    "name", [*(rule.value for rule in Rule), "own-start", "running-fenced", "turn-fenced"]
)
def test_each_rule_is_in_the_decision_and_in_the_code_by_its_name(name: str) -> None:
    assert f"`{name}`" in (ROOT / "docs/internals/decisions/0018-effects.md").read_text()
    code = "".join(path.read_text() for path in (ROOT / "cosmos_outbox" / "inbox").glob("*.py"))
    assert re.search(rf"\b{name}\b", code)

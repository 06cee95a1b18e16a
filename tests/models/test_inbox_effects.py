"""The rules of the effect mode hold together, and none of them can be left out."""

import pytest

from inbox.effect import Unsure
from tests.models.inbox_effects import AGES, FAILS, LOST, OLD, OPERATOR, Model, Rule, Story, first
from tests.models.search import search

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
    Story("BE", 1, OLD),
    Story("EE", 0, FAILS),
    Story("EE", 0, OPERATOR),
]

CAUGHT_IN = {
    Rule.OVER_IS_FINAL: Story("QE", 0),
    Rule.PASSED: Story("BE", 0),
    Rule.NEXT_ONLY: Story("EE", 0),
    Rule.ONE_IN_A_PLACE: Story("BE", 0),
}
"""For a rule the story that goes wrong without it; for the others see STORY."""


def trace_of(story: Story, off: Rule | None = None) -> tuple[str, ...] | None:
    model = Model(story, off)
    return search(first(story), model.steps, model.wrong).trace


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_no_order_of_steps_breaks_the_rules(story: Story) -> None:
    trace = trace_of(story)
    assert trace is None, "\n".join(trace)

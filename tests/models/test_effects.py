"""With all rules no promise can be broken; without any one of them the search finds the trace to a broken one."""

import re

import pytest

from tests.models.code import words_of
from tests.models.effects import (
    GIVEN_UP,
    HELD_UP,
    LEFT_OUT,
    NEVER_BEGUN,
    ORDER,
    RULES,
    TWICE,
    Model,
    Story,
)
from tests.models.search import search
from tests.support.paths import ROOT

DECISION = (ROOT / "docs" / "internals" / "decisions" / "0018-effects.md").read_text()

ONCE = Story((1,), repeatable=False, deaths=1, ticks=1)
LOST = Story((1,), repeatable=False, losses=1)
COPY = Story((1, 1))
FAILS = Story(fails=1)

BROKEN = [
    ("record-after", LEFT_OUT, Story((1,), deaths=1)),
    ("complete-last", LEFT_OUT, Story((1,), deaths=1)),
    ("original-id", TWICE, COPY),
    ("lives-as-long", TWICE, COPY),
    ("started-first", TWICE, LOST),
    ("started-created-only", TWICE, LOST),
    ("names-the-call", TWICE, ONCE),
    ("look-for-start", NEVER_BEGUN, Story((1,), repeatable=False, answers=1, ticks=1)),
    ("old-start-listed", LEFT_OUT, ONCE),
    ("young-not-raised", ORDER, Story(repeatable=False, deaths=1)),
    ("put-back", HELD_UP, Story((1,), repeatable=False, fails=1, ticks=1)),
    ("unknown-failure-listed", TWICE, Story((1,), repeatable=False, unknown=1)),
    ("failure-set-aside", LEFT_OUT, FAILS),
    ("dead-letters-collected", LEFT_OUT, Story((1,), buries=True)),
    ("goes-behind", ORDER, FAILS),
    ("timer-in-order", ORDER, FAILS),
    ("aside-then-record", TWICE, Story((1, 1), fails=1)),
    ("aside-consistent", ORDER, FAILS),
    ("record-consistent", TWICE, COPY),
    ("discard-marks", GIVEN_UP, Story((1,), fails=1, discards=True)),
    ("deadline", TWICE, Story((1,), repeatable=False, losses=1, ticks=1, applies=True)),
    ("too-old", TWICE, Story((1, 1), repeatable=False, ages=True)),
]
"""What goes wrong without a rule, and in which story."""

DEEP = [
    Story((1, 2, 1), fails=1, deaths=1),
    Story((1, 2, 1), fails=1, losses=1),
    Story((1, 2), fails=1, losses=1, deaths=1),
    Story((1, 2), fails=1, losses=1, discards=True),
    Story((1, 2), repeatable=False, losses=1, ticks=1),
    Story((1, 2), repeatable=False, deaths=1, answers=1, ticks=1),
    Story((1, 2), repeatable=False, fails=1, ticks=1, applies=True),
    Story((1, 1), repeatable=False, ages=True, deaths=1),
]
"""Several at once."""


@pytest.mark.parametrize(
    "story",
    [
        *dict.fromkeys(story for _, _, story in BROKEN),
        *(pytest.param(each, marks=pytest.mark.deep) for each in DEEP),
    ],
    ids=str,
)
def test_with_all_rules_nothing_goes_wrong(story: Story) -> None:
    model = Model(story)
    found = search(model.initial(), model.successors, model.wrong)
    assert found.trace is None, "\n".join(found.trace)
    assert found.states > 5


@pytest.mark.parametrize(("rule", "problem", "story"), BROKEN, ids=[rule for rule, _, _ in BROKEN])
def test_without_a_rule_the_search_finds_what_it_prevents(rule: str, problem: str, story: Story) -> None:
    model = Model(story, RULES - {rule})
    found = search(model.initial(), model.successors, lambda state: _only(problem, model.wrong(state)))
    assert found.trace is not None
    assert found.trace[-1] == problem


def _only(wanted: str, found: str | None) -> str | None:
    return found if found == wanted else None


def test_rule_decision_and_code_refer_to_each_other_by_name() -> None:
    documented = set(re.findall(r"^- `([\w-]+)`:", DECISION, re.MULTILINE))
    assert documented == RULES
    assert {rule for rule, _, _ in BROKEN} == RULES
    assert not documented - words_of()

"""With all rules no promise can be broken; without any one of them the search finds the trace to a broken one."""

import re

import pytest

from tests.models.code import words_of
from tests.models.effects import (
    BESIDE,
    FORGOTTEN,
    GIVEN_UP,
    HELD_UP,
    LEFT_OUT,
    NEVER_BEGUN,
    ORDER,
    RULES,
    TWICE,
    WRONGLY_MISSING,
    Model,
    Story,
)
from tests.models.search import search
from tests.support.paths import ROOT

DECISION = (ROOT / "docs" / "internals" / "decisions" / "0018-effects.md").read_text()

TWO = Story()
ONE_AGAIN = Story("e", comes=2)
GONE = Story("eee", lost=frozenset({2}), expires=frozenset({2}), calls=1)

BROKEN = [
    ("start-first", BESIDE, TWO),
    ("record-after", ORDER, TWO),
    ("at-its-version", BESIDE, Story("e", comes=2, old_reads=True)),
    ("decide-again", LEFT_OUT, TWO),
    ("complete-last", LEFT_OUT, Story("e", deaths=1, calls=1)),
    ("look-for-start", NEVER_BEGUN, Story("e", answers_lost=1, ticks=1, repeatable=False, calls=1)),
    ("young-runs", BESIDE, ONE_AGAIN),
    ("fresh-start", BESIDE, Story("e", ticks=1, comes=2)),
    ("calls-end", BESIDE, Story("e", ticks=1, comes=2)),
    ("take-over", HELD_UP, Story("e", deaths=1, ticks=1, calls=1)),
    ("put-back", NEVER_BEGUN, Story("e", fails=1, ticks=1, repeatable=False, calls=1)),
    ("ask-between", ORDER, TWO),
    ("gone-is-told", ORDER, GONE),
    ("absence-fenced", WRONGLY_MISSING, Story("eee", old_reads=True, calls=1)),
    ("discards-asked", GIVEN_UP, Story("eee", lost=frozenset({2}), discarded=frozenset({2}), calls=1)),
    ("published-only", GIVEN_UP, Story("ee", lost=frozenset({2}), parked=1, sweeps=1, calls=1)),
    ("sweep", LEFT_OUT, Story("ee", lost=frozenset({2}), sweeps=1, calls=1)),
    (
        "old-skips-written",
        WRONGLY_MISSING,
        Story("ene", expires=frozenset({2}), late=frozenset({2, 3}), calls=1),
    ),
    (
        "sweep-leaves-gone",
        WRONGLY_MISSING,
        Story("ee", expires=frozenset({2}), late=frozenset({2}), sweeps=1, calls=1),
    ),
    ("begin-at", GIVEN_UP, Story("ee", begin=2, calls=1)),
    (
        "first-is-kept",
        LEFT_OUT,
        Story("eee", expires=frozenset({1, 2}), late=frozenset({3}), calls=1),
    ),
    ("other-event", LEFT_OUT, Story("ee", restored=True, calls=1)),
    ("too-old", TWICE, Story("e", comes=2, aged=1, calls=1)),
    ("open-stays", FORGOTTEN, Story("ee", deaths=1, ticks=1, aged=1, repeatable=False, calls=1)),
    ("only-next", LEFT_OUT, Story("ee", gives_up=2, calls=1)),
    ("age-gives-up", HELD_UP, Story("ee", always_fails=1, gives_up=1, calls=1)),
]
"""What goes wrong without a rule, and in which story."""

ASKED_AGAIN = Story("ee", deaths=2, ticks=2, again=1, repeatable=False, calls=1)
"""Two processes die; an operator has the first effect run again, before the second start was taken over."""

GIVEN_UP_BEFORE = Story("eene", lost=frozenset({2, 3}), discarded=frozenset({2}), old_reads=True, calls=1)
"""The source shows what was given up, and not yet what comes after it."""

DEEP = [
    Story("ee", old_reads=True, answers_lost=1, tries=3),
    Story("ee", deaths=1, ticks=1, tries=3, repeatable=False),
    Story("ene", old_reads=True, tries=4, sweeps=1, calls=1, deaths=1, ticks=1),
    Story("ee", old_reads=True, sweeps=1, tries=3),
    Story("ee", old_reads=True, gives_up=1, sweeps=1, tries=2),
    Story("ee", restored=True, sweeps=1, answers_lost=1, tries=2),
    Story("ee", gives_up=2, deaths=1, ticks=1, fails=1, tries=2, repeatable=False),
    Story("ene", lost=frozenset({1}), old_reads=True, sweeps=1, answers_lost=1, tries=2),
    Story("ee", sweeps=1, answers_lost=1, deaths=1, ticks=1, tries=3, calls=1),
]
"""Several at once: 133 000 states."""


@pytest.mark.parametrize(
    "story",
    [
        *dict.fromkeys([*(story for _, _, story in BROKEN), ASKED_AGAIN, GIVEN_UP_BEFORE]),
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
    told = set(re.findall(r"^- `([\w-]+)`:", DECISION, re.MULTILINE))
    assert told == RULES
    assert {rule for rule, _, _ in BROKEN} == RULES
    assert not told - words_of()

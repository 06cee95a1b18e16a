"""With all rules no promise can be broken; without any one of them the search finds the trace to a broken one."""

import re
from collections.abc import Callable, Set
from functools import cache

import pytest

from tests.models.code import words_of
from tests.models.keyed import (
    ANOTHERS_KEY,
    CHANGED_ITS_MIND,
    CURRENT_REFUSED,
    NEVER_MADE,
    OLD_NO,
    OVERWRITTEN,
    RULES,
    TWICE,
    UNPINNED_412,
    UNSEEN_ETAG,
    WRONG_NO,
    Model,
    State,
    Story,
)
from tests.models.search import Searched, search
from tests.support.paths import ROOT

DECISION = (ROOT / "docs" / "internals" / "decisions" / "0025-reactions.md").read_text()
DECISION = DECISION.partition("## A change with a key")[2]

TWO, OTHER, TIME = Story(), Story(other=True), Story(ages=True)
PINNED = Story(requests=(("a: x", 0), ("a: x", 0)), other=True)
NEWER = Story(requests=(("a: x", 1), ("a: x", 1)), other=True)
DELETION = Story(change="deletes")
REFUSED = Story(change="needs-other", other=True)
NOTHING = Story(change="wants-other", other=True)
DELETED = Story(deletes=True, other=True)
BODIES = Story(requests=(("a: x", None), ("a: y", None)))
CALLERS = Story(requests=(("a: x", None), ("b: y", None)))
REBASED = Story(requests=(("a: x", 0),), other=True, rebases=2)

BROKEN = [
    ("one_batch", TWICE, TWO),
    ("created_only", TWICE, TWO),
    ("at_its_version", OVERWRITTEN, OTHER),
    ("caller_in_id", ANOTHERS_KEY, CALLERS),
    ("fingerprint", NEVER_MADE, BODIES),
    ("record_before_no", WRONG_NO, PINNED),
    ("record_before_no", WRONG_NO, DELETION),
    ("state_then_record", WRONG_NO, NEWER),
    ("newest_for_a_no", CURRENT_REFUSED, NEWER),
    ("newest_for_a_no", OLD_NO, REFUSED),
    ("decide_anew", UNPINNED_412, OTHER),
    ("unused_by_412", CURRENT_REFUSED, REBASED),
    ("refusal_recorded", CHANGED_ITS_MIND, REFUSED),
    ("refusal_recorded", CHANGED_ITS_MIND, NOTHING),
    ("etag_if_same", UNSEEN_ETAG, OTHER),
    ("deadline", TWICE, TIME),
]
"""What goes wrong without a rule, and in which story."""

LARGER = [
    Story(requests=(("a: x", 0),) * 3, other=True),
    Story(requests=(("a: x", 0), ("a: x", 1), ("a: y", 0)), other=True, rebases=1),
    Story("needs-other", (("a: x", 0), ("a: x", None)), other=True, deletes=True, ages=True, rebases=1),
    *(
        Story(change, (("a: x", pinned),) * 2, other=True, deletes=True, ages=True)
        for change in ("adds", "needs-other", "wants-other", "deletes")
        for pinned in (None, 1)
    ),
]


def only(problem: str) -> Callable[[State], str | None]:
    return lambda state: problem if state.problem == problem else None


@cache
def explored(story: Story) -> tuple[Searched[State], Set[str]]:
    """What is found where all rules hold, and each answer that is given in one of the states."""
    model, answers = Model(story), set[str]()

    def look(state: State) -> str | None:
        answers.update(each.answer for each in state.deliveries)
        return state.problem or None

    return search(model.initial(), model.successors, look), answers


@pytest.mark.timeout(600)  # the largest has 240 000 states
@pytest.mark.parametrize(
    "story",
    [
        *dict.fromkeys(story for _, _, story in BROKEN),
        DELETED,
        *(pytest.param(each, marks=pytest.mark.deep) for each in LARGER),
    ],
    ids=str,
)
def test_with_all_rules_nothing_goes_wrong(story: Story) -> None:
    found, _ = explored(story)
    assert found.trace is None, "\n".join(found.trace)
    assert found.states > 50


@pytest.mark.parametrize(("rule", "problem", "story"), BROKEN)
def test_without_a_rule_the_search_finds_what_it_prevents(rule: str, problem: str, story: Story) -> None:
    model = Model(story, RULES - {rule})
    found = search(model.initial(), model.successors, only(problem))
    assert found.trace is not None
    assert found.trace[-1] == problem


@pytest.mark.parametrize("answer", ["applied", "nothing", "refused", "404", "412", "422", "503"])
def test_the_search_finds_each_answer_that_the_page_promises(answer: str) -> None:
    """A model in which nothing can happen would break no promise either."""
    stories = [TWO, NOTHING, REFUSED, DELETED, PINNED, BODIES, TIME]
    assert any(answer in explored(story)[1] for story in stories)


def test_rule_decision_and_code_refer_to_each_other_by_name() -> None:
    listed = re.findall(r"^- ((?:`\w+`(?:, )?)+):", DECISION, re.MULTILINE)
    assert {rule for line in listed for rule in re.findall(r"`(\w+)`", line)} == RULES
    assert {rule for rule, _, _ in BROKEN} == RULES
    assert not RULES - words_of("cosmos/aggregates")

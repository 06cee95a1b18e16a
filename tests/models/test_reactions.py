"""With all rules no promise can be broken; without any one of them the search finds the trace to a broken one."""

import re

import pytest

from cosmos_outbox.cosmos.inbox.reaction_decision import InOrder
from tests.models import reaction_targets
from tests.models.code import words_of
from tests.models.reactions import (
    CAME_BACK,
    CHANGED_ITS_MIND,
    FOR_EVER,
    GIVEN_UP,
    LEFT_OUT,
    OLD_NO,
    OUT_OF_ORDER,
    OVERWRITTEN,
    OWN_CHANGE,
    RULES,
    SKIPPED,
    TWICE,
    WRONGLY_DONE,
    Model,
    Story,
    any_problem,
    only,
)
from tests.models.search import search
from tests.support.paths import ROOT

DECISION = (ROOT / "docs" / "internals" / "decisions" / "0025-reactions.md").read_text()
DECISION = DECISION.partition("## A change with a key")[0]

ONE, OTHER, TIME = Story(), Story(other=True), Story(ages=True)
DELETED = Story(react="makes", deletes=True, ages=True, instances=1, exists=True)
NEWEST = Story(messages=2, order=InOrder.NEWEST, comes=1)
EACH = Story(messages=2, order=InOrder.EACH, comes=1)
EACH_DISCARDED = Story(messages=2, order=InOrder.EACH, comes=1, operator="discard", instances=1)

QUICK = [ONE, Story(react="once")]
"""These are gone through at every run."""

BROKEN = [
    ("one_batch", TWICE, ONE),
    ("created_only", TWICE, ONE),
    ("record_first", OWN_CHANGE, ONE),
    ("original_id", TWICE, Story(copies=2, comes=1)),
    ("name_of_the_reaction", TWICE, Story(operator="apply")),
    ("record_says_which", WRONGLY_DONE, Story(operator="discard")),
    ("at_its_version", OVERWRITTEN, OTHER),
    ("decide_anew", LEFT_OUT, OTHER),
    ("newest_for_a_no", OLD_NO, Story(react="needs-other", other=True)),
    ("refusal_recorded", CHANGED_ITS_MIND, Story(react="wants-other", other=True)),
    ("complete_last", LEFT_OUT, Story(comes=1)),
    ("through_the_record", TWICE, Story(operator="apply")),
    ("discard_marks", GIVEN_UP, Story(operator="discard")),
    ("overdue_marks", GIVEN_UP, Story(operator="overdue")),
    ("too_old", TWICE, TIME),
    ("lives_as_long", TWICE, TIME),
    ("deadline", TWICE, TIME),
    ("tombstone_outlives", CAME_BACK, DELETED),
    ("erased_keeps_records", CAME_BACK, Story(react="makes", deletes=True, ages=True)),
    ("cursor", OUT_OF_ORDER, NEWEST),
    ("same_transaction", OUT_OF_ORDER, NEWEST),
    ("next_only", SKIPPED, EACH),
    ("every_outcome_moves", FOR_EVER, EACH_DISCARDED),
    ("discard_in_turn", SKIPPED, EACH_DISCARDED),
]
"""What goes wrong without a rule, and in which story."""

AGAIN = ("stored, answer lost", "refused", "reads: applied", "stored")
HOW = {
    "one_batch": AGAIN,
    "created_only": AGAIN,
    "record_first": ("stored, answer lost", "refused"),
    "at_its_version": ("reads: applied", "another writer changes the target", "stored"),
    "decide_anew": ("another writer changes the target", "refused, taken for done", "completes it"),
    "newest_for_a_no": ("another writer changes the target", "reads an old state: refused", "stored"),
    "refusal_recorded": ("nothing", "completes it", "another writer changes the target", "applied", "stored"),
    "complete_last": ("receives message 1", "dies"),
    "through_the_record": ("stored, answer lost", "operator: applies 1", "stored"),
    "discard_marks": ("reads: applied", "closes the copy", "stored"),
    "overdue_marks": ("reads: applied", "closes the copy", "stored"),
    "too_old": ("stored, answer lost", "the message grows too old", "the record expires", "stored"),
    "lives_as_long": ("stored, answer lost", "the record expires", "stored"),
    "deadline": ("reads: applied", "is slow", "the record expires", "stored"),
    "tombstone_outlives": ("the target is deleted", "the tombstone expires", "stored"),
    "cursor": ("receives message 2", "stored", "stored"),
    "next_only": ("receives message 2", "stored"),
}
"""Steps of the shortest trace, in order, as the page of the protocols lists them."""

LARGER = [
    Story(react="makes", deletes=True, ages=True),
    Story(react="needs-other", other=True, operator="apply"),
    Story(react="needs-other", other=True, operator="apply", messages=2, order=InOrder.NEWEST, instances=1),
    Story(messages=2, order=InOrder.EACH, comes=1, operator="discard"),
    Story(react="wants-other", other=True, messages=2, order=InOrder.EACH, comes=1),
    Story(
        react="needs-other",
        other=True,
        messages=2,
        order=InOrder.EACH,
        comes=1,
        operator="apply",
        instances=1,
    ),
]
"""Among them moves of the cursor by "nothing", "refused" and "discarded"."""


@pytest.mark.timeout(1800)  # the largest has 843 000 states
@pytest.mark.parametrize(
    "story",
    [
        *QUICK,
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in dict.fromkeys(story for _, _, story in BROKEN if story not in (*QUICK, *LARGER))
        ),
        pytest.param(Story(react="makes"), marks=pytest.mark.long),
        *(pytest.param(each, marks=pytest.mark.deep) for each in LARGER),
    ],
    ids=str,
)
def test_with_all_rules_nothing_goes_wrong(story: Story) -> None:
    model = Model(story)
    found = search(model.initial(), model.successors, any_problem)
    assert found.trace is None, "\n".join(found.trace)
    assert found.states > 100


@pytest.mark.parametrize(("rule", "problem", "story"), BROKEN, ids=[rule for rule, _, _ in BROKEN])
def test_without_a_rule_the_search_finds_what_it_prevents(rule: str, problem: str, story: Story) -> None:
    model = Model(story, RULES - {rule})
    found = search(model.initial(), model.successors, only(problem))
    assert found.trace is not None
    assert found.trace[-1] == problem
    steps = iter(found.trace)
    assert all(any(documented in step for step in steps) for documented in HOW.get(rule, ())), "\n".join(
        found.trace
    )


def test_a_message_for_several_targets_misses_none() -> None:
    start = reaction_targets.State()
    assert search(start, reaction_targets.Model().successors, reaction_targets.wrong).trace is None
    for rule in reaction_targets.RULES:
        off = reaction_targets.Model(reaction_targets.RULES - {rule})
        found = search(start, off.successors, reaction_targets.wrong)
        assert found.trace is not None, rule


def test_rule_decision_and_code_refer_to_each_other_by_name() -> None:
    listed = re.findall(r"^- ((?:`\w+`(?:, )?)+):", DECISION, re.MULTILINE)
    documented = {rule for line in listed for rule in re.findall(r"`(\w+)`", line)}
    assert documented == RULES | reaction_targets.RULES
    assert {rule for rule, _, _ in BROKEN} == RULES
    assert not documented - words_of()

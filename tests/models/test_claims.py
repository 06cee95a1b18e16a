"""With all rules no promise can be broken; without any one of them the search finds the trace to a broken one."""

import re

import pytest

from tests.models.claims import (
    CAME_BACK,
    CORRECTED,
    NO_ANSWER,
    NO_CLAIM,
    OUTSIDE,
    REFUSED,
    RULES,
    Claims,
    State,
    initial,
)
from tests.models.code import words_of
from tests.models.search import search
from tests.support.paths import ROOT

DECISION = (ROOT / "docs" / "internals" / "decisions" / "0008-idempotency-key.md").read_text()

BROKEN = [
    ("checks_first", CORRECTED),
    ("created_not_read", OUTSIDE),
    ("fresh_id", CAME_BACK),
    ("token_of_the_refusal", NO_CLAIM),
    ("life_left", OUTSIDE),
    ("life_left", CAME_BACK),
    ("deadline", OUTSIDE),
    ("deadline", CAME_BACK),
    ("one_batch", NO_ANSWER),
    ("loser_answers", REFUSED),
    ("lives_as_long", NO_ANSWER),
    ("lives_as_long", CAME_BACK),
    ("erased_not_removed", NO_ANSWER),
]
"""What goes wrong without a rule."""


def any_problem(state: State) -> str | None:
    return state.problem or None


@pytest.mark.timeout(240)  # three requests have 72 000 states
@pytest.mark.parametrize(
    "bodies",
    [
        ("good", "good"),
        pytest.param(("bad", "good", "good"), marks=pytest.mark.deep),
        pytest.param(("good", "good", "good"), marks=pytest.mark.deep),
    ],
)
def test_with_all_rules_nothing_goes_wrong(bodies: tuple[str, ...]) -> None:
    found = search(initial(*bodies), Claims().successors, any_problem)
    assert found.trace is None, "\n".join(found.trace)
    assert found.states > 1000


@pytest.mark.parametrize(("rule", "problem"), BROKEN)
def test_without_a_rule_the_search_finds_what_it_prevents(rule: str, problem: str) -> None:
    def wrong(state: State) -> str | None:
        return problem if state.problem == problem else None

    first = "bad" if rule == "checks_first" else "good"
    found = search(initial(first, "good"), Claims(RULES - {rule}).successors, wrong)
    assert found.trace is not None
    assert found.trace[-1] == problem


def test_the_search_finds_each_answer_that_the_page_promises() -> None:
    """A model in which nothing can happen would break no promise either."""
    for promised in ("201", "201 again", "410", "413", "422", "503"):

        def is_given(state: State, answer: str = promised) -> str | None:
            return answer if any(request.answer == answer for request in state.requests) else None

        bodies = ("good", "other") if promised == "422" else ("bad", "good", "good")
        found = search(initial(*bodies), Claims(forgets=False).successors, is_given)
        assert found.trace is not None, promised


def test_rule_decision_and_code_refer_to_each_other_by_name() -> None:
    documented = set(re.findall(r"^- `(\w+)`:", DECISION, re.MULTILINE))
    assert documented == RULES == {rule for rule, _ in BROKEN}
    assert not RULES - words_of()

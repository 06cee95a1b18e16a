"""Whatever order, crash or old read: an entry is never wrong, and at rest it is what its source is."""

import re

import pytest

from tests.models.inbox_state import RULES, Model, Story, first, messages
from tests.models.search import search
from tests.support.paths import ROOT

LOST = [
    Story(changes, odd, lost=True)
    for changes in ["C", "CUU", "CUD", "CNU", "CBU", "CXU", "CQU", "CUR"]
    for odd, sent in enumerate(messages(changes))
    if sent.event.sequence is not None  # an event without a sequence leaves no gap when it is lost
]
LATE = [
    Story(changes, odd, lost=False)
    for changes, late in {
        "CUU": [0],
        "CUD": [0, 1, 2],
        "CNU": [1],
        "CBU": [1, 2],
        "CXU": [1],
        "CQU": [1],
    }.items()
    for odd in late
]
"""Those in which the late message is the one that the story is about; each has some 100 000 states."""

CAUGHT_IN = {
    "applied-before": Story("CUU", 0, lost=True),
    "next-only": Story("CUU", 1, lost=True),
    "skip-healed": Story("CNU", 0, lost=True),
    "unknown-healed": Story("CXU", 0, lost=True),
    "unsequenced": Story("CQU", 1, lost=False),
    "made-from-source": Story("CUU", 0, lost=False),
    "newest-entry": Story("CUD", 0, lost=False),
    "newest-source": Story("CUU", 1, lost=True),
    "only-newer": Story("CUR", 0, lost=True),
    "gone-is-deleted": Story("CUD", 1, lost=False),
    "keep-the-deleted": Story("CUD", 0, lost=False),
    "deleted-is-final": Story("CUD", 0, lost=True),
    "healed-has-no-id": Story("CUU", 0, lost=True),
    "skip-no-alarm": Story("CBU", 0, lost=True),
    "one-write": Story("CUU", 0, lost=True),
    "at-its-version": Story("CUU", 0, lost=True),
    "complete-last": Story("CUU", 0, lost=False),
    "decide-again": Story("CUU", 0, lost=False),
    "tombstones-outlive-calls": Story("CUD", 0, lost=False),
    "walk-both-ways": Story("C", 0, lost=True),
    "create-first": Story("CUU", 0, lost=False),
    "create-young": Story("CUD", 0, lost=False),
    "gone-is-noted": Story("CD", 0, lost=False),
}
"""For each rule a story that goes wrong without it."""


FORGOTTEN = [
    *(Story(changes, odd, lost=True) for changes in ("CD", "CUD", "CUU") for odd in range(len(changes))),
    *(Story(changes, odd, lost=False) for changes, odd in (("CD", 0), ("CD", 1), ("CUD", 0))),
]
"""With a source that shows nothing of what was deleted, as another team's API."""


def searched(story: Story, off: str = "", *, forgets: bool = False) -> tuple[str, ...] | None:
    """A trace to what must not be."""
    model = Model(story, off, forgets or off == "gone-is-noted")
    return search(first(story), model.successors, model.broken).trace


@pytest.mark.long
@pytest.mark.parametrize("story", LOST, ids=str)
def test_an_entry_is_never_wrong_and_at_rest_it_is_what_its_source_is(story: Story) -> None:
    assert searched(story) is None


@pytest.mark.deep
@pytest.mark.timeout(120)
@pytest.mark.parametrize("story", LATE, ids=str)
def test_an_entry_is_never_wrong_when_a_message_comes_late_and_twice(story: Story) -> None:
    assert searched(story) is None


@pytest.mark.long
@pytest.mark.parametrize("story", FORGOTTEN, ids=str)
def test_a_source_that_forgets_what_was_deleted_revives_no_entry(story: Story) -> None:
    assert searched(story, forgets=True) is None


@pytest.mark.long
@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_something_goes_wrong(rule: str) -> None:
    trace = searched(CAUGHT_IN[rule], off=rule)
    assert trace is not None, f"{rule} is not needed in this story: find another, or drop the rule"


@pytest.mark.parametrize("rule", [*RULES, "same-place", "source-at-least"])
def test_a_rule_is_named_where_it_is_kept_and_where_it_is_explained(rule: str) -> None:
    page = (ROOT / "docs" / "internals" / "decisions" / "0017-inbox.md").read_text()
    assert re.search(rf"`{rule}`", page), f"docs/internals/decisions/0017-inbox.md does not name {rule}"
    assert any(rule in module.read_text() for module in (ROOT / "cosmos_outbox" / "inbox").glob("*.py")), rule

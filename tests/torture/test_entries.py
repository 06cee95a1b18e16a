"""Each way in which an entry can be wrong while a run goes on is found, and nothing else."""

import pytest

from cosmos_outbox.testing.judging.entries import entries
from cosmos_outbox.testing.judging.history import SeenEvent
from cosmos_outbox.testing.judging.records import HandedOut, SeenEntry
from cosmos_outbox.testing.judging.states import told
from tests.torture.contacts import Contacts
from tests.torture.story import CONTACT, Story, good


def shown(  # all that a version may have wrong
    sequence: int,
    *,
    event: str | None = None,
    at: str = "",
    deleted: bool = False,
    name: str = "a",
    email: str = "a",
) -> SeenEntry:
    """A version of the entry; ``name`` and ``email`` are the operations that set them."""
    data = {
        "firstName": name,
        "lastName": "Doe",
        "email": f"{email}@example.com",
        "company": "a",
        "city": None,
        "country": None,
    }
    return SeenEntry(
        at=0.0,
        aggregate=CONTACT,
        sequence=sequence,
        event=event,
        applied_at=at or f"at {sequence}",
        data=None if deleted else data,
    )


def rules(story: Story, *versions: SeenEntry) -> list[str]:
    story.history.add([*story.records, *versions])
    by_aggregate: dict[str, list[SeenEvent]] = {}
    for event in story.history.events():
        by_aggregate.setdefault(event.aggregate, []).append(event)
    facts = told(story.history, by_aggregate, Contacts())
    found = [*entries(story.history.shown, facts, Contacts())]
    assert not [violation for violation in found if violation.may_pass]
    return [violation.rule for violation in found]


def ended() -> Story:
    return good().deleted("c").delivered("c", "Deleted", 4)


@pytest.mark.parametrize(
    "versions",
    [
        [shown(1), shown(2, name="b"), shown(3, name="b", email="b")],
        [shown(1), shown(3, name="b", email="b")],
        [shown(3, name="b", email="b"), shown(4, deleted=True)],
        [shown(2, event="event-2", at="noon", name="b"), shown(2, event="event-2", at="noon", name="b")],
        [shown(5, name="its events have not arrived")],
    ],
)
def test_what_the_events_make_is_right(versions: list[SeenEntry]) -> None:
    assert rules(ended(), *versions) == []


@pytest.mark.parametrize(
    ("versions", "wrong"),
    [
        ([shown(3, name="b", email="b"), shown(2, name="b")], ["entry went back"]),
        ([shown(3, name="b")], ["entry differs from the events"]),
        (
            [shown(2, name="b"), shown(3, name="b", email="b"), shown(3, name="b")],
            ["entry differs from the events"],
        ),
        ([shown(4, name="b", email="b")], ["entry differs from the events"]),
        ([shown(3, deleted=True)], ["entry differs from the events"]),
        ([shown(4, deleted=True), shown(5, name="b", email="b")], ["deleted entry came back"]),
        (
            [shown(2, event="e", at="noon", name="b"), shown(2, event="e", at="later", name="b")],
            ["applied twice"],
        ),
    ],
)
def test_each_way_to_be_wrong_is_found(versions: list[SeenEntry], wrong: list[str]) -> None:
    assert rules(ended(), *versions) == wrong


def test_an_entry_is_judged_only_by_events_without_a_gap() -> None:
    story = good()
    story.records = [
        record for record in story.records if not (isinstance(record, HandedOut) and record.sequence == 2)
    ]
    assert rules(story, shown(3, name="b", email="b")) == []


def test_the_checker_looks_at_the_entries() -> None:
    story = good().found(name="b", email="b")
    assert story.rules() == set()
    story.history.add([shown(3, name="b", email="b"), shown(2, name="b")])
    assert story.rules() == {"entry went back"}


def test_a_company_that_an_event_takes_away_is_taken_from_the_entry() -> None:
    story = Story().created("a").delivered("a", "Created", 1)
    story.patched("b", "company").delivered("b", "CompanyUpdated", 2, differing={"company": None})
    right = shown(2)
    assert right.data is not None
    right.data["company"] = None
    assert rules(story, right, shown(2)) == ["entry differs from the events"]

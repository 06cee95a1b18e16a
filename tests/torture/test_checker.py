"""The checker finds nothing in a good history, and in each of these bad ones the rule that is broken."""

from collections.abc import Callable
from typing import Any

import pytest

from outbox_simulation.invariants.checker import check
from outbox_simulation.invariants.history import History
from outbox_simulation.invariants.records import (
    Answered,
    Attempted,
    FinallyListed,
    HandedOut,
    Poisoned,
    Record,
    SeenEntry,
    Stored,
)
from tests.torture.contacts import Contacts, expected, value_of

CONTACT = "11111111-1111-4111-8111-111111111111"
ALL = ("name", "email", "description", "company")


def details(operation: str) -> dict[str, Any]:
    return {
        "name": {"firstName": operation, "lastName": "Doe"},
        "email": f"{operation}@example.com",
        "description": value_of(operation, "description"),
        "company": {"companyName": operation},
    }


class Story:
    """Records, in the order in which they happened; each takes a second."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def add(self, record: Callable[..., Record], **fields: Any) -> None:
        self.records.append(record(at=float(len(self.records)), **fields))

    def asked(
        self, operation: str, call: Any, *names: str, answer: str = "acknowledged", **more: Any
    ) -> None:
        """An attempt, and its answer."""
        of = None if call == "create" else CONTACT
        events = {} if call == "read" else expected(call, operation, names)
        number = more.pop("number", 1)
        body, status = more.pop("body", {"id": CONTACT, **details(operation)}), more.pop("status", 200)
        sequence = more.pop("sequence", None)
        self.add(
            Attempted, operation=operation, call=call, number=number, aggregate=of, events=events, **more,
        )  # fmt: skip
        shown = {"body": body, "sequence": sequence} if answer == "acknowledged" else {}
        self.add(
            Answered, operation=operation, number=number, outcome=answer, status=status,
            aggregate=body["id"] if shown else None, **shown,
        )  # fmt: skip

    def event(self, operation: str, what: str, sequence: int, **differing: Any) -> dict[str, Any]:
        """The body of the event that a change causes."""
        carried = details(operation)
        field = what.removesuffix("Updated").lower()
        own = {"contact": {"id": CONTACT, **carried}} if what == "Created" else {field: carried[field]}
        return {
            "id": f"event-{sequence}", "contactId": CONTACT, "action": f"Contact{what}Event", "sequence": sequence,
            "correlationId": f"{operation}.1", **own, **differing,
        }  # fmt: skip

    def sent(self, operation: str, what: str, sequence: int, **differing: Any) -> None:
        body = self.event(operation, what, sequence, **differing)
        self.add(
            HandedOut, broker_number=len(self.records) + 1, delivery_count=1, lock="lock", message_id=body["id"],
            aggregate=CONTACT, subject=f"Contact{what}Event", sequence=sequence, body=body,
        )  # fmt: skip

    def stored(self, operation: str, what: str, sequence: int) -> None:
        body = self.event(operation, what, sequence)
        self.add(
            Stored, event=body["id"], aggregate=CONTACT, action=body["action"], sequence=sequence, body=body,
        )  # fmt: skip

    def shown(self, sequence: int) -> None:
        """An entry of the directory."""
        data: dict[str, str | None] = {
            "firstName": "b",
            "lastName": "Doe",
            "email": "b@example.com",
            "company": "a",
        }
        data |= {"city": None, "country": None} | ({"email": "a@example.com"} if sequence == 2 else {})
        self.add(
            SeenEntry, aggregate=CONTACT, sequence=sequence, event=None, applied_at=f"{sequence}", data=data
        )

    def rules(self, **values: str) -> set[str]:
        """What is broken, where the final list shows the values that these operations set."""
        history = History()
        history.add(self.records)
        if values:
            body = {"id": CONTACT} | {name: details(values.get(name, "a"))[name] for name in ALL}
            history.found.append(FinallyListed(at=99.0, aggregate=CONTACT, body=body))
        return {violation.rule for violation in check(history, Contacts())}


FINAL = {"name": "b", "email": "b"}


def good() -> Story:
    """A contact is created, and changed in two properties at once."""
    story = Story()
    story.asked("a", "create", *ALL, key="k", status=201)
    story.asked("b", "change", "name", "email", session="s", sequence=3)
    story.sent("a", "Created", 1)
    story.sent("b", "NameUpdated", 2)
    story.sent("b", "EmailUpdated", 3)
    return story


def test_a_good_history_has_no_violation() -> None:
    story = good()
    story.asked("c", "change", "name", answer="unknown", status=503)
    story.asked("d", "change", "email", answer="refused", status=409)
    story.shown(2)
    story.shown(3)
    assert story.rules(**FINAL) == set()


def without(sequence: int) -> Callable[[Story], Any]:
    def remove(story: Story) -> None:
        story.records = [
            each for each in story.records if not (isinstance(each, HandedOut) and each.sequence == sequence)
        ]

    return remove


def refused_and_done(story: Story) -> None:
    story.asked("c", "change", "company", answer="refused", status=409)
    story.sent("c", "CompanyUpdated", 4)


def never_repeated(story: Story) -> None:
    story.asked("a", "create", *ALL, key="k", number=2, answer="refused", status=409)


def entry_back(story: Story) -> None:
    story.shown(3)
    story.shown(2)


@pytest.mark.parametrize(
    ("breaks", "rule"),
    [
        (without(3), "lost event"),
        (without(2), "order"),
        (lambda story: story.sent("b", "EmailUpdated", 3), "duplicate"),
        (lambda story: story.sent("b", "NameUpdated", 4, id="event-4"), "done twice"),
        (lambda story: story.sent("nobody", "CompanyUpdated", 4), "invented event"),
        (lambda story: story.stored("a", "Created", 1), "sent, and never stored"),
        (refused_and_done, "refused, and done"),
        (never_repeated, "repetition refused"),
        (lambda story: story.asked("r", "read", session="s", sequence=1), "read went back"),
        (
            lambda story: story.add(Poisoned, document="p", partition="nobody", stored=True, aggregate=None),
            "not parked",
        ),
        (entry_back, "entry went back"),
    ],
)
def test_a_broken_rule_is_found(breaks: Callable[[Story], Any], rule: str) -> None:
    story = good()
    breaks(story)
    assert rule in story.rules(**FINAL)


def test_a_contact_that_is_not_listed_is_lost() -> None:
    assert good().rules() == {"lost aggregate"}

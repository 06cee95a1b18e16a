"""At rest each way in which the directory can be wrong is found."""

from typing import Any

import pytest

from cosmos_outbox.testing.judging.entries import at_rest
from cosmos_outbox.testing.judging.violation import Violation
from tests.torture.contacts import Contacts
from tests.torture.judge import _found, _shown

CONTACT: dict[str, Any] = {
    "id": "7",
    "name": {"firstName": "J", "lastName": "D"},
    "email": "j@d.org",
    "company": {"companyName": "Contoso", "city": "Oslo", "country": None},
    "sequence": 3,
}
ENTRY: dict[str, Any] = {
    "id": "7", "firstName": "J", "lastName": "D", "email": "j@d.org", "company": "Contoso", "city": "Oslo",
    "country": None, "sequence": 3, "blockedSince": None,
}  # fmt: skip


def second_opinion(
    contacts: list[dict[str, Any]], entries: list[dict[str, Any]], set_aside: dict[str, str]
) -> list[Violation]:
    return at_rest([*map(_found, contacts)], [*map(_shown, entries)], set_aside, Contacts())


def test_an_entry_that_equals_its_contact_is_right() -> None:
    assert second_opinion([CONTACT], [ENTRY], {}) == []
    alone = {**CONTACT, "company": None}
    assert second_opinion([alone], [{**ENTRY, "company": None, "city": None}], {}) == []


@pytest.mark.parametrize(
    ("contacts", "entries", "set_aside", "about"),
    [
        ([CONTACT], [], {}, "7 is not shown"),
        ([], [ENTRY], {}, "7 is shown, and is not there"),
        ([CONTACT], [ENTRY, ENTRY], {}, "an entry is listed twice"),
        ([CONTACT], [{**ENTRY, "sequence": 2}], {}, "7, at sequence 2 of 3, differs in sequence"),
        ([CONTACT], [{**ENTRY, "city": "Bergen"}], {}, "7, at sequence 3 of 3, differs in city"),
        ([CONTACT], [ENTRY], {"e": "a bug"}, "e is set aside: a bug"),
    ],
)
def test_each_way_to_be_wrong_is_found(
    contacts: list[dict[str, Any]], entries: list[dict[str, Any]], set_aside: dict[str, str], about: str
) -> None:
    [violation] = second_opinion(contacts, entries, set_aside)
    assert (violation.about, violation.may_pass) == (about, True)

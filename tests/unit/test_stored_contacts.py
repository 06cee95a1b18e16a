"""A stored contact can be read, changed, listed and deleted by the next version and by the one before."""

from typing import Any

import pytest

from cosmos_outbox.cosmos.aggregates.documents import aggregate_from_item, aggregate_item
from cosmos_outbox.http.problems import InvalidRequest
from cosmos_outbox.http.validation import replaced
from domain.contact import Contact
from domain.values import ContactDetails, Name
from tests.support import contacts_http as http
from tests.support.contacts import LATER
from tests.unit.test_documents import CONTACT_ITEM


def stored(**data: Any) -> Contact:
    """A contact that another version of the service has stored."""
    item = CONTACT_ITEM | {"_etag": "x", "data": CONTACT_ITEM["data"] | data}
    return aggregate_from_item(Contact, item).aggregate


FROM_LATER: dict[str, Any] = {
    "name": {"firstName": "John", "lastName": "Doe", "middleName": "Q"},
    "company": {"companyName": "Contoso", "vat": "NO 1"},
    "phone": "+47 1",
}


def test_a_change_keeps_every_field_that_this_version_does_not_know() -> None:
    contact = stored(**FROM_LATER)
    contact.rename(Name(first_name="Jane", last_name="Doe"), at=LATER)
    changes = contact.changes()
    assert changes is not None
    assert [event.action for event in changes.events] == ["ContactNameUpdatedEvent"]
    data = aggregate_item(contact, changes.state, ttl=-1)["data"]
    assert data["name"] == {"firstName": "Jane", "lastName": "Doe", "middleName": "Q"}
    assert data["company"]["vat"] == "NO 1"
    assert data["phone"] == "+47 1"


ANOTHER_WRITERS: dict[str, Any] = {
    "name": {"firstName": " Zoe\u0308", "lastName": "Doe "},
    "email": "zoe@CONTOSO.com",
    "company": {"companyName": " C ", "city": "O "},
}
"""As our rules would not write them, and as no rule refuses them."""


@pytest.mark.parametrize("whole", [False, True])
def test_what_a_caller_leaves_as_it_is_stored_does_not_change(whole: bool) -> None:
    contact = stored(**ANOTHER_WRITERS)
    shown = http.view(contact)
    if whole:
        revised = replaced(ContactDetails, contact.details, shown, shown | {"description": "x"})
    else:
        revised = http.revised(contact.details, {"description": "x"})
    contact.revise(revised, at=LATER)
    changes = contact.changes()
    assert changes is not None
    assert [event.action for event in changes.events] == ["ContactDescriptionUpdatedEvent"]
    contact = stored(**ANOTHER_WRITERS)
    contact.revise(http.revised(contact.details, {"name": {"lastName": " Roe"}}), at=LATER)
    assert contact.details.name.model_dump() == {"first_name": "Zo\u00eb", "last_name": "Roe"}


TODAY_REFUSED: dict[str, Any] = {
    "email": "no-address-any-more", "description": "x" * 5000, "name": {"firstName": "\u200b", "lastName": "D\u0000e"},
}  # fmt: skip


def test_a_rule_that_came_later_makes_nothing_unreadable() -> None:
    contact = stored(**TODAY_REFUSED)
    assert http.view(contact)["email"] == "no-address-any-more"
    contact.delete(at=LATER)
    assert contact.changes() is not None


def test_a_patch_is_judged_by_what_it_patches() -> None:
    contact = stored(**TODAY_REFUSED)
    revised = http.revised(contact.details, {"company": None})
    assert (revised.company, revised.email) == (None, "no-address-any-more")
    spelled = http.revised(contact.details, {"company": {"companyName": " C "}}).company
    assert spelled is not None
    assert spelled.company_name == "C"
    contact.revise(revised, at=LATER)
    changes = contact.changes()
    assert changes is not None
    assert [event.action for event in changes.events] == ["ContactCompanyUpdatedEvent"]
    with pytest.raises(InvalidRequest) as refused:
        http.revised(contact.details, {"email": "still none", "company": None})
    assert [error.field for error in refused.value.errors] == ["email"]

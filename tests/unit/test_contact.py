"""A contact raises exactly the events of its changes, numbered without a gap."""

from typing import Any

import pytest
from email_validator import ValidatedEmail, validate_email

from domain.contact import Contact
from domain.errors import ContactDeleted
from domain.values import Company, ContactDetails, Name
from tests.support.contacts import DETAILS, LATER, NOON, a_stored_contact, stored

JANE = Name(first_name="Jane", last_name="Doe")


def raised(contact: Contact) -> list[tuple[str, int]]:
    changes = contact.changes()
    return [(event.action, event.sequence) for event in changes.events] if changes else []


def test_a_new_contact_checks_no_address_that_its_details_have_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked: list[str] = []

    def counted(address: str, **options: Any) -> ValidatedEmail:
        checked.append(address)
        return validate_email(address, **options)

    monkeypatch.setattr("email_validator.validate_email", counted)
    details = ContactDetails(name=JANE, email="jane@contoso.com")
    assert Contact.create(details, at=NOON).details == details
    assert checked == ["jane@contoso.com"]


def test_a_new_contact_raises_only_its_creation_with_its_final_state() -> None:
    contact = Contact.create(DETAILS, at=NOON)
    contact.rename(JANE, at=LATER)
    contact.describe("a friend", at=LATER)

    changes = contact.changes()

    assert changes is not None
    [event] = changes.events
    wire = event.model_dump(mode="json", by_alias=True)
    assert wire["action"] == "ContactCreatedEvent"
    assert wire["sequence"] == 1
    assert wire["contactId"] == str(contact.id)
    assert wire["contact"]["name"] == {"firstName": "Jane", "lastName": "Doe"}
    assert wire["contact"]["description"] == "a friend"
    published = {"id", "name", "email", "description", "company", "createdAt", "modifiedAt"}
    assert set(wire["contact"]) == published, (
        "what a caller of the API sees, and nothing that only the store needs"
    )
    assert changes.state.modified_at is None


def test_each_changed_property_is_one_event_in_the_order_of_the_changes() -> None:
    contact = a_stored_contact()
    contact.change_company(Company(company_name="Fabrikam"), at=LATER)
    contact.rename(JANE, at=LATER)
    contact.change_email("jane@fabrikam.com", at=LATER)
    contact.describe("moved", at=LATER)

    assert raised(contact) == [
        ("ContactCompanyUpdatedEvent", 2),
        ("ContactNameUpdatedEvent", 3),
        ("ContactEmailUpdatedEvent", 4),
        ("ContactDescriptionUpdatedEvent", 5),
    ]


def test_the_sequence_goes_on_where_the_last_unit_of_work_ended() -> None:
    contact = a_stored_contact()
    contact.rename(JANE, at=LATER)
    contact.describe("x", at=LATER)
    contact = stored(contact)
    contact.delete(at=LATER)

    assert raised(contact) == [("ContactDeletedEvent", 4)]


def test_two_changes_of_one_property_are_one_event_with_the_last_value() -> None:
    contact = a_stored_contact()
    contact.describe("first", at=NOON)
    contact.rename(JANE, at=NOON)
    contact.describe("second", at=LATER)

    changes = contact.changes()

    assert changes is not None
    assert [(e.action, e.sequence) for e in changes.events] == [
        ("ContactDescriptionUpdatedEvent", 2),
        ("ContactNameUpdatedEvent", 3),
    ]
    assert changes.events[0].model_dump()["description"] == "second"
    assert changes.state.modified_at == LATER


def test_setting_what_is_already_so_changes_nothing() -> None:
    contact = a_stored_contact()
    contact.revise(DETAILS, at=LATER)
    contact.change_company(Company(company_name="Contoso", city="Palo Alto"), at=LATER)

    assert contact.changes() is None
    assert contact.state.modified_at is None


def test_deleting_says_when_and_ends_the_contact() -> None:
    contact = a_stored_contact()
    contact.delete(at=LATER)

    changes = contact.changes()

    assert changes is not None
    assert changes.state.deleted
    assert changes.state.deleted_at == LATER
    with pytest.raises(ContactDeleted):
        contact.rename(JANE, at=LATER)


def test_a_change_and_the_deletion_in_one_unit_of_work_are_two_events() -> None:
    contact = a_stored_contact()
    contact.rename(JANE, at=LATER)
    contact.delete(at=LATER)

    assert raised(contact) == [("ContactNameUpdatedEvent", 2), ("ContactDeletedEvent", 3)]


def test_a_contact_that_was_never_stored_cannot_be_deleted() -> None:
    with pytest.raises(ValueError, match="never stored"):
        Contact.create(DETAILS, at=NOON).delete(at=LATER)


@pytest.mark.parametrize("value", [{"first_name": "Other"}, {"id": "x"}])
def test_events_and_states_cannot_be_changed(value: dict[str, Any]) -> None:
    state = a_stored_contact().state
    for name, new in value.items():
        with pytest.raises(ValueError, match=r"frozen|no field"):
            setattr(state, name, new)

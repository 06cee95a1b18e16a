"""Contacts for tests, with fixed times; no contact is a real person."""

from datetime import UTC, datetime
from typing import Any

from cosmos_outbox.outbox.aggregate import Origin
from domain.contact import Contact
from domain.values import Company, ContactDetails, ContactState, Name

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LATER = datetime(2026, 3, 1, 13, 30, tzinfo=UTC)
ORIGIN = Origin(
    correlation_id="request-1", traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)
CONTOSO = Company(company_name="Contoso", city="Palo Alto")
DETAILS = ContactDetails(
    name=Name(first_name="John", last_name="Doe"), email="johndoe@contoso.com", company=CONTOSO
)
DETAILS_JSON: dict[str, Any] = {
    "name": {"firstName": "John", "lastName": "Doe"},
    "email": "johndoe@contoso.com",
    "description": "met in Oslo",
    "company": {
        "companyName": "Contoso",
        "street": "Main St",
        "houseNumber": "1a",
        "city": "Oslo",
        "country": "NO",
    },
}


def stored(contact: Contact) -> Contact:
    """The contact as it is after its changes were stored and it was loaded again."""
    changes = contact.changes()
    assert changes is not None
    return Contact.load(ContactState.model_validate(changes.state.model_dump()))


def a_stored_contact() -> Contact:
    """A contact whose creation was stored: sequence 1 is used."""
    return stored(Contact.create(DETAILS, at=NOON))

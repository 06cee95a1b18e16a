"""Contacts and events as Cosmos items, and back."""

from typing import Any
from uuid import UUID

import pytest

from application.ports import Origin, OutboxEvent, Poison
from domain.contact import Contact
from domain.events import ContactNameUpdatedEvent
from domain.values import Company, ContactDetails, Name
from infra.documents import contact_from_item, contact_item, event_from_item, event_item
from tests.support.contacts import LATER, NOON, ORIGIN

CONTACT_ID = UUID("b5e2e7aa-4982-4735-9422-c39a7c4af5c2")
EVENT_ID = UUID("d6a5f4b2-84c3-4ac7-ae22-6f4025ba9ca0")
CONTACT_ITEM: dict[str, Any] = {
    "id": "b5e2e7aa-4982-4735-9422-c39a7c4af5c2",
    "partitionKey": "b5e2e7aa-4982-4735-9422-c39a7c4af5c2",
    "type": "contact",
    "data": {
        "id": "b5e2e7aa-4982-4735-9422-c39a7c4af5c2",
        "name": {"firstName": "John", "lastName": "Doe"},
        "email": "johndoe@contoso.com",
        "description": None,
        "company": {
            "companyName": "Contoso",
            "street": None,
            "houseNumber": "1a",
            "postalCode": None,
            "city": None,
            "country": "US",
        },
        "createdAt": "2026-03-01T12:00:00Z",
        "modifiedAt": None,
        "deletedAt": None,
        "deleted": False,
        "lastSequence": 1,
    },
    "ttl": -1,
}
EVENT_ITEM: dict[str, Any] = {
    "id": "d6a5f4b2-84c3-4ac7-ae22-6f4025ba9ca0",
    "partitionKey": "b5e2e7aa-4982-4735-9422-c39a7c4af5c2",
    "type": "domainEvent",
    "data": {
        "id": "d6a5f4b2-84c3-4ac7-ae22-6f4025ba9ca0",
        "contactId": "b5e2e7aa-4982-4735-9422-c39a7c4af5c2",
        "action": "ContactNameUpdatedEvent",
        "sequence": 2,
        "createdAt": "2026-03-01T13:30:00Z",
        "name": {"firstName": "Jane", "lastName": "Doe"},
        "correlationId": "request-1",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    },
    "ttl": 864000,
}


def a_contact() -> Contact:
    details = ContactDetails(
        name=Name(first_name="John", last_name="Doe"),
        email="johndoe@contoso.com",
        company=Company(company_name="Contoso", house_number="1a", country="US"),
    )
    return Contact.create(details, at=NOON, contact_id=CONTACT_ID)


def an_event() -> ContactNameUpdatedEvent:
    return ContactNameUpdatedEvent(
        id=EVENT_ID,
        contact_id=CONTACT_ID,
        sequence=2,
        created_at=LATER,
        name=Name(first_name="Jane", last_name="Doe"),
    )


def test_a_contact_as_an_item() -> None:
    assert contact_item(a_contact().state, tombstone_ttl=60) == CONTACT_ITEM


def test_a_contact_out_of_an_item() -> None:
    read = CONTACT_ITEM | {"_etag": '"7"', "_ts": 1, "_rid": "x", "_self": "y", "_attachments": "a/"}
    stored = contact_from_item(read)
    assert stored.contact == a_contact().state
    assert stored.etag == '"7"'


def test_a_deleted_contact_expires() -> None:
    contact = Contact.load(a_contact().state)
    contact.delete(at=LATER)
    changes = contact.changes()
    assert changes is not None
    item = contact_item(changes.state, tombstone_ttl=77)
    assert item["ttl"] == 77
    assert item["data"]["deletedAt"] == "2026-03-01T13:30:00Z"


def test_an_event_as_an_item() -> None:
    assert event_item(an_event(), ORIGIN, ttl=864000) == EVENT_ITEM


def test_an_event_without_a_trace() -> None:
    assert "traceparent" not in event_item(an_event(), Origin("c"), ttl=1)["data"]


def test_an_event_out_of_an_item() -> None:
    assert event_from_item(EVENT_ITEM | {"_lsn": 5, "_ts": 1}) == OutboxEvent(
        id=str(EVENT_ID),
        contact_id=str(CONTACT_ID),
        action="ContactNameUpdatedEvent",
        sequence=2,
        created_at=LATER,
        correlation_id="request-1",
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        lsn=5,
        document=EVENT_ITEM | {"_lsn": 5, "_ts": 1},
    )


@pytest.mark.parametrize(
    "item", [CONTACT_ITEM, {}, {"type": None}, {"type": ["domainEvent"]}, {"type": "inbox"}]
)
def test_what_is_not_an_event_is_left_alone(item: dict[str, Any]) -> None:
    assert event_from_item(item) is None


def broken(**data: Any) -> dict[str, Any]:
    return EVENT_ITEM | {"data": EVENT_ITEM["data"] | data}


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (EVENT_ITEM | {"data": None}, "data"),
        (EVENT_ITEM | {"data": "x"}, "data"),
        ({"type": "domainEvent"}, "data"),
        (broken(sequence=0), "sequence"),
        (broken(sequence="2"), "sequence"),
        (broken(sequence=True), "sequence"),
        (broken(sequence=2**63), "sequence"),
        (broken(action=""), "action"),
        (broken(action="x" * 129), "action"),
        (broken(createdAt="yesterday"), "createdAt"),
        (broken(contactId="someone-else"), "another event or contact"),
        (EVENT_ITEM | {"id": "other"}, "another event or contact"),
        (EVENT_ITEM | {"id": "x" * 129, "data": EVENT_ITEM["data"] | {"id": "x" * 129}}, "data.id"),
        (broken(correlationId=5), "correlationId"),
    ],
)
def test_what_can_never_be_sent_says_why(item: dict[str, Any], reason: str) -> None:
    result = event_from_item(item)
    assert isinstance(result, Poison)
    assert reason in result.reason
    assert "Jane" not in result.reason


@pytest.mark.parametrize(
    ("key", "contact"),
    [(str(CONTACT_ID), str(CONTACT_ID)), ("nobody", None), (None, None), (7, None), (["x"], None)],
)
def test_poison_belongs_to_the_contact_whose_partition_it_is_in(key: Any, contact: str | None) -> None:
    result = event_from_item({"type": "domainEvent", "id": "x", "partitionKey": key, "_lsn": "7"})
    assert isinstance(result, Poison)
    assert (result.contact_id, result.lsn) == (contact, 0)


def test_an_event_does_not_show_its_data_in_a_log() -> None:
    assert "Jane" not in repr(event_from_item(EVENT_ITEM))

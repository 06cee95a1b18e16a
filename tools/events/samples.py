"""Creates one real message of each event as the app does, of a contact that does not exist, always the same."""

import json
from collections.abc import Generator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

from azure.servicebus import ServiceBusMessage

from cosmos_outbox.cosmos.aggregates.documents import EventReader, event_item, skip_marker_document
from cosmos_outbox.cosmos.store.partition_key import Item
from cosmos_outbox.outbox.aggregate import Origin
from cosmos_outbox.outbox.feed import OutboxEvent, SkipMarker
from cosmos_outbox.outbox.publisher import CloudEvents
from cosmos_outbox.servicebus.message import message_from_event
from domain.contact import Contact
from domain.values import Company, ContactDetails, Name
from infra.bootstrap import service as contact_service

SCHEMAS = "https://contacts.example/events"

_CONTACT = UUID("b5e2e7aa-4982-4735-9422-c39a7c4af5c2")
_NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
_ORIGIN = Origin("9b2a6c1e", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
_CREATED = ContactDetails(
    name=Name(first_name="John", last_name="Doe"),
    email="johndoe@contoso.com",
    description="met in Oslo",
    company=Company(company_name="Contoso", house_number="1a", city="Oslo", country="NO"),
)
_REVISED = ContactDetails(name=Name(first_name="Jane", last_name="Roe"), email="jane@contoso.com")


def messages() -> list[ServiceBusMessage]:
    """Returns a message of each event in the order in which one contact could cause them."""
    reader, service = (
        EventReader(contact_service.wire_names.untyped),
        CloudEvents(contact_service.wire_names.source, SCHEMAS),
    )
    found = []
    for item in _documents():
        event = reader.event(item)
        assert isinstance(event, OutboxEvent), "a sample is a valid event"
        found.append(message_from_event(event, service=service, partitioned=False))
    return found


def body(message: ServiceBusMessage) -> dict[str, Any]:
    """Returns the body that subscribers read."""
    read: dict[str, Any] = json.loads(b"".join(message.body))
    return read


def headers(message: ServiceBusMessage) -> dict[str, Any]:
    """Returns the application properties."""
    return {
        name.decode() if isinstance(name, bytes) else name: value
        for name, value in (message.application_properties or {}).items()
    }


def _documents() -> Iterator[Item]:
    contact = Contact.create(_CREATED, at=_NOON, id=_CONTACT)
    contact = yield from _changed(contact)
    contact.revise(_REVISED, at=_NOON + timedelta(hours=1))
    contact = yield from _changed(contact)
    contact.delete(at=_NOON + timedelta(days=1))
    yield from _changed(contact)
    lost = SkipMarker(contact.key, str(_id(6)), sequence=6, created_at=_NOON + timedelta(days=2))
    yield skip_marker_document(lost, partition_key=contact.partition_key)


def _changed(contact: Contact) -> Generator[Item, None, Contact]:
    changes = contact.changes()
    assert changes is not None, "each step changes something"
    for event in changes.events:
        published = event.model_copy(update={"id": _id(event.sequence)})
        yield event_item(contact, published, _ORIGIN, ttl=864_000)
    return Contact.load(changes.state)


def _id(sequence: int) -> UUID:
    return uuid5(_CONTACT, str(sequence))

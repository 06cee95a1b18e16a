"""Items as the change feed delivers them."""

from typing import Any
from uuid import UUID, uuid5

from cosmos_outbox.cosmos.aggregates.documents import DIGEST, EventReader, digest
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.feed import FeedEvent
from infra.bootstrap import service as contact_service

EVENTS = EventReader(contact_service.wire_names.untyped)
"""Reads as the deployed app does."""

_NAMESPACE = UUID("00000000-0000-4000-8000-000000000000")


def contact_id(name: str) -> str:
    """The same id for the same name."""
    return str(uuid5(_NAMESPACE, name))


def contact_key(name: str) -> AggregateKey:
    """The key of the contact of that name."""
    return AggregateKey("contact", contact_id(name))


def event_document(contact: str, sequence: int, *, lsn: int | None = None, **data: Any) -> dict[str, Any]:
    """A valid event document of the contact of that name."""
    event_id = str(uuid5(_NAMESPACE, f"{contact}/{sequence}"))
    return {
        "id": event_id,
        "partitionKey": contact_id(contact),
        "type": "domainEvent",
        "data": {
            "id": event_id,
            "contactId": contact_id(contact),
            "action": "Changed",
            "sequence": sequence,
            "createdAt": "2026-03-01T12:00:00Z",
        }
        | data,
        "ttl": 1000,
        "_ts": 1_772_366_400,
        "_lsn": sequence if lsn is None else lsn,
    }


def poison_document(contact: str | None, lsn: int) -> dict[str, Any]:
    """A document that says it is an event, in the partition of a contact or in one that names no aggregate."""
    key = None if contact is None else contact_id(contact)
    return {
        "id": f"poison-{lsn}",
        "partitionKey": key,
        "type": "domainEvent",
        "data": {"broken": lsn},
        "_lsn": lsn,
    }


def read(item: dict[str, Any]) -> FeedEvent:
    """The item as the relay sees it, with the digest that it was committed with."""
    event = EVENTS.event(item | {DIGEST: digest(item)})
    assert event is not None
    return event

"""Aggregates and events as Cosmos items, and back: pure functions, and the only place that knows the items' shape.

Contact and events share the partition key, the contact's id: that is what lets one transactional batch hold them.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from application.ports import FeedEvent, Origin, OutboxEvent, Poison, RequestRecord, Versioned
from domain.events import DomainEvent
from domain.values import ContactState

CONTACT_TYPE = "contact"
EVENT_TYPE = "domainEvent"
REQUEST_TYPE = "idempotencyRecord"
KEEP_FOR_EVER = -1

Item = dict[str, Any]
"""A Cosmos item: JSON on its way to or from the SDK."""

_ID_LENGTH = 128
"""The longest MessageId and SessionId that Service Bus takes, in characters
(https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas)."""


def contact_item(contact: ContactState, *, tombstone_ttl: int) -> Item:
    """The item of a contact; a deleted one expires after ``tombstone_ttl`` seconds."""
    return {
        "id": str(contact.id),
        "partitionKey": str(contact.id),
        "type": CONTACT_TYPE,
        "data": contact.model_dump(mode="json", by_alias=True),
        "ttl": tombstone_ttl if contact.deleted else KEEP_FOR_EVER,
    }


def contact_from_item(item: Mapping[str, Any]) -> Versioned:
    """The contact in an item as it was read. Raises ValueError when the item holds none."""
    if item.get("type") != CONTACT_TYPE:
        raise ValueError("the item is not a contact")
    return Versioned(
        ContactState.model_validate(item["data"], by_alias=True, by_name=False), str(item["_etag"])
    )


def request_id(key_digest: str) -> str:
    """The id of a request's record in the partition of the contact that it created."""
    return f"request-{key_digest}"


def request_item(record: RequestRecord, *, ttl: int) -> Item:
    """The item of a request's record, which expires ``ttl`` seconds after it was written."""
    return {
        "id": request_id(record.key_digest),
        "partitionKey": str(record.contact.id),
        "type": REQUEST_TYPE,
        "data": {
            "keyDigest": record.key_digest,
            "fingerprint": record.fingerprint,
            "contact": record.contact.model_dump(mode="json", by_alias=True),
        },
        "ttl": ttl,
    }


def request_from_item(item: Mapping[str, Any]) -> RequestRecord:
    """The record in an item as it was read. Raises KeyError or ValueError when the item holds none."""
    data = item["data"]
    contact = ContactState.model_validate(data["contact"], by_alias=True, by_name=False)
    return RequestRecord(data["keyDigest"], data["fingerprint"], contact)


def event_item(event: DomainEvent, origin: Origin, *, ttl: int) -> Item:
    """The item of an event, which expires ``ttl`` seconds after it was written."""
    data = event.model_dump(mode="json", by_alias=True) | {"correlationId": origin.correlation_id}
    if origin.traceparent:
        data["traceparent"] = origin.traceparent
    return {
        "id": str(event.id),
        "partitionKey": str(event.contact_id),
        "type": EVENT_TYPE,
        "data": data,
        "ttl": ttl,
    }


_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_Id = Annotated[str, Field(min_length=1, max_length=_ID_LENGTH)]


class _EventData(BaseModel):
    """What the relay must know of an event; everything else in it is the subscribers' business."""

    model_config = ConfigDict(alias_generator=to_camel, strict=True, hide_input_in_errors=True)

    id: _Id
    contact_id: _Id
    action: _Id
    sequence: int = Field(ge=1, lt=2**63)
    created_at: Annotated[datetime, Field(strict=False)]
    correlation_id: str | None = None
    traceparent: str | None = None


def event_from_item(item: Mapping[str, Any]) -> FeedEvent | None:
    """An event document of the feed as the relay sees it; None when the item is something else."""
    if item.get("type") != EVENT_TYPE:
        return None
    event_id, partition_key, lsn = str(item.get("id", "")), item.get("partitionKey"), _lsn(item)
    contact_id = partition_key if isinstance(partition_key, str) and _UUID.fullmatch(partition_key) else None
    try:
        data = _EventData.model_validate(item.get("data"))
    except ValidationError as problems:
        wrong = "; ".join(
            f"{'.'.join(['data', *map(str, problem['loc'])])}: {problem['msg']}"
            for problem in problems.errors(include_url=False, include_input=False, include_context=False)
        )
        return Poison(event_id, contact_id, f"it is no valid event document: {wrong}", lsn, item)
    if (data.id, data.contact_id) != (event_id, contact_id):
        reason = (
            "its data names another event or contact than the document does, or its contact's id is no UUID"
        )
        return Poison(event_id, contact_id, reason, lsn, item)
    return OutboxEvent(**dict(data), lsn=lsn, document=item)


def events_from_items(items: Iterable[Mapping[str, Any]]) -> list[FeedEvent]:
    """The event documents among the items of a feed."""
    return [event for item in items if (event := event_from_item(item)) is not None]


def _lsn(item: Mapping[str, Any]) -> int:
    lsn = item.get("_lsn")
    return lsn if isinstance(lsn, int) else 0

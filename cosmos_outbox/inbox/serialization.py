"""Converts entries and records to JSON documents, the same in every store, and back; a version is kept beside them."""

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar

from pydantic import BaseModel

from cosmos_outbox.inbox.entry import Entry, Stamp, VersionedEntry
from cosmos_outbox.inbox.entry_schema import EntrySchema
from cosmos_outbox.inbox.set_aside import Delivery, Record, RecordState
from cosmos_outbox.kernel.aggregate_key import AggregateKey

S = TypeVar("S", bound=BaseModel)


def time_or_none(text: str | None) -> datetime | None:
    """Returns a stored time."""
    return None if text is None else datetime.fromisoformat(text)


def text_or_none(time: datetime | None) -> str | None:
    """Returns a time as it is stored."""
    return None if time is None else time.isoformat()


def entry_document(form: EntrySchema[S], key: AggregateKey, entry: Entry[S], stamp: Stamp) -> dict[str, Any]:
    """Returns an entry's document, with the texts that lists search in ``search``; ``blockedSince`` is set later."""
    state = entry.state
    return {
        "id": key.id,
        "aggregateType": key.type,
        "lastSequence": entry.last_sequence,
        "lastEventId": entry.last_event_id,
        "healed": entry.healed,
        "form": form.version,
        "deleted": state is None,
        "data": None if state is None else form.write(state),
        "search": {} if state is None else form.texts(state),
        "appliedAt": stamp.at.isoformat(),
        "lateSeconds": None if stamp.late_seconds is None else round(stamp.late_seconds, 3),
        "blockedSince": None,
    }


def entry_of(form: EntrySchema[S], document: Mapping[str, Any], version: str) -> VersionedEntry[S]:
    """Returns the entry in a document; one of another form has no state (``other-form``)."""
    is_read = form.is_of(document) and not document["deleted"]
    state = form.read(document) if is_read else None
    other_form = state is None and not document["deleted"]
    entry = Entry(document["lastSequence"], document["lastEventId"], state, document["healed"], other_form)
    return VersionedEntry(entry, version, time_or_none(document["blockedSince"]))


def record_document(record: Record, subscription: str) -> dict[str, Any]:
    """Returns the document of a record. The message's body is kept unchanged, in base64; a closed record has none."""
    aggregate, delivery = record.aggregate, record.delivery if record.state.is_open else None
    return {
        "id": record.id,
        "subscription": subscription,
        "state": record.state.value,
        "reason": record.reason,
        "setAsideAt": record.set_aside_at.isoformat(),
        "attempts": record.attempts,
        "messageId": record.message_id,
        "enqueuedNumber": record.enqueued_number,
        "eventId": record.event_id,
        "aggregateType": aggregate.type if aggregate else None,
        "aggregateId": aggregate.id if aggregate else None,
        "action": record.action,
        "sequence": record.sequence,
        "body": base64.b64encode(delivery.body).decode() if delivery else None,
        "properties": dict(delivery.properties) if delivery else None,
    }


def record_of(document: Mapping[str, Any], version: str) -> Record:
    """Returns the record in a document, without its message if the body was not read."""
    body, owner = document.get("body"), document.get("aggregateType")
    delivery = None
    if body is not None:
        number, properties = document["enqueuedNumber"], document["properties"]
        came = base64.b64decode(body)
        delivery = Delivery(document["subscription"], document["messageId"], number, came, properties)
    return Record(
        id=document["id"],
        state=RecordState(document["state"]),
        reason=document["reason"],
        set_aside_at=datetime.fromisoformat(document["setAsideAt"]),
        message_id=document["messageId"],
        enqueued_number=document["enqueuedNumber"],
        event_id=document.get("eventId"),
        aggregate=AggregateKey(owner, document["aggregateId"]) if owner else None,
        action=document.get("action"),
        sequence=document.get("sequence"),
        attempts=document["attempts"],
        delivery=delivery,
        version=version,
    )

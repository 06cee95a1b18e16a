"""Converts an event to and from a Storage queue message: a JSON document in structured CloudEvents format."""

import base64
import json
from typing import Any

from pydantic_core import from_json

from cosmos_outbox.inbox.message import Delivery
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.canonical import as_sent
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import CloudEvents

_NAMES = {
    "aggregatetype": "aggregateType",
    "sequence": "sequence",
    "schemaversion": "schemaVersion",
    "source": "cloudEvents_source",
    "subject": "cloudEvents_subject",
    "traceparent": "traceparent",
    "tracestate": "tracestate",
}
"""Maps CloudEvents attributes to the inbox's names of properties."""


def text_of(event: OutboxEvent, service: CloudEvents, *, encoded: bool) -> str:
    """Returns the message of an event. Raises the encoder's errors, caused by the event's data.

    ``encoded``: in base64; otherwise JSON in ASCII that needs no XML escaping.
    """
    document = service.structured(event)
    if encoded:
        return base64.b64encode(document).decode()
    plain = json.dumps(json.loads(document), separators=(",", ":"))
    return plain.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@dataclass(frozen=True)
class Arrived:
    """A parsed message."""

    delivery: Delivery
    correlation_id: str | None


def arrived(text: str | bytes | None, message_id: str, subscription: str) -> Arrived:
    """Parses a message, base64 or not. Raises nothing: one that is no CloudEvent gets the property ``unreadable``.

    The delivery's id is that of the event, the same for each message with the event: the queue has ids of its own.
    """
    raw = text.encode(errors="replace") if isinstance(text, str) else text or b""
    try:
        document = _document(raw)
    except ValueError:
        return Arrived(
            Delivery(subscription, message_id, 0, raw, {"unreadable": "it is no JSON of CloudEvents"}),
            None,
        )
    properties = {ours: document[theirs] for theirs, ours in _NAMES.items() if theirs in document}
    sent_as = document.get("messageid")
    if sent_as is not None:
        properties["originalMessageId"] = document["id"]
    body = b""
    if "data" in document:
        body = as_sent(document["data"])
    else:
        properties["unreadable"] = "it has no data"
    correlation = document.get("correlationid")
    return Arrived(
        Delivery(subscription, str(sent_as or document["id"]), 0, body, properties),
        correlation if isinstance(correlation, str) else None,
    )


def _document(raw: bytes) -> dict[str, Any]:
    """Parses a CloudEvent. Raises ValueError."""
    if not raw.lstrip().startswith(b"{"):
        raw = base64.b64decode(raw, validate=True)
    document = from_json(raw)  # it limits the nesting depth, json.loads does not
    if not isinstance(document, dict) or document.get("specversion") != "1.0" or not document.get("id"):
        raise ValueError("no event")
    return document

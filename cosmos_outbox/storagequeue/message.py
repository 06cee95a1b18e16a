"""An event as a message in a Storage queue: one JSON document of CloudEvents."""

import base64
import json
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from cosmos_outbox.inbox.set_aside import Delivery
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
"""The attributes that the inbox reads, and what it calls them."""


@dataclass(frozen=True)
class MessageForm:
    """How a service writes messages."""

    service: CloudEvents
    encoded: bool
    """Whether a message is base64; else it is JSON in ASCII, of which XML needs to change nothing."""

    def text(self, event: OutboxEvent) -> str:
        """The message of an event. Raises what its data makes the encoder raise."""
        document = self.service.structured(event)
        if self.encoded:
            return base64.b64encode(document).decode()
        plain = json.dumps(json.loads(document), separators=(",", ":"))
        return plain.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@dataclass(frozen=True)
class Arrived:
    """A message as it was read."""

    delivery: Delivery
    correlation_id: str | None


def arrived(text: str | bytes | None, message_id: str, subscription: str) -> Arrived:
    """Read a message, encoded or not. What is no event of CloudEvents gets the property ``unreadable``; none raises.

    The delivery's id is the event's, and the same for each message that carries it: the queue has its own ids.
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
    """Raises ValueError."""
    if not raw.lstrip().startswith(b"{"):
        raw = base64.b64decode(raw, validate=True)
    document = from_json(raw)  # it bounds the nesting, json.loads does not
    if not isinstance(document, dict) or document.get("specversion") != "1.0" or not document.get("id"):
        raise ValueError("no event")
    return document

"""An event as a message in a Storage queue: one JSON document of CloudEvents, as large as a message may be or a claim.

A claim (``dataref`` in place of ``data``) names a blob by an address that only the reader's own settings complete: a
message cannot make a reader call anywhere else.
"""

import base64
import hashlib
import json
import re
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import from_json

from cosmos_outbox.inbox.set_aside import Delivery
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.canonical import as_sent
from cosmos_outbox.outbox.cloud_events import CloudEvents
from cosmos_outbox.outbox.feed import OutboxEvent

LARGEST_MESSAGE_BYTES = 64 * 1024
"""Of a message as it is sent, encoded (https://learn.microsoft.com/rest/api/storageservices/put-message)."""

_CLAIM = re.compile(r"[0-9a-f]{32}/[\w.~-]{1,150}\.json", re.ASCII)
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
class ClaimedData:
    """Data that lies in a blob."""

    name: str
    body: bytes


@dataclass(frozen=True)
class MessageForm:
    """How a service writes messages."""

    service: CloudEvents
    encoded: bool
    """Whether a message is base64; else it is JSON in ASCII, of which XML needs to change nothing."""

    def text(self, event: OutboxEvent) -> str:
        """The message of an event. Raises what its data makes the encoder raise."""
        return self._text(self.service.structured(event))

    def claimed(self, event: OutboxEvent) -> tuple[str, ClaimedData]:
        """The message of an event whose data lies in a blob, and the blob."""
        attributes = self.service.attributes(event)
        name = _claim_name(event)
        return self._text(as_sent(attributes | {"dataref": name})), ClaimedData(
            name, as_sent(dict(event.data))
        )

    def _text(self, document: bytes) -> str:
        if self.encoded:
            return base64.b64encode(document).decode()
        plain = json.dumps(json.loads(document), separators=(",", ":"))
        return plain.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def claim_folder(aggregate: AggregateKey) -> str:
    """What the names of all claims of an aggregate begin with: it spreads them, and whoever erases finds them by it."""
    named = f"{len(aggregate.type)}/{aggregate.type}/{aggregate.id}".encode(errors="surrogatepass")
    return f"{hashlib.sha256(named).hexdigest()[:32]}/"


def _claim_name(event: OutboxEvent) -> str:
    """The same for each attempt, and of no other event: a blob that is there is believed to be this one's."""
    named = event.message_id or event.id
    plain = re.sub(r"[^\w.~-]", "_", named, flags=re.ASCII)[:100]
    if plain != named:
        plain += f".{hashlib.sha256(named.encode(errors='surrogatepass')).hexdigest()[:32]}"
    return f"{claim_folder(event.aggregate)}{plain}.json"


@dataclass(frozen=True)
class Arrived:
    """A message as it was read."""

    delivery: Delivery
    correlation_id: str | None
    claim: str | None
    """The blob that has the data; None: the message has it."""

    def with_data(self, body: bytes) -> Delivery:
        """The delivery with the data out of the blob."""
        return replace(self.delivery, body=body)

    def lost(self, why: str) -> Delivery:
        """The delivery of a message whose data is gone."""
        return replace(self.delivery, properties={**self.delivery.properties, "unreadable": why})


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
            None,
        )
    properties = {ours: document[theirs] for theirs, ours in _NAMES.items() if theirs in document}
    sent_as = document.get("messageid")
    if sent_as is not None:
        properties["originalMessageId"] = document["id"]
    body, claim = b"", document.get("dataref")
    if "data" in document:
        body, claim = as_sent(document["data"]), None
    elif not (isinstance(claim, str) and _CLAIM.fullmatch(claim)):
        properties["unreadable"], claim = "it has neither data nor the name of a claim", None
    correlation = document.get("correlationid")
    return Arrived(
        Delivery(subscription, str(sent_as or document["id"]), 0, body, properties),
        correlation if isinstance(correlation, str) else None,
        claim,
    )


def _document(raw: bytes) -> dict[str, Any]:
    """Raises ValueError."""
    if not raw.lstrip().startswith(b"{"):
        raw = base64.b64decode(raw, validate=True)
    document = from_json(raw)  # it bounds the nesting, json.loads does not
    if not isinstance(document, dict) or document.get("specversion") != "1.0" or not document.get("id"):
        raise ValueError("no event")
    return document

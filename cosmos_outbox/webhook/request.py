"""An event as a request: a CloudEvent 1.0 in either mode, signed with every secret, under the event's own id.

The signature covers id, time and body (https://github.com/standard-webhooks/standard-webhooks). So whatever a receiver
acts on has to be in the body: in binary mode its headers could be anybody's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from standardwebhooks import Webhook

from cosmos_outbox.outbox.canonical import as_sent
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.settings.webhook import Mode

_PRINTABLE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
"""What stands for itself in a header: CloudEvents 1.0, HTTP protocol binding, 3.1.3.2."""


@dataclass(frozen=True)
class Signed:
    """A body that is ready to be posted, but for the time of the signature."""

    id: str
    body: bytes
    headers: Mapping[str, str]

    def signed(self, secrets: Sequence[str], at: datetime) -> Mapping[str, str]:
        """The headers, with a signature of each secret as of this time (UTC)."""
        text = self.body.decode()
        signatures = [Webhook(secret).sign(self.id, at, text) for secret in secrets]
        return {
            **self.headers,
            "webhook-id": self.id,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": " ".join(signatures),
        }


def request_of(event: OutboxEvent, *, source: str, dataschema: str | None, mode: Mode) -> Signed:
    """The request of an event. Raises whatever its data make raise: then no request can be made of it.

    An event that is published once more has an id of its own, since a receiver would drop the event's.
    """
    attributes: dict[str, str | int | bool] = {
        "specversion": "1.0",
        "id": event.id,
        "source": source,
        "type": event.action,
        "subject": event.aggregate.id,
        "time": event.created_at.isoformat(),
        "aggregatetype": event.aggregate.type,
    }
    if event.sequence is None:
        attributes["unsequenced"] = True
    else:
        attributes["sequence"] = event.sequence
    if dataschema:
        attributes["dataschema"] = dataschema
    if event.traceparent:
        attributes["traceparent"] = event.traceparent
        if event.tracestate:
            attributes["tracestate"] = event.tracestate
    data = dict(event.data)
    return Signed(event.message_id or event.id, *_BODIES[mode](attributes, data))


def _structured(attributes: Mapping[str, Any], data: Mapping[str, Any]) -> tuple[bytes, Mapping[str, str]]:
    body = as_sent({**attributes, "datacontenttype": "application/json", "data": data})
    return body, {
        "content-type": "application/cloudevents+json; charset=utf-8",
        **_trace(attributes),
    }


def _binary(attributes: Mapping[str, Any], data: Mapping[str, Any]) -> tuple[bytes, Mapping[str, str]]:
    headers = {f"ce-{name}": quote(_text(value), safe=_PRINTABLE + " ") for name, value in attributes.items()}
    return as_sent(data), {"content-type": "application/json", **headers, **_trace(attributes)}


def _trace(attributes: Mapping[str, Any]) -> Mapping[str, str]:
    """For whatever traces HTTP requests, and knows no CloudEvents."""
    found = {name: attributes[name] for name in ("traceparent", "tracestate") if name in attributes}
    return {name: text for name, text in found.items() if text.isascii() and text.isprintable()}


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_BODIES = {Mode.STRUCTURED: _structured, Mode.BINARY: _binary}

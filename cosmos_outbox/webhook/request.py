"""An event as a request: a structured CloudEvent 1.0, signed with every secret, under the event's own id.

The signature covers id, time and body (https://github.com/standard-webhooks/standard-webhooks). So whatever a receiver
acts on is in the body.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from standardwebhooks import Webhook

from cosmos_outbox.outbox.cloud_events import STRUCTURED, CloudEvents
from cosmos_outbox.outbox.feed import OutboxEvent

_PRINTABLE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
"""What stands for itself in a header."""


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


def request_of(event: OutboxEvent, *, service: CloudEvents) -> Signed:
    """The request of an event. Raises whatever its data make raise: then no request can be made of it.

    An event that is published once more has an id of its own, since a receiver would drop the event's.
    """
    headers = {**_trace(service.attributes(event)), "content-type": STRUCTURED}
    return Signed(id_of(event), service.structured(event), headers)


def id_of(event: OutboxEvent) -> str:
    """The id of its request."""
    # Of what is not ASCII each server makes another text, and none of them would be the one that was signed.
    return quote(event.message_id or event.id, safe=_PRINTABLE)


def _trace(attributes: Mapping[str, Any]) -> dict[str, str]:
    """For whatever traces HTTP requests, and knows no CloudEvents."""
    found = {name: attributes[name] for name in ("traceparent", "tracestate") if name in attributes}
    return {name: text for name, text in found.items() if text.isascii() and text.isprintable()}

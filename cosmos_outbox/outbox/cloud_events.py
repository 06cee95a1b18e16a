"""An event as CloudEvents 1.0 has it: the same attributes over every transport, whatever form the message has.

The names of the extensions are in the form that CloudEvents asks for: lower-case letters and digits. In the structured
mode (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md) attributes and data are one
JSON document.
"""

from dataclasses import dataclass
from typing import Any

from cosmos_outbox.outbox.canonical import as_sent
from cosmos_outbox.outbox.feed import OutboxEvent

STRUCTURED = "application/cloudevents+json"
"""The content type of the structured mode."""


@dataclass(frozen=True)
class CloudEvents:
    """The CloudEvents attributes that are the same for all events of a service."""

    source: str
    """Together with the id it identifies an event everywhere."""
    schemas: str | None = None
    """The URI under which the schemas of the events are published; None: they are not."""

    def dataschema(self, event: OutboxEvent) -> str | None:
        """The URI of the schema that the event's data follows."""
        if self.schemas is None or event.schema_version is None:
            return None
        return f"{self.schemas}/{event.action}.v{event.schema_version}.json"

    def attributes(self, event: OutboxEvent) -> dict[str, Any]:
        """All but the data. Times and numbers are as JSON has them.

        ``messageid`` is there where a published event is published once more: ``id`` is the event's own.
        """
        found = {
            "specversion": "1.0",
            "id": event.id,
            "source": self.source,
            "type": event.action,
            "subject": event.aggregate.id,
            "time": event.created_at.isoformat(),
            "datacontenttype": "application/json",
            "dataschema": self.dataschema(event),
            "aggregatetype": event.aggregate.type,
            "sequence": event.sequence,
            "schemaversion": event.schema_version,
            "messageid": event.message_id,
            "correlationid": event.correlation_id,
            "traceparent": event.traceparent,
            "tracestate": event.tracestate if event.traceparent else None,
        }
        return {name: value for name, value in found.items() if value is not None}

    def structured(self, event: OutboxEvent) -> bytes:
        """Attributes and data as one JSON document, the same bytes on every host."""
        return as_sent(self.attributes(event) | {"data": dict(event.data)})

"""Builds messages for tests, with the body and the properties of those that the relay sends."""

import json
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from cosmos_outbox.kernel.clock import new_id, utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.canonical import as_sent
from cosmos_outbox.outbox.event import Timestamp
from cosmos_outbox.outbox.feed import OutboxEvent

_time: TypeAdapter[datetime] = TypeAdapter(Timestamp)


@dataclass(frozen=True)
class Message:
    """A message as a subscriber reads it.

    Example::

        broken = Message(body=b"no JSON", properties={"aggregateType": "booking"})
        async with in_memory(service) as memory:
            [record] = await memory.deliver(broken, to=board)
        assert "it is no JSON" in record.reason
    """

    body: bytes = field(repr=False)
    properties: Mapping[str, Any]
    """Its application properties, by which a subscriber selects the events of its aggregate type."""
    id: str = field(default_factory=lambda: str(new_id()))

    @property
    def data(self) -> dict[str, Any]:
        """The event in its body. Raises ValueError: it is no JSON."""
        data: dict[str, Any] = json.loads(self.body)
        return data


def message(  # noqa: PLR0913 - the parts of an event, all but three by name
    of: tuple[str, str],
    action: str,
    sequence: int | None,
    *,
    data: Mapping[str, Any] | None = None,
    event_id: str | None = None,
    at: datetime | None = None,
    schema_version: int = 1,
) -> Message:
    """Returns the message of an event of another team's aggregate, by its type and id; ``data``: the event's fields.

    Example::

        moved = message(("booking", "7"), "BookingMoved", 2, data={"seats": 3})
        assert moved.properties["aggregateType"] == "booking"
    """
    kind, aggregate_id = of
    event_id = event_id or str(new_id())
    numbered = {} if sequence is None else {"sequence": sequence}
    body = {
        "id": event_id, f"{kind}Id": aggregate_id, "action": action, **numbered,
        "createdAt": _time.dump_python(at or utc_now(), mode="json"), **(data or {}),
    }  # fmt: skip
    properties = {"aggregateType": kind, "cloudEvents_subject": aggregate_id, "schemaVersion": schema_version}
    return Message(json.dumps(body).encode(), properties, event_id)


def message_of(event: OutboxEvent, source: str = "") -> Message:
    """Returns the relay's message of a stored event, with the properties that a subscriber reads."""
    properties: dict[str, Any] = {
        "aggregateType": event.aggregate.type,
        "cloudEvents_subject": event.aggregate.id,
    }
    if source:
        properties["cloudEvents_source"] = source
    if event.schema_version is not None:
        properties["schemaVersion"] = event.schema_version
    return Message(as_sent(dict(event.data)), properties, event.message_id or event.id)

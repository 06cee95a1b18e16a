"""An event as a Service Bus message: its id is the MessageId, its aggregate is in one session, its JSON is the body.

A published event that is published once more has a MessageId of its own, since the topic would drop the event's id.

The application properties carry the CloudEvents 1.0 attributes in the AMQP binding's binary mode
(https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/amqp-protocol-binding.md), with the prefix
``cloudEvents_``, since a name with ``:`` must be quoted in a subscription's SQL filter.

All events of an aggregate are in one session, whichever process sends them, and the session tells of how many it is.

A session is a bucket of aggregates, since opening one costs a subscriber half a second and a connection. The bucket is
a stable hash of the aggregate's type and id; the number of buckets stands in the session's id, so that a change of it
shows, and no bucket of one number is taken for a bucket of another.
"""

import hashlib
import json
import sys
from typing import Any
from uuid import UUID

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.canonical import as_sent
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import CloudEvents
from cosmos_outbox.settings.transports import SESSIONS


def session_of(aggregate: AggregateKey, buckets: int | None) -> str:
    """The id of the session that an aggregate's events are sent in; ``buckets`` None: it has one of its own."""
    if buckets is None:
        return aggregate.id
    # As JSON: no type and id are spelled like another type and id.
    digest = hashlib.blake2b(json.dumps(aggregate).encode(), digest_size=8).digest()
    bucket = int.from_bytes(digest) % buckets
    return f"{buckets}-{bucket:0{len(str(buckets - 1))}d}"


TRACEPARENT = b"traceparent"
_DIAGNOSTIC_ID = b"Diagnostic-Id"
"""The older name of the same, which the SDK adds as well when it traces."""

LARGEST_PROPERTY_BYTES = 32_767
"""Of one property of a message (https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas)."""

_ENTRY_BYTES = 8
"""What a batch adds to each message of at least 256 bytes; to a shorter one it adds 5."""

_FRAME_BYTES = 120
"""AMQP's own bytes in a message like ours, rounded up: the heads of sections, maps and lists, and empty fields."""


class Long(int):
    """A number that is an AMQP long in a message, whatever its value: so a subscriber finds one type.

    The SDK encodes an int of Python as an AMQP int, and raises for one that 32 bits do not hold. Its codec looks first
    whether a value says of itself what it is.
    """

    def __getitem__(self, name: str) -> Any:
        """What the codec asks for."""
        return {"TYPE": "LONG", "VALUE": int(self)}[name]


class PropertyTooLarge(ValueError):
    """Service Bus never takes the message, but its answer reads as if it would pass: one has to know before."""


def message_from_event(
    event: OutboxEvent,
    *,
    service: CloudEvents,
    partitioned: bool,
    sessions: int | None = SESSIONS,
    sdk_traces: bool = False,
) -> ServiceBusMessage:
    """The message of an event. Raises ValueError when the SDK cannot make one.

    ``sessions``: how many buckets of aggregates there are; None: each aggregate has a session of its own. On a
    partitioned topic the session is the partition key as well. ``sdk_traces``: the SDK would add what it traces.
    """
    properties: dict[str | bytes, int | float | bytes | bool | str | UUID] = {
        "cloudEvents_specversion": "1.0",
        "cloudEvents_id": event.id,
        "cloudEvents_source": service.source,
        "cloudEvents_type": event.action,
        "cloudEvents_subject": event.aggregate.id,
        "cloudEvents_time": event.created_at.isoformat(),
        "aggregateType": event.aggregate.type,
    }
    if event.sequence is None:
        properties["unsequenced"] = True
    else:
        properties["sequence"] = Long(event.sequence)
    if event.schema_version is not None:
        properties["schemaVersion"] = Long(event.schema_version)
    if dataschema := service.dataschema(event):
        properties["cloudEvents_dataschema"] = dataschema
    if event.message_id is not None:
        properties["originalMessageId"] = event.id
    if event.traceparent:
        # As bytes: the SDK, when it traces, adds its own under this very name, unless the name is there.
        properties[TRACEPARENT] = event.traceparent
        if sdk_traces:
            properties[_DIAGNOSTIC_ID] = event.traceparent
        if event.tracestate:
            properties["tracestate"] = event.tracestate
    session = session_of(event.aggregate, sessions)
    return ServiceBusMessage(
        as_sent(dict(event.data)),
        content_type="application/json",
        subject=event.action,
        message_id=event.message_id or event.id,
        session_id=session,
        partition_key=session if partitioned else None,
        correlation_id=event.correlation_id,
        application_properties=properties,
    )


def size_at_most(message: ServiceBusMessage) -> int:
    """The bytes that a message takes in a batch, or a few more: counted, since encoding it for that is dear.

    Raises PropertyTooLarge.
    """
    # The parts of a message at once: each property of the message itself looks for its part anew.
    raw = message.raw_amqp_message
    assert raw.properties is not None
    application = raw.application_properties or {}
    fields = [
        *raw.properties.values(),
        *application,
        *application.values(),
        *(raw.annotations or {}).values(),
    ]
    body = sum(len(part) for part in message.body)
    sizes = [len(str(field).encode()) for field in fields if field is not None]
    if max(sizes) > LARGEST_PROPERTY_BYTES:
        raise PropertyTooLarge
    return body + sum(sizes) + 5 * len(sizes) + _FRAME_BYTES


def is_encodable(message: ServiceBusMessage) -> bool:
    """Whether the SDK can encode the message: what one message makes its codec raise is a fault of that message."""
    try:
        exact_size(message)
    except Exception:  # noqa: BLE001 - whatever the codec raises for what the message holds
        return False
    return True


def exact_size(message: ServiceBusMessage) -> int:
    """The bytes of a message that is sent by itself, which the SDK does not measure. Raises what its codec raises."""
    batch = ServiceBusMessageBatch(max_size_in_bytes=sys.maxsize)
    batch.add_message(message)
    return batch.size_in_bytes - _ENTRY_BYTES

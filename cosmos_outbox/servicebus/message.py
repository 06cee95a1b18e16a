"""Converts an event to a Service Bus message: its id is the MessageId, its bucket the session, its JSON the body.

An event that is published again has a MessageId of its own, since the topic would drop the event's id as a duplicate.

The application properties carry the CloudEvents 1.0 attributes in the AMQP binding's binary mode
(https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/amqp-protocol-binding.md), with the prefix
``cloudEvents_``, since a name with ``:`` must be quoted in a subscription's SQL filter.

All events of an aggregate are in one session, whichever process sends them. A session is a bucket of aggregates, since
opening one costs a subscriber half a second and a connection. The bucket is a stable hash of the aggregate's type and
id. The session's id contains the number of buckets, so that a change of the number is visible and buckets of different
numbers are never confused.
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
    """Returns the id of the session of an aggregate's events; ``buckets`` None: one session per aggregate."""
    if buckets is None:
        return aggregate.id
    # As JSON: joined as text, two pairs of type and id could be equal.
    digest = hashlib.blake2b(json.dumps(aggregate).encode(), digest_size=8).digest()
    bucket = int.from_bytes(digest) % buckets
    return f"{buckets}-{bucket:0{len(str(buckets - 1))}d}"


TRACEPARENT = b"traceparent"
_DIAGNOSTIC_ID = b"Diagnostic-Id"
"""The older name of ``traceparent``, which the SDK also adds when it traces."""

LARGEST_PROPERTY_BYTES = 32_767
"""The limit of one property (https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas)."""

_ENTRY_BYTES = 8
"""The overhead of a batch for each message of at least 256 bytes; for a shorter one it is 5."""

_FRAME_BYTES = 120
"""AMQP's overhead in our messages, rounded up: the headers of sections, maps and lists, and empty fields."""


class Long(int):
    """A number that is encoded as an AMQP long whatever its value, so that subscribers get a single type.

    The SDK encodes a Python int as an AMQP int, and raises for one beyond 32 bits. Its codec first checks whether a
    value declares its own type.
    """

    def __getitem__(self, name: str) -> Any:
        """Returns the type or the value, as the codec's lookup expects."""
        return {"TYPE": "LONG", "VALUE": int(self)}[name]


class PropertyTooLarge(ValueError):
    """A property is too large. Service Bus rejects it with an error that looks transient, so check before sending."""


def message_from_event(
    event: OutboxEvent,
    *,
    service: CloudEvents,
    partitioned: bool,
    sessions: int | None = SESSIONS,
    sdk_traces: bool = False,
) -> ServiceBusMessage:
    """Returns the message of an event. Raises ValueError if the SDK cannot create one.

    ``sessions``: the number of buckets of aggregates; None: each aggregate has a session of its own. On a
    partitioned topic the session is also the partition key. ``sdk_traces``: the SDK adds its own trace properties.
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
        # As bytes: when the SDK traces, it adds its own value unless this exact key exists.
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
    """Returns an upper bound of a message's bytes in a batch, without the costly encoding.

    Raises PropertyTooLarge.
    """
    # Read the raw message once: each property of ServiceBusMessage looks its part up again.
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
    """Whether the SDK can encode the message; any error of the codec is a fault of the message."""
    try:
        exact_size(message)
    except Exception:  # noqa: BLE001 - the codec may raise anything for an unusual value
        return False
    return True


def exact_size(message: ServiceBusMessage) -> int:
    """Returns the bytes of a message that is sent alone; the SDK has no method for it. Raises the codec's errors."""
    batch = ServiceBusMessageBatch(max_size_in_bytes=sys.maxsize)
    batch.add_message(message)
    return batch.size_in_bytes - _ENTRY_BYTES

"""A message reaches the function with what the real host passes, in the types in which it passes it.

The names are those of the extension's ``ServiceBusTriggerBindingStrategy`` (5.x), the types those of the
host's conversion for workers that understand collections (``TypedDataCollection``), which the Python worker
does. One thing follows from it that surprises: in a batch, texts that are missing are left out of their
list, and the values after them move up (https://github.com/Azure/azure-functions-host, capability
``IncludeEmptyEntriesInMessagePayload``, which the Python worker does not declare).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from azure.functions import meta
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpMessageBodyType

from devstack.functions.invocation import Input

Metadata = dict[str, meta.Datum]

_NEVER = "9999-12-31T23:59:59.9999999Z"
"""How .NET writes the expiry of a message that has none."""
_TEXTS = (
    "DeadLetterSource",
    "LockToken",
    "MessageId",
    "ContentType",
    "ReplyTo",
    "To",
    "Subject",
    "Label",
    "CorrelationId",
    "SessionId",
    "ReplyToSessionId",
    "PartitionKey",
    "TransactionPartitionKey",
)


class UnsupportedBody(Exception):
    """The message's body is an AMQP value or sequence, which the real host cannot bind either."""


@dataclass(frozen=True)
class _Collection:
    """Looks like the protocol buffer messages that ``azure.functions`` takes collections from."""

    string: Sequence[str] = ()
    bytes: Sequence[bytes] = ()
    sint64: Sequence[int] = ()


def bind_one(message: ServiceBusReceivedMessage, *, binary: bool) -> Input:
    """The ``ServiceBusMessage`` of a function with cardinality one. Raises UnsupportedBody."""
    properties = _properties(message)
    metadata: Metadata = {}
    for name, value in properties.items():
        metadata[name] = _text(value) if name in _TEXTS else _json(value)
    return Input(_body_datum(message, binary=binary), metadata)


def bind_many(messages: Sequence[ServiceBusReceivedMessage], *, binary: bool) -> Input:
    """The list of a function with cardinality many. Raises UnsupportedBody."""
    each = [_properties(message) for message in messages]
    metadata: Metadata = {}
    for name in each[0]:
        values = [properties[name] for properties in each]
        metadata[f"{name}Array"] = _collection(name, values)
    bodies = [_body(message) for message in messages]
    data = (
        meta.Datum(_Collection(bytes=bodies), "collection_bytes")
        if binary
        else meta.Datum(
            _Collection(string=[text for body in bodies if (text := body.decode())]), "collection_string"
        )
    )
    return Input(data, metadata)


def _properties(message: ServiceBusReceivedMessage) -> Mapping[str, Any]:
    application_properties = {
        plain(name): plain(value) for name, value in (message.application_properties or {}).items()
    }
    expires, enqueued = _time(message.expires_at_utc) or _NEVER, _time(message.enqueued_time_utc)
    return {
        "DeliveryCount": (message.delivery_count or 0) + 1,
        "DeadLetterSource": message.dead_letter_source,
        "LockToken": str(message.lock_token),
        "ExpiresAtUtc": expires,
        "ExpiresAt": expires,
        "EnqueuedTimeUtc": enqueued,
        "EnqueuedTime": enqueued,
        "MessageId": message.message_id,
        "ContentType": message.content_type,
        "ReplyTo": message.reply_to,
        "SequenceNumber": message.sequence_number,
        "To": message.to,
        "Subject": message.subject,
        "Label": message.subject,
        "CorrelationId": message.correlation_id,
        "ApplicationProperties": application_properties,
        "UserProperties": application_properties,
        "SessionId": message.session_id,
        "ReplyToSessionId": message.reply_to_session_id,
        "PartitionKey": message.partition_key,
        "TransactionPartitionKey": message.partition_key,
    }


def plain(value: Any) -> Any:
    """A property's name or value, as the host passes it."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, datetime):
        return _time(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _time(value: datetime | None) -> str | None:
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if value else None


def _text(value: str | None) -> meta.Datum:
    return meta.Datum(value, "string" if value is not None else None)


def _json(value: Any) -> meta.Datum:
    return meta.Datum(json.dumps(value), "json")


def _collection(name: str, values: Sequence[Any]) -> meta.Datum:
    if name in _TEXTS:
        return meta.Datum(_Collection(string=[value for value in values if value]), "collection_string")
    if name == "SequenceNumber":
        return meta.Datum(_Collection(sint64=values), "collection_sint64")
    return _json(values)


def _body(message: ServiceBusReceivedMessage) -> bytes:
    if message.body_type is not AmqpMessageBodyType.DATA:
        raise UnsupportedBody(
            f"message {message.message_id} has no binary body but an AMQP {message.body_type}"
        )
    return b"".join(message.body)


def _body_datum(message: ServiceBusReceivedMessage, *, binary: bool) -> meta.Datum:
    body = _body(message)
    if not binary:
        try:
            return meta.Datum(body.decode(), "string")
        except UnicodeDecodeError:
            # The real host hands on what it can make of it; the bytes themselves are of more use.
            pass
    return meta.Datum(body, "bytes")

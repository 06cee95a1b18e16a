"""What one message must be before an entity takes it, whatever the entity holds.

Limits are those of the Service Bus quotas: ids of at most 128 characters, a property of at most 32 KB, all properties
together of at most 64 KB, messages as large as the entity's setting.
"""

import random
import uuid

from devstack.servicebus.broker.description import Description
from devstack.servicebus.codec.decode import DECIMAL128, decode
from devstack.servicebus.codec.errors import (
    ARGUMENT_ERROR,
    INTERNAL_ERROR,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    AmqpError,
)
from devstack.servicebus.codec.message import (
    ParsedMessage,
    parse,
    property_sizes,
    raw_application_properties,
)
from devstack.servicebus.codec.written_message import with_application_properties, with_properties

MAX_ID_LENGTH = 128
MAX_BATCH_MESSAGES = 4_500
"""Not documented by the service; found by others (https://github.com/Azure/azure-service-bus/issues/397)."""

MAX_PROPERTY_BYTES = 32_767
MAX_PROPERTIES_BYTES = 65_536
_VALUE_HEAD_BYTES = 5
"""AMQP's own bytes in front of a text or binary of more than 255 bytes."""

SCHEDULED_TIME = "x-opt-scheduled-enqueue-time"
PARTITION_KEY = "x-opt-partition-key"


def duplicate_key(description: Description, parsed: ParsedMessage) -> str:
    """What a message must not share with another inside the window."""
    if not description.partitioned:
        return parsed.message_id or ""
    return f"{_partition_key(parsed) or ''}\0{parsed.message_id}"


def check_message(description: Description, parsed: ParsedMessage) -> None:
    if description.requires_session and description.kind == "queue" and parsed.session_id is None:
        raise AmqpError(
            NOT_ALLOWED,
            "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have session "
            "support enabled can only receive messages that have the SessionId set to a valid value.",
        )
    for name, value in (("MessageId", parsed.message_id), ("SessionId", parsed.session_id)):
        if value is not None and len(value) > MAX_ID_LENGTH:
            raise AmqpError(
                ARGUMENT_ERROR, f"{name} has {len(value)} characters; at most {MAX_ID_LENGTH} are allowed."
            )
    if len(parsed.raw) > description.max_message_bytes:
        raise AmqpError(
            MESSAGE_SIZE_EXCEEDED, f"A message has at most {description.max_message_bytes} bytes."
        )
    _check_properties(parsed)
    key = _given_partition_key(parsed)
    if key is not None and parsed.session_id is not None and key != parsed.session_id:
        raise AmqpError(ARGUMENT_ERROR, "PartitionKey and SessionId are both set and differ.")


def check_batch(description: Description, messages: list[ParsedMessage], *, detects_duplicates: bool) -> None:
    """What the messages of a batch may not be together. The texts are those of the service."""
    if len(messages) > MAX_BATCH_MESSAGES:
        raise _unexplained()
    if not description.partitioned:
        return
    if detects_duplicates:
        raise AmqpError(
            NOT_ALLOWED,
            "Batching brokered messages with distinct SessionId, PartitionKey, or MessageId is not supported for an "
            "entity with partitioning and duplicate detection enabled.",
        )
    if len({_partition_key(parsed) for parsed in messages}) > 1:
        raise AmqpError(
            NOT_ALLOWED,
            "Batching brokered messages with distinct SessionId or PartitionKey is not supported for an entity with "
            "partitioning enabled.",
        )


def _check_properties(parsed: ParsedMessage) -> None:
    """As Azure answers it: https://github.com/Azure/azure-sdk-for-net/issues/15325 and, for all properties together,
    https://github.com/rebus-org/Rebus.AzureServiceBus/issues/35.
    """
    if parsed.body_start - parsed.bare_start <= MAX_PROPERTY_BYTES:
        return
    if max(property_sizes(parsed), default=0) > MAX_PROPERTY_BYTES + _VALUE_HEAD_BYTES:
        raise _unexplained()
    if parsed.body_start - parsed.bare_start > MAX_PROPERTIES_BYTES:
        raise AmqpError(
            MESSAGE_SIZE_EXCEEDED,
            "A serialization error occurred while processing the message header stream: "
            f"the size quota for this stream ({MAX_PROPERTIES_BYTES}) has been exceeded.",
        )


def _unexplained() -> AmqpError:
    """The service's answer to what it cannot work on; it reads as if it would pass."""
    return AmqpError(
        INTERNAL_ERROR, "The service was unable to process the request; please retry the operation."
    )


def readable(parsed: ParsedMessage) -> ParsedMessage:
    """The message with its decimal properties in the form in which the service writes them anew."""
    if DECIMAL128 not in parsed.raw[parsed.application_properties_at : parsed.body_start]:
        return parsed
    encoded = raw_application_properties(parsed)
    try:
        decimals = {name: decode(value)[0] for name, value in encoded.items() if value[0] == DECIMAL128}
    except AmqpError:
        raise _unexplained() from None
    return parse(with_application_properties(parsed, decimals)) if decimals else parsed


def identified(parsed: ParsedMessage, chance: random.Random) -> ParsedMessage:
    return (
        parsed
        if parsed.message_id is not None
        else parse(
            with_properties(parsed, {"message-id": uuid.UUID(int=chance.getrandbits(128), version=4).hex})
        )
    )


def _given_partition_key(parsed: ParsedMessage) -> str | None:
    """The Python SDK sends it as binary when it sends on a message that it received."""
    key = _annotation(parsed, PARTITION_KEY)
    return key.decode(errors="replace") if isinstance(key, bytes) else None if key is None else str(key)


def _partition_key(parsed: ParsedMessage) -> str | None:
    key = _given_partition_key(parsed)
    return parsed.session_id if key is None else key


def scheduled_time(parsed: ParsedMessage) -> int | None:
    value = _annotation(parsed, SCHEDULED_TIME)
    return value if isinstance(value, int) else None


def _annotation(parsed: ParsedMessage, name: str) -> object:
    encoded = parsed.annotations.get(name)
    return None if encoded is None else decode(encoded)[0]

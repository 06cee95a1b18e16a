"""A message is its raw bytes: only what the broker rules on is decoded, and the body never is.

Every section's bounds are checked once, when the message arrives, so that no later step can run past its end.
Source: OASIS AMQP 1.0 part 3, 3.2.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from devstack.servicebus.codec import encode as e
from devstack.servicebus.codec.decode import decode, decode_list, skip
from devstack.servicebus.codec.errors import malformed
from devstack.servicebus.codec.values import Timestamp

BATCH_FORMAT = 0x80013700
"""The message format of a batch: each data section is one encoded message. Source: the Azure SDKs."""

HEADER, DELIVERY_ANNOTATIONS, ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = 0x70, 0x71, 0x72, 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78

PROPERTY_NAMES = (
    "message-id",
    "user-id",
    "to",
    "subject",
    "reply-to",
    "correlation-id",
    "content-type",
    "content-encoding",
    "absolute-expiry-time",
    "creation-time",
    "group-id",
    "group-sequence",
    "reply-to-group-id",
)
_MESSAGE_ID, _GROUP_ID = 0, 10
EMPTY_LIST = 0x45
NO_DELIVERY_ANNOTATIONS = e.described(DELIVERY_ANNOTATIONS, e.encode_map([]))
_NO_ANNOTATIONS: dict[str, bytes] = {}


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """What the broker needs of a message, and the positions of the sections that it may have to read or replace."""

    raw: bytes
    durable: bool
    priority: int | None
    ttl_ms: int | None
    annotations: dict[str, bytes]
    """Encoded values by name, so that a type that Python has not is sent on unchanged."""

    delivery_annotations: bytes
    """Their encoded section; an empty one when the sender gave none."""

    message_id: str | None
    session_id: str | None
    bare_start: int
    """Where the immutable part begins: the properties, or what follows them."""

    properties_at: int
    """The position of the properties' list; 0 when there is none."""

    application_properties_at: int
    """The position of the application properties' section; 0 when there is none."""

    body_start: int
    """Where the first section after the application properties begins."""


def parse(raw: bytes) -> ParsedMessage:
    """Check every section's bounds and decode those the broker rules on. Raises ``amqp:decode-error``."""
    position, last, end = 0, 0, len(raw)
    header: list[Any] = []
    annotations: dict[str, bytes] = {}
    identity: tuple[str | None, str | None] = (None, None)
    properties_at = application_at = 0
    bare_start = body_start = -1
    delivery_annotations = NO_DELIVERY_ANNOTATIONS
    while position < end:
        code, value_at = _section(raw, position)
        if code in (HEADER, ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES) and code <= last:
            raise malformed("the sections of a message are out of order")
        last = max(last, code)
        if code >= PROPERTIES and bare_start < 0:
            bare_start = position
        if code > APPLICATION_PROPERTIES and body_start < 0:
            body_start = position
        if code == HEADER:
            header, after = decode_list(raw, value_at)
        elif code == ANNOTATIONS:
            annotations, after = raw_map(raw, value_at)
        elif code == DELIVERY_ANNOTATIONS:
            after = skip(raw, value_at)
            # The Python SDK sends them last. There they reach the receiver as part of what is not touched.
            delivery_annotations = raw[position:after] if bare_start < 0 else b""
        else:
            after = skip(raw, value_at)
            if code == PROPERTIES:
                properties_at, identity = value_at, _identity(raw, value_at)
            elif code == APPLICATION_PROPERTIES:
                application_at = position
        position = after
    return ParsedMessage(
        raw=raw,
        durable=bool(header) and header[0] is True,
        priority=_number(header, 1),
        ttl_ms=_number(header, 2),
        annotations=annotations or _NO_ANNOTATIONS,
        delivery_annotations=delivery_annotations,
        message_id=identity[0],
        session_id=identity[1],
        bare_start=bare_start if bare_start >= 0 else end,
        properties_at=properties_at,
        application_properties_at=application_at,
        body_start=body_start if body_start >= 0 else end,
    )


def split_batch(raw: bytes) -> list[bytes]:
    """The encoded messages of a batch, one from each data section. The envelope's own fields repeat the first one's."""
    messages = []
    position, end = 0, len(raw)
    while position < end:
        code, value_at = _section(raw, position)
        position = skip(raw, value_at)
        if code == DATA:
            if raw[value_at] not in (0xA0, 0xB0):
                raise malformed("a data section holds binary")
            messages.append(raw[value_at + (2 if raw[value_at] == 0xA0 else 5) : position])
    if not messages:
        raise malformed("a batch holds at least one data section")
    return messages


def raw_map(raw: bytes, position: int) -> tuple[dict[str, bytes], int]:
    """A map with text keys, its values left encoded; null reads as empty."""
    after = skip(raw, position)
    constructor = raw[position]
    if constructor == 0x40:
        return {}, after
    if constructor not in (0xC1, 0xD1):
        raise malformed("expected a map")
    width = 1 if constructor == 0xC1 else 4
    count = int.from_bytes(raw[position + 1 + width : position + 1 + 2 * width], "big")
    if count % 2 or count > after - position:
        raise malformed("a map's count does not fit its size")
    item = position + 1 + 2 * width
    values: dict[str, bytes] = {}
    for _ in range(count // 2):
        key, value_at = decode(raw, item)
        item = skip(raw, value_at)
        if item > after:
            raise malformed("a map's items do not fill its declared size")
        values[str(key)] = raw[value_at:item]
    if item != after:
        raise malformed("a map's items do not fill its declared size")
    return values, after


def read_properties(message: ParsedMessage) -> dict[str, Any]:
    """The immutable properties that are set, by their AMQP names."""
    if not message.properties_at:
        return {}
    fields, _ = decode_list(message.raw, message.properties_at)
    return {name: value for name, value in zip(PROPERTY_NAMES, fields, strict=False) if value is not None}


def read_application_properties(message: ParsedMessage) -> dict[str, Any]:
    """The application properties, decoded."""
    encoded = raw_application_properties(message)
    return {name: decode(value)[0] for name, value in encoded.items()}


def property_sizes(message: ParsedMessage) -> Iterator[int]:
    """The encoded bytes of each property: those of the message itself, and the application's."""
    if message.properties_at:
        yield from map(len, raw_fields(message.raw, message.properties_at)[0])
    yield from map(len, raw_application_properties(message).values())


def read_value(message: ParsedMessage) -> Any:
    """The body of a message that is one value; None when the body is of another kind."""
    if message.body_start >= len(message.raw):
        return None
    code, value_at = _section(message.raw, message.body_start)
    return decode(message.raw, value_at)[0] if code == VALUE else None


def read_data(message: ParsedMessage) -> bytes:
    """The body of a message that is bytes; empty when the body is of another kind."""
    parts, position = [], message.body_start
    while position < len(message.raw):
        code, value_at = _section(message.raw, position)
        if code == DATA:
            parts.append(decode(message.raw, value_at)[0])
        position = skip(message.raw, value_at)
    return b"".join(parts)


def raw_application_properties(message: ParsedMessage) -> dict[str, bytes]:
    """The application properties, left encoded."""
    if not message.application_properties_at:
        return {}
    _, value_at = _section(message.raw, message.application_properties_at)
    return raw_map(message.raw, value_at)[0]


def raw_fields(raw: bytes, position: int) -> tuple[list[bytes], int]:
    """The encoded items of a list whose bounds were checked, and where the list ends."""
    fields: list[bytes] = []
    if raw[position] != EMPTY_LIST:
        width = 1 if raw[position] == 0xC0 else 4
        item = position + 1 + 2 * width
        for _ in range(int.from_bytes(raw[position + 1 + width : item], "big")):
            after = skip(raw, item)
            fields.append(raw[item:after])
            item = after
    return fields, skip(raw, position)


def _section(raw: bytes, position: int) -> tuple[int, int]:
    """A section's code and where its value starts."""
    if raw[position : position + 2] == b"\x00\x53" and len(raw) > position + 3:
        code, value_at = raw[position + 2], position + 3
    elif raw[position : position + 1] == b"\x00":
        descriptor, value_at = decode(raw, position + 1)
        code = descriptor if isinstance(descriptor, int) else _SECTION_SYMBOLS.get(str(descriptor), -1)
    else:
        raise malformed("a message is a row of described sections")
    if not HEADER <= code <= FOOTER:
        raise malformed("a message has a section that AMQP does not define")
    return code, value_at


_SECTION_SYMBOLS: dict[str, int] = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}


def _number(fields: list[Any], index: int) -> int | None:
    value = fields[index] if len(fields) > index else None
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool | Timestamp):
        raise malformed("a field of the header has the wrong type")
    return value


def _identity(raw: bytes, position: int) -> tuple[str | None, str | None]:
    """Message id and group id, stepping over the fields between them."""
    constructor = raw[position]
    if constructor == EMPTY_LIST:
        return None, None
    if constructor not in (0xC0, 0xD0):
        raise malformed("properties are a list")
    width = 1 if constructor == 0xC0 else 4
    end = skip(raw, position)
    count = int.from_bytes(raw[position + 1 + width : position + 1 + 2 * width], "big")
    item = position + 1 + 2 * width
    if not count:
        return None, None
    message_id, item = decode(raw, item)
    session_id = None
    if count > _GROUP_ID:
        for _ in range(_GROUP_ID - _MESSAGE_ID - 1):
            item = skip(raw, item)
        session_id, item = decode(raw, item)
    if isinstance(session_id, bytes):  # the Python SDK, of a message that it received and sends on
        session_id = session_id.decode(errors="replace")
    if item > end or not isinstance(session_id, str | None):
        raise malformed("the properties do not fit their definition")
    return None if message_id is None else _text(message_id), session_id


def _text(message_id: Any) -> str:
    """AMQP lets an id be a number, a UUID, binary or a string; two forms of the same text are the same id here."""
    if not isinstance(message_id, bytes):
        return str(message_id)
    try:
        return message_id.decode()
    except UnicodeDecodeError:
        return message_id.hex()

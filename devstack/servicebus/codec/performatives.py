"""A performative on the wire has exactly the fields of its definition, each with the type and default defined there.

Sources: OASIS AMQP 1.0 part 2, 2.7 (transport), part 3, 3.5 (termini) and 3.4 (outcomes), part 5, 5.3.3 (SASL).
Incoming fields that are omitted or null read as their default; a mandatory one that is missing is a decode error.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from devstack.servicebus.codec import encode as e
from devstack.servicebus.codec.decode import decode
from devstack.servicebus.codec.errors import AmqpError, malformed
from devstack.servicebus.codec.values import Described, Symbol

Encoder = Callable[[Any], bytes]


class Open(NamedTuple):
    container_id: str
    hostname: str | None = None
    max_frame_size: int = 0xFFFFFFFF
    channel_max: int = 0xFFFF
    idle_timeout: int | None = None
    outgoing_locales: Any = None
    incoming_locales: Any = None
    offered_capabilities: Any = None
    desired_capabilities: Any = None
    properties: dict[Any, Any] | None = None


class Begin(NamedTuple):
    remote_channel: int | None
    next_outgoing_id: int
    incoming_window: int
    outgoing_window: int
    handle_max: int = 0xFFFFFFFF
    offered_capabilities: Any = None
    desired_capabilities: Any = None
    properties: dict[Any, Any] | None = None


class Source(NamedTuple):
    address: str | None = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Any = None
    distribution_mode: Any = None
    filter: dict[Any, Any] | None = None
    default_outcome: Any = None
    outcomes: Any = None
    capabilities: Any = None


class Target(NamedTuple):
    address: str | None = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Any = None
    capabilities: Any = None


class Attach(NamedTuple):
    name: str
    handle: int
    role: bool
    snd_settle_mode: int = 2
    rcv_settle_mode: int = 0
    source: Source | None = None
    target: Target | None = None
    unsettled: Any = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: Any = None
    desired_capabilities: Any = None
    properties: dict[Any, Any] | None = None


class Flow(NamedTuple):
    next_incoming_id: int | None
    incoming_window: int
    next_outgoing_id: int
    outgoing_window: int
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool = False
    echo: bool = False
    properties: dict[Any, Any] | None = None


class Transfer(NamedTuple):
    handle: int
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool = False
    rcv_settle_mode: int | None = None
    state: Any = None
    resume: bool = False
    aborted: bool = False
    batchable: bool = False


class Disposition(NamedTuple):
    role: bool
    first: int
    last: int | None = None
    settled: bool = False
    state: Any = None
    batchable: bool = False


class ErrorField(NamedTuple):
    condition: str
    description: str | None = None
    info: dict[Any, Any] | None = None


class Detach(NamedTuple):
    handle: int
    closed: bool = False
    error: ErrorField | None = None


class End(NamedTuple):
    error: ErrorField | None = None


class Close(NamedTuple):
    error: ErrorField | None = None


class SaslMechanisms(NamedTuple):
    mechanisms: Any


class SaslInit(NamedTuple):
    mechanism: str
    initial_response: bytes | None = None
    hostname: str | None = None


class SaslOutcome(NamedTuple):
    code: int
    additional_data: bytes | None = None


class Accepted(NamedTuple):
    """The outcome of a message that was taken."""


class Rejected(NamedTuple):
    error: ErrorField | None = None


class Released(NamedTuple):
    """The outcome of a message that was not looked at."""


class Modified(NamedTuple):
    delivery_failed: bool = False
    undeliverable_here: bool = False
    message_annotations: dict[Any, Any] | None = None


class Received(NamedTuple):
    section_number: int
    section_offset: int


def error_field(error: AmqpError) -> ErrorField:
    """An error for the wire. All three fields are always written: azure-servicebus reads the third without a look."""
    return ErrorField(error.condition, error.description, {})


Outcome = Accepted | Rejected | Released | Modified


def _composite(value: Any) -> bytes:
    return encode_performative(value)


class _Schema(NamedTuple):
    code: int
    kind: Any
    encoders: tuple[Encoder, ...]
    mandatory: int = 0
    """How many leading fields may not be null."""


_ANY = e.encode
_SCHEMAS = (
    _Schema(
        0x10,
        Open,
        (e.string, e.string, e.uint, e.ushort, e.uint, _ANY, _ANY, _ANY, _ANY, _ANY),
        1,
    ),
    _Schema(0x11, Begin, (e.ushort, e.uint, e.uint, e.uint, e.uint, _ANY, _ANY, _ANY)),
    _Schema(
        0x12,
        Attach,
        (
            e.string,
            e.uint,
            e.boolean,
            e.ubyte,
            e.ubyte,
            _composite,
            _composite,
            _ANY,
            e.boolean,
            e.uint,
            e.ulong,
            _ANY,
            _ANY,
            _ANY,
        ),
        3,
    ),
    _Schema(
        0x13,
        Flow,
        (e.uint, e.uint, e.uint, e.uint, e.uint, e.uint, e.uint, e.uint, e.boolean, e.boolean, _ANY),
    ),
    _Schema(
        0x14,
        Transfer,
        (
            e.uint,
            e.uint,
            e.binary,
            e.uint,
            e.boolean,
            e.boolean,
            e.ubyte,
            _composite,
            e.boolean,
            e.boolean,
            e.boolean,
        ),
        1,
    ),
    _Schema(0x15, Disposition, (e.boolean, e.uint, e.uint, e.boolean, _composite, e.boolean), 2),
    _Schema(0x16, Detach, (e.uint, e.boolean, _composite), 1),
    _Schema(0x17, End, (_composite,)),
    _Schema(0x18, Close, (_composite,)),
    _Schema(0x1D, ErrorField, (e.symbol, e.string, _ANY), 1),
    _Schema(0x23, Received, (e.uint, e.ulong), 2),
    _Schema(0x24, Accepted, ()),
    _Schema(0x25, Rejected, (_composite,)),
    _Schema(0x26, Released, ()),
    _Schema(0x27, Modified, (e.boolean, e.boolean, _ANY)),
    _Schema(
        0x28,
        Source,
        (e.string, e.uint, e.symbol, e.uint, e.boolean, _ANY, _ANY, _ANY, _ANY, _ANY, _ANY),
    ),
    _Schema(0x29, Target, (e.string, e.uint, e.symbol, e.uint, e.boolean, _ANY, _ANY)),
    _Schema(0x40, SaslMechanisms, (_ANY,), 1),
    _Schema(0x41, SaslInit, (e.symbol, e.binary, e.string), 1),
    _Schema(0x44, SaslOutcome, (e.ubyte, e.binary), 1),
)
_BY_CODE: dict[Any, _Schema] = {schema.code: schema for schema in _SCHEMAS}
_BY_KIND: dict[type, _Schema] = {schema.kind: schema for schema in _SCHEMAS}
_SYMBOLIC = {
    "open": 0x10,
    "begin": 0x11,
    "attach": 0x12,
    "flow": 0x13,
    "transfer": 0x14,
    "disposition": 0x15,
    "detach": 0x16,
    "end": 0x17,
    "close": 0x18,
    "error": 0x1D,
    "received": 0x23,
    "accepted": 0x24,
    "rejected": 0x25,
    "released": 0x26,
    "modified": 0x27,
    "source": 0x28,
    "target": 0x29,
}
_BY_CODE.update({Symbol(f"amqp:{name}:list"): _BY_CODE[code] for name, code in _SYMBOLIC.items()})


def encode_performative(value: Any) -> bytes:
    """A performative, terminus, error or outcome; trailing nulls are left out."""
    schema = _BY_KIND[type(value)]
    items = [
        b"\x40" if item is None else encoder(item)
        for item, encoder in zip(value, schema.encoders, strict=True)
    ]
    while items and items[-1] == b"\x40":
        items.pop()
    return e.described(schema.code, e.encode_list(items))


def decode_performative(body: bytes) -> tuple[Any, int]:
    """The performative that a frame's body starts with, and where its payload begins."""
    value, after = decode(body)
    performative = _resolve(value)
    if performative is None:
        raise malformed("the frame holds no performative that AMQP defines")
    return performative, after


T = TypeVar("T")


def read_as(kind: type[T], value: Any) -> T | None:
    """A nested composite (terminus, error, outcome) of the wanted kind; None for null."""
    if value is None or isinstance(value, kind):
        return value
    resolved = _resolve(value)
    if not isinstance(resolved, kind):
        raise malformed(f"expected {kind.__name__.lower()}")
    return resolved


def read_outcome(value: Any) -> Outcome | None:
    """A delivery state; None for null and for ``received``, which settles nothing."""
    resolved = value if value is None else _resolve(value)
    if resolved is None and value is not None:
        raise malformed("the delivery state is none that AMQP defines")
    if isinstance(resolved, Rejected):
        return Rejected(read_as(ErrorField, resolved.error))
    return resolved if isinstance(resolved, Accepted | Released | Modified) else None


def _resolve(value: Any) -> Any:
    if not isinstance(value, Described) or not isinstance(value.value, list):
        return None
    try:
        schema = _BY_CODE.get(value.descriptor)
    except TypeError:
        return None
    if schema is None:
        return None
    fields = value.value
    count = len(schema.encoders)
    if len(fields) > count:
        raise malformed(f"{schema.kind.__name__.lower()} has at most {count} fields")
    if len(fields) < schema.mandatory or None in fields[: schema.mandatory]:
        raise malformed(f"{schema.kind.__name__.lower()} misses a mandatory field")
    return _checked(schema, fields)


def _checked(schema: _Schema, fields: list[Any]) -> Any:
    defaults = schema.kind._field_defaults
    values = {}
    for name, item in zip(schema.kind._fields, fields, strict=False):
        if item is not None:
            values[name] = item
        elif name not in defaults:
            values[name] = None
    for name in schema.kind._fields:
        if name not in values and name not in defaults:
            values[name] = None
    for name, item in values.items():
        expected = _FIELD_TYPES.get((schema.kind, name))
        if expected is not None and item is not None and type(item) not in expected:
            raise AmqpError("amqp:invalid-field", f"{schema.kind.__name__.lower()}.{name} has the wrong type")
    return schema.kind(**values)


_TYPES_BY_ENCODER: dict[Encoder, tuple[type, ...]] = {
    e.string: (str, Symbol),
    e.symbol: (Symbol, str),
    e.uint: (int,),
    e.ulong: (int,),
    e.ushort: (int,),
    e.ubyte: (int,),
    e.boolean: (bool,),
    e.binary: (bytes,),
}
_FIELD_TYPES: dict[tuple[type, str], tuple[type, ...]] = {
    (schema.kind, name): _TYPES_BY_ENCODER[encoder]
    for schema in _SCHEMAS
    for name, encoder in zip(schema.kind._fields, schema.encoders, strict=True)
    if encoder in _TYPES_BY_ENCODER
}

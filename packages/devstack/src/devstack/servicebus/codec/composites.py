"""Composites on the wire and in Python: each field is encoded with the type of its definition, and checked against it.

Incoming fields that are omitted or null read as their default; a mandatory one that is missing is a decode error.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from devstack.servicebus.codec import encode as e
from devstack.servicebus.codec.decode import decode
from devstack.servicebus.codec.errors import AmqpError, malformed
from devstack.servicebus.codec.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    ErrorField,
    Flow,
    Modified,
    Open,
    Outcome,
    Received,
    Rejected,
    Released,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    Transfer,
)
from devstack.servicebus.codec.values import Described, Symbol

Encoder = Callable[[Any], bytes]


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

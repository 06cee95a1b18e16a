"""Composites on the wire and in Python: each field is written as the type of its definition, and checked against it."""

from collections.abc import Callable
from itertools import repeat
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

from devstack.servicebus.codec import encode as e
from devstack.servicebus.codec.decode import decode
from devstack.servicebus.codec.errors import AmqpError, malformed
from devstack.servicebus.codec.fields import COMPOSITES, AnyComposite, FieldType
from devstack.servicebus.codec.performatives import (
    Accepted,
    ErrorField,
    Modified,
    Outcome,
    Rejected,
    Released,
)
from devstack.servicebus.codec.values import Described, Symbol

Encoder = Callable[[Any], bytes]


class _Field(NamedTuple):
    name: str
    encode: Encoder
    decoded: tuple[type, ...] | None
    """What it may be read as; None: anything."""
    mandatory: bool
    default: Any


class _Schema(NamedTuple):
    code: int
    kind: Callable[..., Any]
    name: str
    fields: tuple[_Field, ...]


def encode_performative(value: Any) -> bytes:
    """A performative, terminus, error or outcome; trailing nulls are left out."""
    schema = _BY_KIND[type(value)]
    items = [
        b"\x40" if item is None else field.encode(item)
        for item, field in zip(value, schema.fields, strict=True)
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
    given, missing = value.value, len(schema.fields) - len(value.value)
    if missing < 0:
        raise malformed(f"{schema.name} has at most {len(schema.fields)} fields")
    return schema.kind(*map(_read, schema.fields, [*given, *[None] * missing], repeat(schema.name)))


def _read(field: _Field, item: Any, composite: str) -> Any:
    if item is None:
        if field.mandatory:
            raise malformed(f"{composite}.{field.name} is mandatory and missing")
        return field.default
    if field.decoded is not None and type(item) not in field.decoded:
        raise AmqpError("amqp:invalid-field", f"{composite}.{field.name} has the wrong type")
    return item


def _schema(kind: Any, code: int) -> _Schema:
    hints = get_type_hints(kind, include_extras=True)
    return _Schema(
        code, kind, kind.__name__.lower(), tuple(_field(kind, name, hints[name]) for name in kind._fields)
    )


def _field(kind: Any, name: str, hint: Any) -> _Field:
    defaults = kind._field_defaults
    mandatory = name not in defaults and type(None) not in get_args(hint)
    encode, decoded = _type_of(hint)
    return _Field(name, encode, decoded, mandatory, defaults.get(name))


def _type_of(hint: Any) -> tuple[Encoder, tuple[type, ...] | None]:
    """How a field with this annotation is written, and what it may be read as."""
    for option in (hint, *get_args(hint)):
        for mark in getattr(option, "__metadata__", ()):
            if isinstance(mark, FieldType):
                return mark.encode, mark.decoded
            if mark is AnyComposite:
                return encode_performative, None
        if option in COMPOSITES:
            return encode_performative, None
    return e.encode, None


_BY_KIND = {kind: _schema(kind, descriptor.code) for kind, descriptor in COMPOSITES.items()}
_BY_CODE: dict[Any, _Schema] = {
    announced: _BY_KIND[kind]
    for kind, descriptor in COMPOSITES.items()
    for announced in (descriptor.code, Symbol(descriptor.name))
}

"""The AMQP type of a field stands beside its name: a definition is read once, and is all there is.

``@composite(code, name)`` makes a ``NamedTuple`` a composite of AMQP. A field that is annotated with one of the types
here is written as that type and checked against it; one annotated with a composite holds a nested one; any other
holds whatever AMQP value it is given. A field without a default that may not be None is mandatory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from devstack.servicebus.codec import encode as e
from devstack.servicebus.codec import values as v
from devstack.servicebus.codec.values import Symbol

T = TypeVar("T")


@dataclass(frozen=True)
class FieldType:
    """``decoded``: the Python types that the decoder gives for it."""

    encode: Callable[[Any], bytes]
    decoded: tuple[type, ...]


Text = Annotated[str, FieldType(e.string, (str, Symbol))]
Name = Annotated[str, FieldType(e.symbol, (Symbol, str))]
_INTEGERS = (v.UInt, v.ULong, v.UByte, v.UShort, int, v.Int, v.Short, v.Byte)
"""Of a number only the value counts: a client that writes it wider or narrower is understood."""

UByte = Annotated[int, FieldType(e.ubyte, _INTEGERS)]
UShort = Annotated[int, FieldType(e.ushort, _INTEGERS)]
UInt = Annotated[int, FieldType(e.uint, _INTEGERS)]
ULong = Annotated[int, FieldType(e.ulong, _INTEGERS)]
Bool = Annotated[bool, FieldType(e.boolean, (bool,))]
Binary = Annotated[bytes, FieldType(e.binary, (bytes,))]


class AnyComposite:
    """Marks a field that holds a composite of any kind."""


Composite = Annotated[Any, AnyComposite]
Map = dict[Any, Any]


@dataclass(frozen=True)
class Descriptor:
    """How a composite is announced on the wire: by its code or by its name."""

    code: int
    name: str


COMPOSITES: dict[type, Descriptor] = {}
"""Every composite that has been defined."""


def composite(code: int, name: str) -> Callable[[type[T]], type[T]]:
    """The composite that AMQP's definition calls ``amqp:<name>:list``."""

    def register(kind: type[T]) -> type[T]:
        COMPOSITES[kind] = Descriptor(code, f"amqp:{name}:list")
        return kind

    return register

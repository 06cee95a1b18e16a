"""Python values for the AMQP types that Python has no type of its own for.

A plain ``int`` stands for an AMQP long, ``float`` for double, ``str`` for string, ``bytes`` for binary. A value that
was decoded is encoded as the type that the value had: a receiver in a typed language reads an int as an int, after a
message was changed too.
"""

from dataclasses import dataclass
from typing import Any


class Symbol(str):
    """A name from a defined set, in ASCII."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970-01-01T00:00:00Z."""


class Byte(int):
    """8 bits, signed."""


class Short(int):
    """16 bits, signed."""


class UByte(int):
    """0 to 255."""


class UShort(int):
    """16 bits, unsigned."""


class UInt(int):
    """32 bits, unsigned."""


class ULong(int):
    """64 bits, unsigned."""


class Int(int):
    """32 bits, signed."""


class Float(float):
    """32 bits."""


class Char(str):
    """One character."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Array:
    """Values that all have one AMQP type."""

    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor that says what it means: a code or a symbol."""

    descriptor: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Raw:
    """A value that is encoded already, its constructor byte included."""

    encoded: bytes

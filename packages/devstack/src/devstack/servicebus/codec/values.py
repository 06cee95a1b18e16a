"""Python values for the AMQP types that Python has no type of its own for.

A plain ``int`` stands for an AMQP long, ``float`` for double, ``str`` for string, ``bytes`` for binary; decoding keeps
the narrower types apart only where their difference has a meaning (symbol, timestamp, described).
"""

from dataclasses import dataclass
from typing import Any


class Symbol(str):
    """A name from a defined set, in ASCII."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970-01-01T00:00:00Z."""


class UByte(int):
    """0 to 255."""


class UInt(int):
    """32 bits, unsigned."""


class ULong(int):
    """64 bits, unsigned."""


class Int(int):
    """32 bits, signed."""


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

"""Encoding gives each value its shortest form, and refuses a Python type that has no AMQP type."""

import struct
import uuid
from collections.abc import Callable
from typing import Any

from devstack.servicebus.codec.values import (
    Array,
    Byte,
    Char,
    Described,
    Float,
    Int,
    Raw,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)


def encode(value: Any) -> bytes:
    """``value`` with its constructor. Raises :class:`TypeError` for a type that AMQP has nothing for."""
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        raise TypeError(f"no AMQP type for {type(value).__name__}")
    return encoder(value)


def encode_list(items: list[bytes]) -> bytes:
    """A list of encoded items."""
    if not items:
        return b"\x45"
    body = b"".join(items)
    if len(body) < 255 and len(items) < 256:
        return bytes((0xC0, len(body) + 1, len(items))) + body
    return struct.pack(">BII", 0xD0, len(body) + 4, len(items)) + body


def encode_map(items: list[bytes]) -> bytes:
    """A map of encoded keys and values, in turn."""
    body = b"".join(items)
    if len(body) < 255 and len(items) < 256:
        return bytes((0xC1, len(body) + 1, len(items))) + body
    return struct.pack(">BII", 0xD1, len(body) + 4, len(items)) + body


def described(code: int, value: bytes) -> bytes:
    """An encoded value under a small numeric descriptor."""
    return bytes((0x00, 0x53, code)) + value


def binary(value: bytes) -> bytes:
    if len(value) < 256:
        return bytes((0xA0, len(value))) + value
    return struct.pack(">BI", 0xB0, len(value)) + value


def string(value: str) -> bytes:
    raw = value.encode()
    if len(raw) < 256:
        return bytes((0xA1, len(raw))) + raw
    return struct.pack(">BI", 0xB1, len(raw)) + raw


def symbol(value: str) -> bytes:
    raw = value.encode("ascii")
    if len(raw) < 256:
        return bytes((0xA3, len(raw))) + raw
    return struct.pack(">BI", 0xB3, len(raw)) + raw


def uint(value: int) -> bytes:
    if value == 0:
        return b"\x43"
    return bytes((0x52, value)) if value < 256 else struct.pack(">BI", 0x70, value)


def ulong(value: int) -> bytes:
    if value == 0:
        return b"\x44"
    return bytes((0x53, value)) if value < 256 else struct.pack(">BQ", 0x80, value)


def long(value: int) -> bytes:
    return struct.pack(">Bb", 0x55, value) if -128 <= value < 128 else struct.pack(">Bq", 0x81, value)


def timestamp(value: int) -> bytes:
    return struct.pack(">Bq", 0x83, value)


def ubyte(value: int) -> bytes:
    return bytes((0x50, value))


def ushort(value: int) -> bytes:
    return struct.pack(">BH", 0x60, value)


def boolean(value: bool) -> bytes:
    return b"\x41" if value else b"\x42"


def _int(value: int) -> bytes:
    return struct.pack(">Bb", 0x54, value) if -128 <= value < 128 else struct.pack(">Bi", 0x71, value)


def _list(value: list[Any]) -> bytes:
    return encode_list([encode(item) for item in value])


def _map(value: dict[Any, Any]) -> bytes:
    items = []
    for key, item in value.items():
        items.append(encode(key))
        items.append(encode(item))
    return encode_map(items)


def _array(value: Array) -> bytes:
    if not value.items:
        return b"\x45"
    constructor, bodies = _array_items(value.items)
    body = b"".join(bodies)
    return struct.pack(">BIIB", 0xF0, len(body) + 5, len(bodies), constructor) + body


def _array_items(items: tuple[Any, ...]) -> tuple[int, list[bytes]]:
    kinds = {type(item) for item in items}
    if len(kinds) != 1:
        raise TypeError("an array has items of one type")
    kind = kinds.pop()
    if kind is Symbol:
        return 0xB3, [struct.pack(">I", len(item)) + item.encode("ascii") for item in items]
    if kind is str:
        raws = [item.encode() for item in items]
        return 0xB1, [struct.pack(">I", len(raw)) + raw for raw in raws]
    if kind is uuid.UUID:
        return 0x98, [item.bytes for item in items]
    for numeric, constructor, form in ((Timestamp, 0x83, ">q"), (int, 0x81, ">q"), (UInt, 0x70, ">I")):
        if kind is numeric:
            return constructor, [struct.pack(form, item) for item in items]
    raise TypeError(f"no array of {kind.__name__}")


_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"\x40",
    bool: boolean,
    int: long,
    float: lambda value: struct.pack(">Bd", 0x82, value),
    str: string,
    bytes: binary,
    uuid.UUID: lambda value: b"\x98" + value.bytes,
    list: _list,
    dict: _map,
    Symbol: symbol,
    Timestamp: timestamp,
    Byte: lambda value: struct.pack(">Bb", 0x51, value),
    Short: lambda value: struct.pack(">Bh", 0x61, value),
    Int: _int,
    UByte: ubyte,
    UShort: ushort,
    UInt: uint,
    ULong: ulong,
    Float: lambda value: struct.pack(">Bf", 0x72, value),
    Char: lambda value: struct.pack(">BI", 0x73, ord(value)),
    Array: _array,
    Described: lambda value: b"\x00" + encode(value.descriptor) + encode(value.value),
    Raw: lambda value: value.encoded,
}

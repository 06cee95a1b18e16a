"""Decoding never reads outside the buffer, never nests deeper than MAX_DEPTH and never makes more than it was sent.

Every failure is an :class:`AmqpError` with ``amqp:decode-error``.
"""

import struct
import uuid
from collections.abc import Callable
from typing import Any

from devstack.servicebus.codec.errors import malformed
from devstack.servicebus.codec.values import (
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

MAX_DEPTH = 32
"""Nested compounds in one value. Ours: AMQP sets no bound, and the SDKs stop at 32 or more."""

MAX_ZERO_WIDTH_ITEMS = 65_536
"""Items of an array whose items take no bytes (null, true, empty list): their count is not bounded by the buffer."""

DECIMAL128 = 0x94
DECIMAL_BIAS = 6176
MAX_DECIMAL_SCALE, MAX_DECIMAL_BITS = 28, 96
"""Of .NET's decimals."""

Decoder = Callable[[bytes, int, int], tuple[Any, int]]

_FIXED_WIDTHS = (0, 1, 2, 4, 8, 16)
"""By the high nibble of a constructor from 0x4 to 0x9 (OASIS AMQP 1.0 part 1, figure 1.2)."""


def decode(buffer: bytes, position: int = 0, depth: int = 0) -> tuple[Any, int]:
    """The value at ``position`` and the position after it."""
    try:
        decoder = _DECODERS[buffer[position]]
    except IndexError:
        raise malformed("the value ends before its constructor") from None
    if decoder is None:
        raise malformed(f"no AMQP type has the constructor 0x{buffer[position]:02x}")
    try:
        return decoder(buffer, position + 1, depth)
    except (struct.error, IndexError):
        raise malformed("the value is longer than its buffer") from None
    except UnicodeDecodeError:
        raise malformed("a string is not UTF-8, or a symbol not ASCII") from None


def skip(buffer: bytes, position: int, depth: int = 0) -> int:
    """The position after the value at ``position``, without decoding it."""
    end = len(buffer)
    if position >= end:
        raise malformed("the value ends before its constructor")
    constructor = buffer[position]
    if constructor == 0x00:
        if depth >= MAX_DEPTH:
            raise malformed(f"values are nested more than {MAX_DEPTH} deep")
        return skip(buffer, skip(buffer, position + 1, depth + 1), depth + 1)
    nibble = constructor >> 4
    if 0x4 <= nibble <= 0x9:
        after = position + 1 + _FIXED_WIDTHS[nibble - 4]
    elif nibble in (0xA, 0xC, 0xE) and position + 2 <= end:
        after = position + 2 + buffer[position + 1]
    elif nibble in (0xB, 0xD, 0xF) and position + 5 <= end:
        after = position + 5 + int.from_bytes(buffer[position + 1 : position + 5], "big")
    else:
        raise malformed(f"no AMQP type has the constructor 0x{constructor:02x}, or it is cut short")
    if after > end:
        raise malformed("the value is longer than its buffer")
    return after


def decode_list(buffer: bytes, position: int, depth: int = 0) -> tuple[list[Any], int]:
    """The list at ``position``; anything else is malformed."""
    value, after = decode(buffer, position, depth)
    if not isinstance(value, list) or buffer[position] >> 4 not in (0x4, 0xC, 0xD):
        raise malformed("expected a list")
    return value, after


def _fixed(form: str, kind: type | None = None) -> Decoder:
    reader = struct.Struct(form)
    width = reader.size
    unpack = reader.unpack_from

    def decoder(buffer: bytes, position: int, _depth: int) -> tuple[Any, int]:
        value = unpack(buffer, position)[0]
        return (value if kind is None else kind(value)), position + width

    return decoder


def _constant(value: Any) -> Decoder:
    return lambda _buffer, position, _depth: (value, position)


def _empty_list(_buffer: bytes, position: int, _depth: int) -> tuple[Any, int]:
    return [], position


def _uuid(buffer: bytes, position: int, _depth: int) -> tuple[Any, int]:
    raw = buffer[position : position + 16]
    if len(raw) != 16:
        raise IndexError
    return uuid.UUID(bytes=bytes(raw)), position + 16


def _decimal(constructor: int, width: int) -> Decoder:
    """No rule of the broker reads a decimal, so its bytes are kept as they are."""

    def decoder(buffer: bytes, position: int, _depth: int) -> tuple[Any, int]:
        raw = buffer[position : position + width]
        if len(raw) != width:
            raise IndexError
        return Raw(bytes((constructor, *raw))), position + width

    return decoder


def _decimal128(buffer: bytes, position: int, _depth: int) -> tuple[Any, int]:
    """The value in the form that .NET's AMQP library writes, and azure-servicebus reads: seven bits of the exponent
    are lost in it. Both forms are read, as that library does.

    Source: Microsoft.Azure.Amqp, ``DecimalEncoding.cs``.
    """
    raw = bytes(buffer[position : position + 16])
    if len(raw) != 16:
        raise IndexError
    exponent = ((raw[0] & 0x7F) << 7 | raw[1] >> 1) - DECIMAL_BIAS
    scale = max(-exponent, 0) & 0xFF
    coefficient = int.from_bytes(raw[4:])
    if coefficient:
        coefficient *= 10 ** min(max(exponent, 0), MAX_DECIMAL_SCALE + 1)
    if raw[0] & 0x60 == 0x60 or scale > MAX_DECIMAL_SCALE or coefficient >> MAX_DECIMAL_BITS:
        raise malformed("a decimal has a value that .NET has not")
    biased = DECIMAL_BIAS - scale
    head = bytes((0x94, raw[0] & 0x80 | biased >> 9, (biased & 0x7F) << 1, 0, 0))
    return Raw(head + coefficient.to_bytes(MAX_DECIMAL_BITS // 8)), position + 16


def _char(buffer: bytes, position: int, _depth: int) -> tuple[Any, int]:
    code = int.from_bytes(buffer[position : position + 4], "big")
    if position + 4 > len(buffer) or code > 0x10FFFF:
        raise IndexError
    return Char(chr(code)), position + 4


def _variable(width: int, make: Callable[[bytes], Any]) -> Decoder:
    def decoder(buffer: bytes, position: int, _depth: int) -> tuple[Any, int]:
        start = position + width
        end = start + int.from_bytes(buffer[position:start], "big")
        if start > len(buffer) or end > len(buffer):
            raise IndexError
        return make(bytes(buffer[start:end])), end

    return decoder


def _text(raw: bytes) -> str:
    return raw.decode()


def _symbol(raw: bytes) -> Symbol:
    return Symbol(raw.decode("ascii"))


def _compound(buffer: bytes, position: int, width: int, depth: int) -> tuple[int, int, int]:
    """Count, position of the first item, and the end that the declared size gives."""
    if depth >= MAX_DEPTH:
        raise malformed(f"values are nested more than {MAX_DEPTH} deep")
    size = int.from_bytes(buffer[position : position + width], "big")
    count = int.from_bytes(buffer[position + width : position + 2 * width], "big")
    end = position + width + size
    if size < width or end > len(buffer):
        raise malformed("a compound value is longer than its buffer")
    return count, position + 2 * width, end


def _items(buffer: bytes, count: int, position: int, end: int, depth: int) -> list[Any]:
    if count > end - position:
        raise malformed("a compound value declares more items than it has bytes")
    values = []
    for _ in range(count):
        value, position = decode(buffer, position, depth + 1)
        values.append(value)
    if position != end:
        raise malformed("a compound value's items do not fill its declared size")
    return values


def _list(width: int) -> Decoder:
    def decoder(buffer: bytes, position: int, depth: int) -> tuple[Any, int]:
        count, start, end = _compound(buffer, position, width, depth)
        return _items(buffer, count, start, end, depth), end

    return decoder


def _map(width: int) -> Decoder:
    def decoder(buffer: bytes, position: int, depth: int) -> tuple[Any, int]:
        count, start, end = _compound(buffer, position, width, depth)
        if count % 2:
            raise malformed("a map has a key without a value")
        items = _items(buffer, count, start, end, depth)
        try:
            return dict(zip(items[::2], items[1::2], strict=True)), end
        except TypeError:
            raise malformed("a compound value cannot be a key of a map") from None

    return decoder


def _array(width: int) -> Decoder:
    def decoder(buffer: bytes, position: int, depth: int) -> tuple[Any, int]:
        count, start, end = _compound(buffer, position, width, depth)
        if count > max(end - start, MAX_ZERO_WIDTH_ITEMS):
            raise malformed("an array declares more items than it has bytes")
        if not count:
            return [], end
        constructor = buffer[start]
        start += 1
        if constructor == 0x00:  # one descriptor for all items
            start = skip(buffer, start)
            constructor = buffer[start]
            start += 1
        item = _DECODERS[constructor]
        if item is None or constructor == 0x00:
            raise malformed(f"no array has the constructor 0x{constructor:02x}")
        values = []
        for _ in range(count):
            value, start = item(buffer, start, depth + 1)
            values.append(value)
        if start != end:
            raise malformed("an array's items do not fill its declared size")
        return values, end

    return decoder


def _boolean(buffer: bytes, position: int, _depth: int) -> tuple[Any, int]:
    return buffer[position] == 1, position + 1


def _described(buffer: bytes, position: int, depth: int) -> tuple[Any, int]:
    if depth >= MAX_DEPTH:
        raise malformed(f"values are nested more than {MAX_DEPTH} deep")
    descriptor, position = decode(buffer, position, depth + 1)
    value, position = decode(buffer, position, depth + 1)
    return Described(descriptor, value), position


_BY_CONSTRUCTOR: dict[int, Decoder] = {
    0x00: _described,
    0x40: _constant(None),
    0x41: _constant(True),
    0x42: _constant(False),
    0x43: _constant(UInt(0)),
    0x44: _constant(ULong(0)),
    0x45: _empty_list,
    0x50: _fixed(">B", UByte),
    0x51: _fixed(">b", Byte),
    0x52: _fixed(">B", UInt),
    0x53: _fixed(">B", ULong),
    0x54: _fixed(">b", Int),
    0x55: _fixed(">b"),
    0x56: _boolean,
    0x60: _fixed(">H", UShort),
    0x61: _fixed(">h", Short),
    0x70: _fixed(">I", UInt),
    0x71: _fixed(">i", Int),
    0x72: _fixed(">f", Float),
    0x73: _char,
    0x74: _decimal(0x74, 4),
    0x80: _fixed(">Q", ULong),
    0x81: _fixed(">q"),
    0x82: _fixed(">d"),
    0x83: _fixed(">q", Timestamp),
    0x84: _decimal(0x84, 8),
    DECIMAL128: _decimal128,
    0x98: _uuid,
    0xA0: _variable(1, bytes),
    0xA1: _variable(1, _text),
    0xA3: _variable(1, _symbol),
    0xB0: _variable(4, bytes),
    0xB1: _variable(4, _text),
    0xB3: _variable(4, _symbol),
    0xC0: _list(1),
    0xC1: _map(1),
    0xD0: _list(4),
    0xD1: _map(4),
    0xE0: _array(1),
    0xF0: _array(4),
}
_DECODERS: list[Decoder | None] = [_BY_CONSTRUCTOR.get(code) for code in range(256)]

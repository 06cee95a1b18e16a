"""Where a partition key lives is decided by its hash, and the hash must equal the one clients compute.

The algorithm is that of the service's SDKs: components are written in a binary form, hashed with MurmurHash3, and the
hash is written as upper-case hexadecimal digits, which are compared as text. Version 1 (a container created without
``version``) uses the 32-bit hash, version 2 the 128-bit one, hierarchical keys one 128-bit hash per level.
"""

import functools
import struct
from collections.abc import Callable

_MASK32 = 0xFFFFFFFF
_MASK64 = 0xFFFFFFFFFFFFFFFF
_V1_STRING_LENGTH = 100
_UNDEFINED, _NULL, _FALSE, _TRUE, _NUMBER, _STRING = 0x00, 0x01, 0x02, 0x03, 0x05, 0x08

FIRST = ""
LAST = "FF"
"""All effective partition keys lie in ``[FIRST, LAST)``."""


class Undefined:
    """The document has no value at the path; written ``{}`` on the wire."""

    def __repr__(self) -> str:
        return "undefined"


UNDEFINED = Undefined()

Component = str | int | float | bool | None | Undefined
Components = tuple[Component, ...]


def effective_partition_key(components: Components, *, kind: str = "Hash", version: int = 2) -> str:
    """The effective partition key of a partition key value.

    ``kind`` and ``version`` are those of the container's definition. With ``MultiHash`` a prefix of the components
    gives the prefix of the effective partition key.
    """
    # Equal and of equal hash are 1, 1.0 and True, and 0.0 and -0.0: the cache separates them by their repr.
    return _cached(components, repr(components), kind, version)


@functools.lru_cache(maxsize=8192)
def _cached(components: Components, _written: str, kind: str, version: int) -> str:
    if not components:
        return FIRST
    if kind == "MultiHash":
        return "".join(_hash_v2((component,)) for component in components)
    return _hash_v1(components) if version == 1 else _hash_v2(components)


def boundaries(count: int, *, kind: str = "Hash", version: int = 2) -> list[str]:
    """``count + 1`` boundaries that cut all effective partition keys into ranges with equally many hashes."""
    write, hashes = _edges(kind, version)
    inner = [write(hashes * i // count) for i in range(1, count)]
    return [FIRST, *inner, LAST]


def midpoint(minimum: str, maximum: str, *, kind: str = "Hash", version: int = 2) -> str | None:
    """The boundary with as many hashes above as below it; None when there is none in between."""
    write, hashes = _edges(kind, version)
    low, high = (_first_hash_from(edge, write, hashes) for edge in (minimum, maximum))
    middle = write((low + high) // 2)
    return middle if minimum < middle < maximum else None


def _edges(kind: str, version: int) -> tuple[Callable[[int], str], int]:
    """How a hash is written, and how many hashes there are."""
    if kind == "Hash" and version == 1:
        return (lambda number: _encode_number_v1(float(number)).hex().upper()), 1 << 32
    return (lambda number: f"{number:032X}"), 1 << 126


def _first_hash_from(edge: str, write: Callable[[int], str], hashes: int) -> int:
    low, high = 0, hashes
    while low < high:
        middle = (low + high) // 2
        if write(middle) < edge:
            low = middle + 1
        else:
            high = middle
    return low


def _hash_v2(components: Components) -> str:
    data = b"".join(_for_hashing(component, b"\xff") for component in components)
    digest = murmurhash3_128(data)
    # The two most significant bits are cleared: the greatest key, FF, is exclusive.
    return f"{digest & ((1 << 126) - 1):032X}"


def _hash_v1(components: Components) -> str:
    kept = tuple(part[:_V1_STRING_LENGTH] if isinstance(part, str) else part for part in components)
    digest = murmurhash3_32(b"".join(_for_hashing(_whole_number_v1(part), b"\x00") for part in kept))
    encoded = _encode_number_v1(float(digest)) + b"".join(_for_sorting_v1(part) for part in kept)
    return encoded.hex().upper()


def _whole_number_v1(component: Component) -> Component:
    """Version 1 only: the SDK hashes the lower 32 bits of a whole number."""
    if isinstance(component, int) and not isinstance(component, bool):
        return float(component & _MASK32)
    return component


def _for_hashing(component: Component, string_end: bytes) -> bytes:
    if isinstance(component, Undefined):
        return bytes([_UNDEFINED])
    if component is None:
        return bytes([_NULL])
    if isinstance(component, bool):
        return bytes([_TRUE if component else _FALSE])
    if isinstance(component, str):
        return bytes([_STRING]) + component.encode() + string_end
    return bytes([_NUMBER]) + struct.pack("<d", float(component))


def _for_sorting_v1(component: Component) -> bytes:
    if isinstance(component, Undefined):
        return bytes([_UNDEFINED])
    if component is None:
        return b""  # as the SDK has it; the hash before it already distinguishes null
    if isinstance(component, bool):
        return bytes([_TRUE if component else _FALSE])
    if isinstance(component, str):
        data = component.encode()
        short = len(data) <= _V1_STRING_LENGTH
        kept = data if short else data[: _V1_STRING_LENGTH + 1]
        return bytes([_STRING]) + bytes(byte + 1 for byte in kept) + (b"\x00" if short else b"")
    return _encode_number_v1(float(component))


def _encode_number_v1(number: float) -> bytes:
    """A double whose bytes sort like its value: 8 bits, then 7 bits a byte with a 'goes on' bit."""
    bits: int = struct.unpack("<Q", struct.pack("<d", number))[0]
    sign = 1 << 63
    payload = bits ^ sign if bits < sign else (-bits) & _MASK64
    encoded = bytearray([_NUMBER, payload >> 56])
    payload = (payload << 8) & _MASK64
    last = 0
    first = True
    while payload:
        if not first:
            encoded.append(last)
        first = False
        last = (payload >> 56) | 1
        payload = (payload << 7) & _MASK64
    encoded.append(last & 0xFE)
    return bytes(encoded)


def murmurhash3_128(data: bytes) -> int:
    """MurmurHash3, x64, 128 bits, seed 0; the second half is the more significant one."""
    c1, c2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
    h1 = h2 = 0
    whole = len(data) & ~15
    for k1, k2 in struct.iter_unpack("<QQ", data[:whole]):
        h1 ^= _rotate64((k1 * c1) & _MASK64, 31) * c2 & _MASK64
        h1 = ((_rotate64(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK64
        h2 ^= _rotate64((k2 * c2) & _MASK64, 33) * c1 & _MASK64
        h2 = ((_rotate64(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK64
    tail = data[whole:]
    k1, k2 = int.from_bytes(tail[:8], "little"), int.from_bytes(tail[8:], "little")
    h2 ^= _rotate64((k2 * c2) & _MASK64, 33) * c1 & _MASK64
    h1 ^= _rotate64((k1 * c1) & _MASK64, 31) * c2 & _MASK64
    h1, h2 = h1 ^ len(data), h2 ^ len(data)
    h1 = (h1 + h2) & _MASK64
    h2 = (h2 + h1) & _MASK64
    h1, h2 = _mix64(h1), _mix64(h2)
    h1 = (h1 + h2) & _MASK64
    h2 = (h2 + h1) & _MASK64
    return (h2 << 64) | h1


def murmurhash3_32(data: bytes) -> int:
    """MurmurHash3, x86, 32 bits, seed 0."""
    c1, c2 = 0xCC9E2D51, 0x1B873593
    h1 = 0
    whole = len(data) & ~3
    for (k1,) in struct.iter_unpack("<I", data[:whole]):
        h1 ^= _rotate32((k1 * c1) & _MASK32, 15) * c2 & _MASK32
        h1 = (_rotate32(h1, 13) * 5 + 0xE6546B64) & _MASK32
    k1 = int.from_bytes(data[whole:], "little")
    h1 ^= _rotate32((k1 * c1) & _MASK32, 15) * c2 & _MASK32
    h1 ^= len(data)
    h1 = ((h1 ^ (h1 >> 16)) * 0x85EBCA6B) & _MASK32
    h1 = ((h1 ^ (h1 >> 13)) * 0xC2B2AE35) & _MASK32
    return h1 ^ (h1 >> 16)


def _mix64(value: int) -> int:
    value = ((value ^ (value >> 33)) * 0xFF51AFD7ED558CCD) & _MASK64
    value = ((value ^ (value >> 33)) * 0xC4CEB9FE1A85EC53) & _MASK64
    return value ^ (value >> 33)


def _rotate64(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK64


def _rotate32(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK32

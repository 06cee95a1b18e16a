"""The canonical form of JSON (RFC 8785): two documents that say the same are the same bytes.

Numbers compare by value, since Cosmos DB stores doubles and may give ``1.0`` back as ``1``.
"""

import json
from typing import Any

import rfc8785

LARGEST_INTEGER = 2**53 - 1
"""Beyond it JSON's readers do not agree on an integer (RFC 8259, section 6)."""
_LARGEST_DOUBLE = 2**1023
_TOO_DEEP = "it is nested too deeply"
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def canonical(value: Any) -> bytes:
    """The canonical form of JSON as it was read. Raises ValueError when there is none, as for a lone surrogate."""
    try:
        if _is_simple(value):
            return _ENCODER.encode(value).encode()
        try:
            return rfc8785.dumps(value)
        except rfc8785.IntegerDomainError:
            return rfc8785.dumps(_with_floats(value))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def check(value: Any) -> None:
    """Whether JSON that is to be written can be read by all. Raises ValueError, which names the kind of fault alone."""
    try:
        if _is_simple(value):
            _ENCODER.encode(value).encode()
        else:
            rfc8785.dumps(value)
    except rfc8785.IntegerDomainError:
        raise ValueError("an integer is beyond 2^53: write it as text") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        raise ValueError("a text has a lone surrogate, or a number is not finite: replace it") from None


def as_sent(data: Any) -> bytes:
    """The body of a message: canonical, so that every host sends the same bytes; what has no such form in plain JSON.

    Plain is ASCII, so that no stored text, however broken, fails to be encoded.
    """
    try:
        return canonical(data)
    except ValueError:
        return json.dumps(data, separators=(",", ":")).encode()


def is_a_double(value: int) -> bool:
    """Whether a store of doubles keeps this integer as it is."""
    return abs(value) < _LARGEST_DOUBLE and int(float(value)) == value


def _is_simple(value: Any) -> bool:
    """Whether the standard library's encoder, which is much faster, gives the same bytes.

    It writes floats in another way, and orders names by code point, which is the same for names in ASCII.
    """
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        return bool(-LARGEST_INTEGER <= value <= LARGEST_INTEGER)
    if kind is dict:
        for name, inner in value.items():
            if not (type(name) is str and name.isascii() and (type(inner) is str or _is_simple(inner))):
                return False
        return True
    return kind is list and all(map(_is_simple, value))


def _with_floats(value: Any) -> Any:
    """Large integers as floats where that changes no value: a store of doubles writes 1e+20 as an integer."""
    if isinstance(value, dict):
        return {name: _with_floats(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_with_floats(inner) for inner in value]
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER and is_a_double(value):
        return float(value)
    return value

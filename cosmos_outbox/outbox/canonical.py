"""Serialises JSON canonically (RFC 8785): equal values give the same bytes.

Numbers compare by value, since Cosmos DB stores doubles and may return ``1.0`` as ``1``.
"""

import json
from types import NoneType
from typing import Any

import rfc8785

LARGEST_INTEGER = 2**53 - 1
"""The largest integer that all JSON parsers read alike (RFC 8259, section 6)."""
_TOO_DEEP = "it is nested too deeply"
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)
_ALWAYS_SIMPLE = frozenset({str, bool, NoneType})


def canonical(value: Any) -> bytes:
    """Returns the canonical form of parsed JSON. Raises ValueError if there is none, as for a lone surrogate."""
    try:
        try:
            return _encoded(value)
        except rfc8785.IntegerDomainError:
            return rfc8785.dumps(_with_floats(value))
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None


def check(value: Any) -> None:
    """Raises ValueError for JSON that some parsers would read differently; the message has only the kind of fault."""
    try:
        _encoded(value)
    except rfc8785.IntegerDomainError:
        raise ValueError("an integer is beyond 2^53: write it as text") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except (rfc8785.CanonicalizationError, UnicodeEncodeError):
        raise ValueError("a text has a lone surrogate, or a number is not finite: replace it") from None


def as_sent(data: Any) -> bytes:
    """Returns a message's body: canonical, so that every host sends the same bytes; otherwise plain JSON.

    Plain JSON is ASCII, so that even a malformed stored text can be encoded.
    """
    try:
        return canonical(data)
    except ValueError:
        return json.dumps(data, separators=(",", ":")).encode()


def is_a_double(value: int) -> bool:
    """Whether a store of doubles preserves this integer."""
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def _encoded(value: Any) -> bytes:
    return _ENCODER.encode(value).encode() if _is_simple(value) else rfc8785.dumps(value)


def _is_simple(value: Any) -> bool:
    """Whether the standard library's encoder, which is much faster, gives the same bytes.

    It formats floats differently, and orders names by code point, which is the same for ASCII names.
    """
    kind = type(value)
    if kind in _ALWAYS_SIMPLE:
        return True
    if kind is dict:
        for name, inner in value.items():  # noqa: SIM110 - a generator takes twice the time and halves the possible depth
            if not (type(name) is str and name.isascii() and _is_simple(inner)):
                return False
        return True
    if kind is list:
        return all(map(_is_simple, value))
    return kind is int and -LARGEST_INTEGER <= value <= LARGEST_INTEGER


def _with_floats(value: Any) -> Any:
    """Converts integers to floats if that preserves the value: a store of doubles writes 1e+20 as an integer."""
    if isinstance(value, dict):
        return {name: _with_floats(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_with_floats(inner) for inner in value]
    if type(value) is int and is_a_double(value):
        return float(value)
    return value

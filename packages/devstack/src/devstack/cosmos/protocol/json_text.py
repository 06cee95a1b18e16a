"""JSON is read strictly and written compactly: what no other reader of JSON would take is refused with 400.

A number is a double, as in the service, and whole ones are written without a fraction: nobody shall come to rely on
``1.0`` or on an integer beyond 2^53.
"""

import json
import math
from typing import Any

from devstack.cosmos.protocol.errors import bad_request

EXACT = 2**53
"""Up to here every integer is a double."""

Json = dict[str, Any]
"""A JSON object."""


def parse_json(text: bytes) -> Any:
    """Strict JSON: no NaN, no lone surrogates, bounded nesting, numbers within a double. Raises 400."""
    try:
        return json.loads(text.decode(), parse_constant=_no_constant, parse_int=_integer, parse_float=_number)
    except UnicodeDecodeError as error:
        raise bad_request("The request body is not UTF-8.") from error
    except (ValueError, RecursionError) as error:
        raise bad_request(f"The request body is not valid JSON: {str(error)[:200]}") from error


def dump_json(value: Any) -> str:
    """Compact JSON. Raises 400 for text that no UTF-8 can carry."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise bad_request("The document holds a lone surrogate, which is no Unicode text.") from error
    return text


def as_number(value: float) -> int | float:
    """The number as it is stored. Raises ValueError for one that no double holds."""
    double = float(value)
    if math.isinf(double):
        raise ValueError("a number is larger than a double")
    return int(double) if abs(double) <= EXACT and double.is_integer() else double


def _integer(text: str) -> int | float:
    value = int(text)
    return value if abs(value) <= EXACT else _number(text)


def _number(text: str) -> int | float:
    return as_number(float(text))


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")

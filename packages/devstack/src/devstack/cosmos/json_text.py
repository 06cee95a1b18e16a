"""JSON is read strictly and written compactly: what no other reader of JSON would take is refused with 400."""

import json
from typing import Any

from devstack.cosmos.errors import bad_request

Json = dict[str, Any]
"""A JSON object."""


def parse_json(text: bytes) -> Any:
    """Strict JSON: no NaN, no lone surrogates, bounded nesting. Raises 400."""
    try:
        return json.loads(text.decode(), parse_constant=_no_constant)
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


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")

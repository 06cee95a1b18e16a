"""A field of a ``$management`` request is what the operation needs, or the request is refused by the field's name."""

import uuid
from typing import Any

from devstack.servicebus.codec import errors
from devstack.servicebus.codec.errors import AmqpError, malformed


def lock_tag(token: Any) -> bytes:
    try:
        identifier = token if isinstance(token, uuid.UUID) else uuid.UUID(str(token))
    except ValueError:
        raise AmqpError(errors.ARGUMENT_ERROR, f"'{token}' is no lock token.") from None
    return identifier.bytes_le


def listed(body: dict[Any, Any], name: str) -> list[Any]:
    value = body.get(name)
    if not isinstance(value, list):
        raise AmqpError(errors.ARGUMENT_ERROR, f"'{name}' is an array.")
    return value


def number(body: dict[Any, Any], name: str) -> int:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise AmqpError(errors.ARGUMENT_ERROR, f"'{name}' is a number.")
    return max(0, value)


def text(body: dict[Any, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value:
        raise AmqpError(errors.ARGUMENT_ERROR, f"'{name}' is a string.")
    return value


def wanted_session(body: dict[Any, Any]) -> str:
    value = body.get("session-id")
    if not isinstance(value, str):
        raise malformed("'session-id' is a string")
    return value

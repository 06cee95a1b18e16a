"""A field of a ``$management`` request is what the operation needs, or the request is refused by the field's name.

A response says with a status whether it is an answer or a refusal.
"""

import uuid
from typing import Any

from devstack.servicebus.codec import errors
from devstack.servicebus.codec.errors import AmqpError, malformed
from devstack.servicebus.codec.values import Int, Symbol
from devstack.servicebus.codec.written_message import build_value_message

OK, NO_CONTENT = 200, 204
_STATUS = {
    errors.MESSAGE_LOCK_LOST: 410,
    errors.SESSION_LOCK_LOST: 410,
    errors.MESSAGE_NOT_FOUND: 404,
    errors.NOT_FOUND: 404,
    errors.ARGUMENT_ERROR: 400,
    errors.NOT_ALLOWED: 400,
    errors.MESSAGE_SIZE_EXCEEDED: 400,
    errors.RESOURCE_LIMIT_EXCEEDED: 403,
    errors.SERVER_BUSY: 503,
    errors.ENTITY_DISABLED: 403,
    errors.NOT_IMPLEMENTED: 501,
    errors.ENTITY_ALREADY_EXISTS: 409,
}


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


def answer(correlation: Any, status: int, value: dict[str, Any] | None) -> bytes:
    """The response to a request that was carried out; ``correlation`` is the request's message id."""
    return _response(correlation, status, "OK" if status == OK else "No content", value)


def refusal(correlation: Any, error: AmqpError) -> bytes:
    """The response to a request that was not."""
    condition = Symbol(error.condition)
    return _response(correlation, _STATUS.get(error.condition, 500), error.description, None, condition)


def _response(
    correlation: Any,
    status: int,
    description: str,
    value: dict[str, Any] | None,
    condition: Symbol | None = None,
) -> bytes:
    properties: dict[str, Any] = {"statusCode": Int(status), "statusDescription": description}
    if condition is not None:
        properties["errorCondition"] = condition
    return build_value_message(value, correlation_id=correlation, application_properties=properties)

"""Creates clients of a storage account, classifies the SDK's errors, and inspects the deployed queues.

A client retries a failed call once, after a second: its callers have short deadlines and retry themselves. An error
means "this message never" or "not now". Only a fault of the message itself is final: its size, or a character that XML
does not allow. An operator can repair everything else while the events wait in the store. After an error that is not
listed, the events wait. The inspection changes nothing.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import ParseError

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
)
from azure.storage.queue.aio import QueueServiceClient

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.errors import FailureReason
from cosmos_outbox.outbox.publisher import Refused, Unknown
from cosmos_outbox.settings.connections import Connection, Credential
from cosmos_outbox.settings.errors import CannotCheck, Denied, UnusableConnection, first_line

if TYPE_CHECKING:
    from azure.core.pipeline.transport import AsyncHttpTransport

    Http = Callable[[], AsyncHttpTransport[Any, Any]]
    """Creates the HTTP transport of a client, in place of the SDK's own."""

_UNREADABLE = (ParseError, UnicodeDecodeError)
"""Errors that the SDK raises for a malformed response, such as a proxy's page or a truncated body."""

SDK_ERRORS = (AzureError, OSError, TimeoutError, *_UNREADABLE)
"""The errors that a call of the SDK can raise."""

LARGEST_MESSAGE_BYTES = 64 * 1024
"""The limit of an encoded message (https://learn.microsoft.com/rest/api/storageservices/put-message)."""

TOO_LARGE = f"the message is larger than the {LARGEST_MESSAGE_BYTES} bytes that a Storage queue takes"

_NEVER = {
    "MessageTooLarge": TOO_LARGE,
    "RequestBodyTooLarge": TOO_LARGE,
    "InvalidXmlDocument": "a value in the message is outside the limits of Storage queues",
    "InvalidXmlNodeValue": "a value in the message is outside the limits of Storage queues",
    "OutOfRangeInput": "a value in the message is outside the limits of Storage queues",
}
"""Final refusals, by the error code of a 400 or 413 response."""


_DENIED = (
    "cannot be used: give the identity its role (Storage Queue Data Message Sender, Message Processor or Contributor), "
    "or correct the key"
)
_ANSWERED = {
    401: _DENIED,
    403: _DENIED,
    404: "does not exist: create it as the deployment does, or correct the name in the settings",
    429: "is busy",
    503: "is busy",
}
"""The reason for an operator, by the response's status."""


def verdict(error: BaseException, entity: str) -> Refused | Unknown:
    """Returns the outcome of a failed send for its event, with ``accepted`` 0.

    ``entity``: the queue in words, with its name.
    """
    status, code = _status(error), error_code(error)
    if status == 413 or (status == 400 and code in _NEVER):
        return Refused(0, _NEVER.get(code, TOO_LARGE))
    return Unknown(0, reason(error, entity), hindrance(error))


def hindrance(error: BaseException) -> FailureReason:
    """Classifies the error as a reason for a delay of events."""
    status = _status(error)
    if status in (429, 503):
        return FailureReason.BROKER_THROTTLES
    if isinstance(error, ClientAuthenticationError) or (
        status is not None and 400 <= status < 500 and status != 408
    ):
        return FailureReason.BROKER_REFUSES
    return FailureReason.BROKER_AWAY


def reason(error: BaseException, entity: str) -> str:
    """Returns the reason and the remedy, for an operator to read."""
    status, answered = _status(error), f"{_status(error) or ''} {error_code(error)}".strip()
    if status is not None:
        return f"{entity} {_ANSWERED.get(status, 'answers with an error')} ({answered})"
    if isinstance(error, ClientAuthenticationError):
        return f"no token for {entity} could be obtained ({type(error).__name__})"
    if isinstance(error, TimeoutError):
        return f"{entity} did not answer in time"
    if isinstance(error, _UNREADABLE):
        return f"{entity} answers what no storage account does: look at what is in between ({type(error).__name__})"
    return f"{entity} cannot be reached ({type(error).__name__})"


def error_code(error: BaseException) -> str:
    """Returns the service's error code, such as ``QueueNotFound``; otherwise the class of the error."""
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code)) if code else type(error).__name__


def _status(error: BaseException) -> int | None:
    return error.status_code if isinstance(error, HttpResponseError) else None


__all__ = ["QueueServiceClient", "queue_service"]

_ONCE_MORE: dict[str, Any] = {
    "retry_total": 1,
    "initial_backoff": 1,
    "increment_base": 1,
    "random_jitter_range": 0,
}


def queue_service(
    connection: Connection, credential: Credential | None, http: "Http | None" = None
) -> QueueServiceClient:
    """Returns a new client; the caller closes it. Raises ValueError for an incomplete connection string."""
    options = _ONCE_MORE if http is None else {**_ONCE_MORE, "transport": http()}
    if connection.connection_string:
        return QueueServiceClient.from_connection_string(connection.connection_string, **options)
    return QueueServiceClient(connection.address, credential, **options)


DEADLINE_SECONDS = 15.0
"""The maximum duration of inspecting all queues, with retries and a sign-in."""


async def look(
    connection: Connection, credential: Credential | None, queues: Sequence[str], *, seconds: float
) -> float:
    """Checks each queue within ``seconds``. Returns the seconds of the last check. Raises Denied, CannotCheck."""
    took = 0.0
    for name in queues:
        began = monotonic()
        if await messages_in(connection, credential, name, seconds=seconds) is None:
            raise CannotCheck(
                f"has no queue {name}: create it as the deployment does, or correct STORAGEQUEUE_QUEUES"
            )
        took = monotonic() - began
    return took


async def messages_in(
    connection: Connection, credential: Credential | None, queue: str, *, seconds: float
) -> int | None:
    """Returns the approximate number of messages; None: the queue does not exist. Raises Denied, CannotCheck."""
    try:
        async with asyncio.timeout(seconds), queue_service(connection, credential) as service:
            found = await service.get_queue_client(queue).get_queue_properties()
    except ResourceNotFoundError:
        return None
    except SDK_ERRORS as error:
        if hindrance(error) is FailureReason.BROKER_REFUSES and not isinstance(
            error, ClientAuthenticationError
        ):
            raise Denied(first_line(error)) from error
        raise CannotCheck(reason(error, "it")) from error
    except ValueError as error:  # the SDK raises it for an incomplete connection string
        raise UnusableConnection from error
    return int(found.approximate_message_count or 0)

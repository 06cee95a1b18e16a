"""A client of a storage account repeats a failed call once, soon: whoever calls has little time, and tries again."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from azure.storage.queue.aio import QueueServiceClient

from cosmos_outbox.settings.connections import Connection, Credential

if TYPE_CHECKING:
    from azure.core.pipeline.transport import AsyncHttpTransport

    Http = Callable[[], AsyncHttpTransport[Any, Any]]
    """Makes what a client sends its requests with, in the place of the SDK's own."""

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
    """A new client; the caller closes it. Raises ValueError for a connection string without its parts."""
    options = _ONCE_MORE if http is None else {**_ONCE_MORE, "transport": http()}
    if connection.connection_string:
        return QueueServiceClient.from_connection_string(connection.connection_string, **options)
    return QueueServiceClient(connection.address, credential, **options)

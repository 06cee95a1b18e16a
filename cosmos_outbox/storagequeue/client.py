"""A client of a storage account repeats a failed call once, soon: whoever calls has little time, and tries again."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from azure.storage.queue.aio import QueueServiceClient

from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.credentials import Credential

if TYPE_CHECKING:
    from azure.core.pipeline.transport import AsyncHttpTransport
    from azure.storage.blob.aio import ContainerClient

    Http = Callable[[], AsyncHttpTransport[Any, Any]]
    """Makes what a client sends its requests with, in the place of the SDK's own."""

__all__ = ["ContainerClient", "QueueServiceClient", "claim_container", "queue_service"]

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
    options = _options(http)
    if connection.connection_string:
        return QueueServiceClient.from_connection_string(connection.connection_string, **options)
    return QueueServiceClient(connection.address, credential, **options)


def claim_container(
    connection: Connection, credential: Credential | None, name: str, http: "Http | None" = None
) -> "ContainerClient":
    """A new client of the blobs that hold claims; the caller closes it. Raises ValueError."""
    from azure.storage.blob.aio import ContainerClient  # noqa: PLC0415 - slow to import, and mostly not needed

    options = _options(http)
    if connection.connection_string:
        return ContainerClient.from_connection_string(connection.connection_string, name, **options)
    return ContainerClient(connection.address, name, credential, **options)


def _options(http: "Http | None") -> dict[str, Any]:
    return _ONCE_MORE if http is None else {**_ONCE_MORE, "transport": http()}

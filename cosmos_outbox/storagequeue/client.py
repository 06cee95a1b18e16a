"""A client of a storage account repeats a failed call once, soon: whoever calls has little time, and tries again."""

from typing import TYPE_CHECKING, Any

from azure.storage.queue.aio import QueueServiceClient

from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.credentials import Credential

if TYPE_CHECKING:
    from azure.storage.blob.aio import ContainerClient

__all__ = ["ContainerClient", "QueueServiceClient", "claim_container", "queue_service"]

_ONCE_MORE: dict[str, Any] = {
    "retry_total": 1,
    "initial_backoff": 1,
    "increment_base": 1,
    "random_jitter_range": 0,
}


def queue_service(connection: Connection, credential: Credential | None) -> QueueServiceClient:
    """A new client; the caller closes it. Raises ValueError for a connection string without its parts."""
    if connection.connection_string:
        return QueueServiceClient.from_connection_string(connection.connection_string, **_ONCE_MORE)
    return QueueServiceClient(connection.address, credential, **_ONCE_MORE)


def claim_container(connection: Connection, credential: Credential | None, name: str) -> "ContainerClient":
    """A new client of the blobs that hold claims; the caller closes it. Raises ValueError."""
    from azure.storage.blob.aio import ContainerClient  # noqa: PLC0415 - slow to import, and mostly not needed

    if connection.connection_string:
        return ContainerClient.from_connection_string(connection.connection_string, name, **_ONCE_MORE)
    return ContainerClient(connection.address, name, credential, **_ONCE_MORE)

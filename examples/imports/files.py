"""The bytes of uploaded files: stored before the transaction that names them, so what is named is there.

A process that dies in between leaves a blob that no record names; a lifecycle rule of the storage account removes it.
"""

import os
from contextlib import AsyncExitStack
from typing import Protocol

from azure.core.exceptions import AzureError, ResourceExistsError, ResourceNotFoundError
from azure.storage.blob.aio import ContainerClient

from cosmos_outbox.errors import Unavailable

CONTAINER = "imports"
CALL_SECONDS = 20
_ADDRESS = "IMPORTS_STORAGE__blobServiceUri"


class FileGone(Exception):
    """There are no such bytes."""


class Files(Protocol):
    """A place for bytes. Raises Unavailable where it cannot be asked."""

    async def put(self, name: str, content: bytes) -> None:
        """Store them, once: the name is the content's digest."""

    async def get(self, name: str) -> bytes:
        """Read them. Raises FileGone."""


class BlobFiles:
    """In the container ``imports`` of a storage account, by one client for the whole process.

    ``IMPORTS_STORAGE__blobServiceUri`` is its address, used with the identity of the process; without it the account is
    that of the connection string in ``STORAGEQUEUE``.
    """

    def __init__(self) -> None:
        self._resources = AsyncExitStack()
        self._opened: ContainerClient | None = None

    async def put(self, name: str, content: bytes) -> None:
        """See :class:`Files`."""
        try:
            await self._container().get_blob_client(name).upload_blob(content, timeout=CALL_SECONDS)
        except ResourceExistsError:  # an earlier attempt's: the same bytes
            return
        except (AzureError, OSError) as error:
            raise Unavailable(f"Blob Storage cannot be used: {type(error).__name__}") from error

    async def get(self, name: str) -> bytes:
        """See :class:`Files`."""
        try:
            found = await self._container().get_blob_client(name).download_blob(timeout=CALL_SECONDS)
            content: bytes = await found.readall()
        except ResourceNotFoundError as error:
            raise FileGone(name) from error
        except (AzureError, OSError) as error:
            raise Unavailable(f"Blob Storage cannot be used: {type(error).__name__}") from error
        return content

    async def close(self) -> None:
        """Close the connections; the next call opens them anew."""
        self._opened = None
        await self._resources.aclose()

    def _container(self) -> ContainerClient:
        if self._opened is None:
            self._opened = _client(self._resources)
            self._resources.push_async_callback(self._opened.close)
        return self._opened


def _client(resources: AsyncExitStack) -> ContainerClient:
    address = os.environ.get(_ADDRESS)
    if not address:
        return ContainerClient.from_connection_string(os.environ["STORAGEQUEUE"], CONTAINER)
    from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415 - not with a connection string

    credential = DefaultAzureCredential()
    resources.push_async_callback(credential.close)
    return ContainerClient(address, CONTAINER, credential)

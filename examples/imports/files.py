"""The bytes of uploaded files: stored before the transaction that tells of them, so what is told of is there.

A process that dies in between leaves a blob that no record names; a lifecycle rule of the storage account removes it.
"""

import os
from typing import Protocol

from azure.core.exceptions import AzureError, ResourceExistsError, ResourceNotFoundError
from azure.storage.blob.aio import BlobServiceClient

from cosmos_outbox.errors import Unavailable

CONTAINER = "imports"
CALL_SECONDS = 20
_ADDRESS = "IMPORTS_STORAGE__blobServiceUri"


class FileGone(Exception):
    """There are no such bytes."""


class Files(Protocol):
    """A place for bytes. Raises Unavailable where it cannot be asked."""

    async def put(self, name: str, content: bytes) -> None:
        """Store them, once: the name tells the content."""

    async def get(self, name: str) -> bytes:
        """Read them. Raises FileGone."""


class BlobFiles:
    """In the container ``imports`` of a storage account.

    ``IMPORTS_STORAGE__blobServiceUri`` is its address, used with the identity of the process; without it the account is
    that of the connection string in ``STORAGEQUEUE``.
    """

    async def put(self, name: str, content: bytes) -> None:
        """See :class:`Files`."""
        try:
            async with _client() as client:
                await client.get_blob_client(CONTAINER, name).upload_blob(content, timeout=CALL_SECONDS)
        except ResourceExistsError:  # an earlier attempt's: the same bytes
            return
        except (AzureError, OSError) as error:
            raise Unavailable(f"Blob Storage cannot be used: {type(error).__name__}") from error

    async def get(self, name: str) -> bytes:
        """See :class:`Files`."""
        try:
            async with _client() as client:
                found = await client.get_blob_client(CONTAINER, name).download_blob(timeout=CALL_SECONDS)
                content: bytes = await found.readall()
                return content
        except ResourceNotFoundError as error:
            raise FileGone(name) from error
        except (AzureError, OSError) as error:
            raise Unavailable(f"Blob Storage cannot be used: {type(error).__name__}") from error


def _client() -> BlobServiceClient:
    address = os.environ.get(_ADDRESS)
    if not address:
        return BlobServiceClient.from_connection_string(os.environ["STORAGEQUEUE"])
    from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415 - not with a connection string

    return BlobServiceClient(address, DefaultAzureCredential())

"""The archive in Blob Storage: each write makes a blob that is not there, or replaces the version that it names."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import (
    AzureError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.storage.blob import ContentSettings, StorageErrorCode
from azure.storage.blob.aio import BlobServiceClient

from cosmos_outbox.outbox.archive import Blob
from cosmos_outbox.outbox.archive_index import INDEX
from cosmos_outbox.outbox.errors import PreconditionFailed, Unavailable
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.credentials import Credential
from cosmos_outbox.settings.errors import Misconfigured

CALL_SECONDS = 30.0
"""For a call, the SDK's own repetitions included."""

_DENIED = (401, 403)
_NOT_MODIFIED = 304
_JSON_LINES = ContentSettings(content_type="application/jsonl")


class BlobArchive:
    """See :class:`cosmos_outbox.outbox.archive.Archive`."""

    def __init__(
        self, connection: Connection, container: str, credential: Credential | None, resources: AsyncExitStack
    ) -> None:
        client = (
            BlobServiceClient.from_connection_string(connection.connection_string)
            if connection.connection_string
            else BlobServiceClient(connection.address, credential)
        )
        self._container, self._name = client.get_container_client(container), container
        resources.push_async_callback(client.close)

    async def claim(self, name: str) -> str | None:
        """The ETag of the empty blob of that name, made where there is none. Raises Unavailable, Misconfigured."""
        blob = self._container.get_blob_client(name)
        with self._errors():
            async with asyncio.timeout(CALL_SECONDS):
                try:
                    made = await blob.upload_blob(b"", overwrite=False, content_settings=_JSON_LINES)
                except ResourceExistsError:
                    found = await blob.get_blob_properties()
                    return None if found.size else str(found.etag)
                return str(made["etag"])

    async def read(self, name: str, but: str = "") -> tuple[bytes, str] | None:
        """A blob's content and ETag, unless it has that one. Raises Unavailable, Misconfigured."""
        unless: dict[str, Any] = {"etag": but, "match_condition": MatchConditions.IfModified} if but else {}
        with self._errors():
            async with asyncio.timeout(CALL_SECONDS):
                try:
                    content = await self._container.download_blob(name, **unless)
                    return await content.readall(), str(content.properties.etag)
                except HttpResponseError as error:
                    is_as_known = error.status_code == _NOT_MODIFIED
                    if is_as_known or getattr(error, "error_code", "") == StorageErrorCode.BLOB_NOT_FOUND:
                        return None
                    raise

    async def names(self, prefix: str) -> list[str]:
        """The first names that begin so, of one request. Raises Unavailable, Misconfigured."""
        with self._errors():
            async with asyncio.timeout(CALL_SECONDS):
                async for page in self._container.list_blob_names(name_starts_with=prefix).by_page():
                    return [name async for name in page]
        return []

    async def blobs(self) -> AsyncIterator[tuple[Blob, str]]:
        """All but the index's, each with its ETag. Raises Unavailable, Misconfigured."""
        with self._errors():
            async for found in self._container.list_blobs():
                if found.name.startswith(INDEX):
                    continue
                # It ends before the yield: whoever reads may take longer, and is cut off by his own limits alone.
                async with asyncio.timeout(CALL_SECONDS):
                    content = await self._container.download_blob(found.name)
                    body = await content.readall()
                yield Blob(found.name, body), str(content.properties.etag)

    async def replace(self, blob: Blob, version: str) -> None:
        """Raises PreconditionFailed, Unavailable, Misconfigured."""
        with self._errors():
            async with asyncio.timeout(CALL_SECONDS):
                try:
                    await self._container.upload_blob(
                        blob.name, blob.body, overwrite=True, content_settings=_JSON_LINES,
                        etag=version, match_condition=MatchConditions.IfNotModified,
                    )  # fmt: skip
                except ResourceModifiedError:
                    raise PreconditionFailed(f"{blob.name} was changed meanwhile: read it again") from None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except ResourceNotFoundError:
            raise Misconfigured(
                f"the archive has no blob container {self._name}: create it as the deployment does, or correct "
                "ARCHIVE_CONTAINER"
            ) from None
        except (AzureError, OSError, TimeoutError) as error:
            status = error.status_code if isinstance(error, HttpResponseError) else None
            todo = (
                "give the identity Storage Blob Data Contributor" if status in _DENIED else "try again later"
            )
            raise Unavailable(
                f"the archive could not be used ({type(error).__name__} {status or ''}): {todo}"
            ) from error

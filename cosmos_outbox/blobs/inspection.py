"""The archive's container is looked at, and writing there is tried, without changing anything."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, HttpResponseError, ResourceModifiedError, ResourceNotFoundError
from azure.storage.blob.aio import BlobServiceClient

from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.credentials import Credential
from cosmos_outbox.settings.inspection import CannotCheck, Denied, UnusableConnection, first_line

_SECONDS = 15.0
_DENIED = (401, 403)


@dataclass(frozen=True)
class BlobContainerState:
    """What counts of a container for an archive."""

    immutable: bool
    """By a policy or a legal hold nothing in it can be replaced."""


@dataclass(frozen=True)
class BlobInspection:
    """Each call raises Denied and CannotCheck."""

    connection: Connection
    container: str
    credential: Credential | None

    async def look(self) -> BlobContainerState | None:
        """The container; None: there is none."""
        with _told():
            async with asyncio.timeout(_SECONDS), self._client() as client:
                try:
                    found = await client.get_container_client(self.container).get_container_properties()
                except ResourceNotFoundError:
                    return None
                return BlobContainerState(bool(found.has_immutability_policy or found.has_legal_hold))

    async def try_writing(self) -> None:
        """Replace a version that no blob has: who may not write is denied before that is seen."""
        with _told():
            async with asyncio.timeout(_SECONDS), self._client() as client:
                blob = client.get_blob_client(self.container, "preflight")
                try:
                    await blob.upload_blob(
                        b"", overwrite=True, etag='"0x0"', match_condition=MatchConditions.IfNotModified
                    )
                except ResourceModifiedError:
                    return

    def _client(self) -> BlobServiceClient:
        limits: dict[str, Any] = {"retry_total": 0, "connection_timeout": 5}
        if self.connection.connection_string:
            return BlobServiceClient.from_connection_string(self.connection.connection_string, **limits)
        return BlobServiceClient(self.connection.address, self.credential, **limits)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except HttpResponseError as error:
        if error.status_code in _DENIED:
            raise Denied(first_line(error)) from error
        raise CannotCheck(f"answers {error.status_code}: {first_line(error)}") from error
    except ValueError as error:
        raise UnusableConnection(first_line(error)) from error
    except (AzureError, OSError, TimeoutError) as error:
        raise CannotCheck(f"cannot be reached: {first_line(error)}") from error

"""The data of a message that was too large is read from the reader's own container of claims, and nowhere else.

Rule ``erased-claim-stays``: whoever stores a claim makes a blob that is not there, and never replaces one. Whoever
erases leaves an empty blob. So a relay that was paused, and stores once more what another has sent, stores nothing.
"""

import asyncio
import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from azure.core.exceptions import ResourceNotFoundError

from cosmos_outbox.inbox.errors import StoreAway
from cosmos_outbox.inbox.set_aside import Delivery
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.errors import Unavailable
from cosmos_outbox.storagequeue.errors import SDK_ERRORS, error_code, reason
from cosmos_outbox.storagequeue.message import Arrived, claim_folder

if TYPE_CHECKING:
    from azure.storage.blob.aio import ContainerClient

_NO_BLOB = "BlobNotFound"
_CALL_SECONDS = 30.0


class ClaimReader:
    """Reads what messages claim. ``container``: None: no setting names one."""

    def __init__(self, container: "ContainerClient | None") -> None:
        self._container = container

    async def complete(self, found: Arrived) -> Delivery:
        """The delivery with its data. Raises StoreAway, also where the settings name no container.

        A blob that is gone does not come back: the message cannot be read any more.
        """
        if found.claim is None:
            return found.delivery
        if self._container is None:
            raise StoreAway(
                f"a message's data is in the blob {found.claim}: set STORAGEQUEUE_CLAIMS, as its sender has it"
            )
        try:
            blob = await self._container.download_blob(found.claim)
            body = await blob.readall()
        except SDK_ERRORS as error:
            if isinstance(error, ResourceNotFoundError) and error_code(error) == _NO_BLOB:
                return found.lost(f"its data, the blob {found.claim}, is gone")
            raise StoreAway(reason(error, _named(self._container))) from error
        return found.with_data(body) if body else found.lost(f"its data, the blob {found.claim}, was erased")


class ClaimEraser:
    """Takes the data out of the claims of one aggregate, after its events were sent."""

    def __init__(self, container: "ContainerClient") -> None:
        self._container = container

    async def of(self, aggregate: AggregateKey) -> Sequence[str]:
        """The names of those that have data. Raises Unavailable."""
        with self._errors():
            async with asyncio.timeout(_CALL_SECONDS):
                listed = self._container.list_blobs(name_starts_with=claim_folder(aggregate))
                return [each.name async for each in listed if each.size]

    async def empty(self, names: Sequence[str], *, living: Collection[str], kept: Collection[str]) -> int:
        """Empty them, but those of events with these ids or actions. Returns how many. Raises Unavailable.

        Cut off, it may be called again.
        """
        emptied = 0
        for name in names:
            with self._errors():
                async with asyncio.timeout(_CALL_SECONDS):
                    emptied += await self._empty(name, living, kept)
        return emptied

    async def _empty(self, name: str, living: Collection[str], kept: Collection[str]) -> bool:
        try:
            body = await (await self._container.download_blob(name)).readall()
        except ResourceNotFoundError as error:
            if error_code(error) == _NO_BLOB:
                return False  # a lifecycle rule was faster
            raise
        data = json.loads(body) if body else {}
        if not body or data.get("id") in living or data.get("action") in kept:
            return False
        await self._container.upload_blob(name, b"", overwrite=True)
        return True

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except SDK_ERRORS as error:
            raise Unavailable(reason(error, _named(self._container))) from error


def _named(container: "ContainerClient") -> str:
    return f"the blob container {container.container_name} (STORAGEQUEUE_CLAIM_CONTAINER)"

"""The data of a message that was too large is read from the reader's own container of claims, and nowhere else."""

from typing import TYPE_CHECKING

from azure.core.exceptions import ResourceNotFoundError

from cosmos_outbox.inbox.errors import StoreAway
from cosmos_outbox.inbox.set_aside import Delivery
from cosmos_outbox.storagequeue.errors import SDK_ERRORS, error_code, reason
from cosmos_outbox.storagequeue.message import Arrived

if TYPE_CHECKING:
    from azure.storage.blob.aio import ContainerClient

_NO_BLOB = "BlobNotFound"


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
            return found.with_data(await blob.readall())
        except SDK_ERRORS as error:
            if isinstance(error, ResourceNotFoundError) and error_code(error) == _NO_BLOB:
                return found.lost(f"its data, the blob {found.claim}, is gone")
            where = f"the blob container {self._container.container_name} (STORAGEQUEUE_CLAIM_CONTAINER)"
            raise StoreAway(reason(error, where)) from error

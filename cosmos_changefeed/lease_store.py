"""Stores leases; each write is conditional on ETag and owner, so that at most one of two instances wins.

The names of the documents and the order of the steps are those of the .NET SDK
(``DocumentServiceLeaseStoreManagerBuilder``, ``DocumentServiceLeaseManagerCosmos``,
``DocumentServiceLeaseStoreCosmos``).
"""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from azure.core import MatchConditions
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)

from cosmos_changefeed.clock import SYSTEM, Clock
from cosmos_changefeed.errors import LeaseLost, LeasesUnusable
from cosmos_changefeed.feed import ContainerIdentity
from cosmos_changefeed.lease import Lease

LOCK_SECONDS = 30
"""The longest that one instance may take to create the leases (.NET: ``BootstrapperCore.DefaultLockTime``)."""
_ATTEMPTS_ON_CONFLICT = 6


class LeaseStore:
    """Stores the leases of one processor over one container, in a lease container with the partition key ``/id``."""

    def __init__(
        self,
        container: ContainerProxy,
        *,
        monitored: ContainerIdentity,
        prefix: str,
        clock: Clock = SYSTEM,
    ) -> None:
        self._container = container
        self._prefix = f"{prefix}{monitored.account_host}_{monitored.database_rid}_{monitored.container_rid}"
        self._clock = clock

    async def check_partition_key(self) -> None:
        """Raise LeasesUnusable unless the lease container is partitioned by ``/id``."""
        paths = (await self._container.read())["partitionKey"]["paths"]
        if paths != ["/id"]:
            raise LeasesUnusable(
                f"the lease container must have the partition key /id, not {paths}: create another lease container"
            )

    def lease_id(self, token: str) -> str:
        """Returns the document id of the lease with this token."""
        return f"{self._prefix}..{token}"

    async def all(self) -> list[Lease]:
        """Returns every lease of this processor, of all owners."""
        documents = self._container.query_items(
            "SELECT * FROM c WHERE STARTSWITH(c.id, @prefix)",
            parameters=[{"name": "@prefix", "value": self.lease_id("")}],
        )
        return [Lease.from_document(document) async for document in documents]

    async def create(self, lease: Lease) -> bool:
        """Store a new lease; False if it is stored already."""
        return await self._create_document(replace(lease, timestamp=self._clock.now()).to_document())

    async def delete(self, lease: Lease) -> None:
        """Delete a lease, unless it is gone already."""
        with contextlib.suppress(CosmosResourceNotFoundError):
            await self._container.delete_item(lease.id, partition_key=lease.id)

    async def acquire(self, lease: Lease, owner: str) -> Lease:
        """Make ``owner`` the owner. Raises LeaseLost if the present owner is not the one in ``lease``."""
        return await self._update(lease, lambda current: current.owned_by(owner))

    async def renew(self, lease: Lease) -> Lease:
        """Show that the owner is alive. Raises LeaseLost."""
        return await self._update(lease, lambda current: current)

    async def checkpoint(self, lease: Lease, continuation: str) -> Lease:
        """Record that everything up to ``continuation`` was handled. Raises LeaseLost."""
        return await self._update(lease, lambda current: current.at(continuation))

    async def release(self, lease: Lease) -> None:
        """Let another instance take the lease at once. Raises LeaseLost."""
        await self._update(lease, lambda current: current.owned_by(None))

    async def is_initialized(self) -> bool:
        """Whether an instance has created the leases."""
        try:
            await self._container.read_item(self._marker, partition_key=self._marker)
        except CosmosResourceNotFoundError:
            return False
        return True

    async def mark_initialized(self) -> None:
        """Record that the leases are created."""
        await self._create_document({"id": self._marker})

    @contextlib.asynccontextmanager
    async def initialization_lock(self) -> AsyncIterator[bool]:
        """Yields whether this instance may create the leases; False: another instance is creating them."""
        name = f"{self._prefix}.lock"
        if not await self._create_document({"id": name, "ttl": LOCK_SECONDS}):
            await self._remove_stale_lock(name)
            yield False
            return
        try:
            yield True
        finally:
            with contextlib.suppress(CosmosResourceNotFoundError):
                await self._container.delete_item(name, partition_key=name)

    @property
    def _marker(self) -> str:
        return f"{self._prefix}.info"

    async def _remove_stale_lock(self, name: str) -> None:
        # A lease container without a default TTL ignores the lock's TTL: after a crash of its creator the lock would
        # stay for ever.
        try:
            lock = await self._container.read_item(name, partition_key=name)
            if lock["_ts"] + LOCK_SECONDS < self._clock.now().timestamp():
                await self._container.delete_item(
                    name,
                    partition_key=name,
                    etag=lock["_etag"],
                    match_condition=MatchConditions.IfNotModified,
                )
        except (CosmosResourceNotFoundError, CosmosAccessConditionFailedError):
            return

    async def _create_document(self, document: dict[str, object]) -> bool:
        try:
            await self._container.create_item(document)
        except CosmosResourceExistsError:
            return False
        return True

    async def _update(self, lease: Lease, change: Callable[[Lease], Lease]) -> Lease:
        current = lease
        for _ in range(_ATTEMPTS_ON_CONFLICT):
            if current.owner != lease.owner:
                raise LeaseLost(lease.token, f"{current.owner} took the lease")
            wanted = replace(change(current), timestamp=self._clock.now())
            try:
                return Lease.from_document(
                    await self._container.replace_item(
                        lease.id,
                        wanted.to_document(),
                        etag=current.etag,
                        match_condition=MatchConditions.IfNotModified,
                    )
                )
            except CosmosAccessConditionFailedError:
                current = await self._read(lease)
            except CosmosResourceNotFoundError as error:
                raise LeaseLost(lease.token, "its document was deleted") from error
        raise LeaseLost(lease.token, "other instances keep writing the lease")

    async def _read(self, lease: Lease) -> Lease:
        try:
            return Lease.from_document(await self._container.read_item(lease.id, partition_key=lease.id))
        except CosmosResourceNotFoundError as error:
            raise LeaseLost(lease.token, "its document was deleted") from error

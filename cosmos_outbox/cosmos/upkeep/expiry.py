"""While a container's default TTL is off, nothing in it expires, whatever its items say; on again, they do at once.

https://learn.microsoft.com/azure/cosmos-db/time-to-live
"""

from dataclasses import dataclass

from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, DatabaseProxy

from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.errors import SDK_ERRORS, Kind, classify
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.settings.errors import NotAllowed

_OVERDUE = "SELECT VALUE COUNT(1) FROM c WHERE c.ttl > 0 AND c._ts + c.ttl < @now"
_ON = -1


@dataclass(frozen=True)
class Expiry:
    """The expiry of one container."""

    database: DatabaseProxy
    container: ContainerProxy
    contents: Container
    """The same container, for queries."""
    default_ttl: int = _ON
    """What the container has when its TTL is on."""

    async def is_stopped(self) -> bool:
        """Whether nothing expires. Raises Throttled, Unavailable, Misconfigured."""
        try:
            properties = await self.container.read()
        except SDK_ERRORS as error:
            raise classify(error).error() from error
        return properties.get("defaultTtl") is None

    async def overdue(self) -> int:
        """How many documents would expire at once, or are just expiring. Raises as :meth:`is_stopped` does."""
        try:
            return await self.contents.count(_OVERDUE, {"@now": int(utc_now().timestamp())})
        except StoreFailed as error:
            raise error.failure.error() from error

    async def stop(self) -> None:
        """From now on nothing expires. Raises NotAllowed, and as :meth:`is_stopped` does."""
        await self._replace(None)

    async def resume(self) -> None:
        """From now on items expire again, by their own ``ttl`` or the container's, overdue ones at once.

        Raises as :meth:`stop` does.
        """
        await self._replace(self.default_ttl)

    async def _replace(self, default_ttl: int | None) -> None:
        """Everything but the default TTL stays: the SDK replaces all properties of a container."""
        try:
            properties = await self.container.read()
            key = properties["partitionKey"]
            await self.database.replace_container(
                self.container,
                # Of a container with a key of the first version the service may tell no version.
                PartitionKey(key["paths"], kind=key.get("kind", "Hash"), version=key.get("version", 1)),
                indexing_policy=properties.get("indexingPolicy"),
                default_ttl=default_ttl,
                conflict_resolution_policy=properties.get("conflictResolutionPolicy"),
                analytical_storage_ttl=properties.get("analyticalStorageTtl"),
                computed_properties=properties.get("computedProperties"),
                full_text_policy=properties.get("fullTextPolicy"),
                vector_embedding_policy=properties.get("vectorEmbeddingPolicy"),
            )
        except SDK_ERRORS as error:
            failure = classify(error)
            if failure.kind is Kind.DENIED:
                raise NotAllowed(
                    f"the store does not let this identity change a container ({failure.detail}): with an identity it "
                    "is done in the portal or by a deployment. See docs/operate/emergency-brake.md"
                ) from error
            raise failure.error() from error

"""A container that a trigger watches and one for its leases, in a database of their own."""

import contextlib
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from devstack.settings import COSMOS_KEY


@dataclass
class Containers:
    """What one trigger works on."""

    database: str
    monitored: ContainerProxy
    leases: ContainerProxy

    async def write(self, partition_key: str, sequence: int, text: str = "", **more: object) -> None:
        await self.monitored.upsert_item(
            {
                "id": f"{partition_key}-{sequence}",
                "partitionKey": partition_key,
                "sequence": sequence,
                "text": text,
                **more,
            }
        )

    async def lease_documents(self) -> dict[str, dict[str, Any]]:
        """By what comes after the prefix: ``.info``, ``..0``, ..."""
        documents = [document async for document in self.leases.read_all_items()]
        return {document["id"][document["id"].index("=.") + 1 :]: document for document in documents}


@contextlib.asynccontextmanager
async def containers_at(endpoint: str, name: str = "") -> AsyncIterator[Containers]:
    """In a database of that name, or of a random one; it is deleted in the end."""
    name = name or f"feed-{uuid.uuid4().hex[:8]}"
    async with CosmosClient(endpoint, COSMOS_KEY) as client:
        # "if not exists": the SDK repeats a creation whose answer a busy machine has delayed
        database = await client.create_database_if_not_exists(name)
        monitored = await database.create_container_if_not_exists("items", PartitionKey("/partitionKey"))
        leases = await database.create_container_if_not_exists("leases", PartitionKey("/id"))
        yield Containers(name, monitored, leases)
        await client.delete_database(name)

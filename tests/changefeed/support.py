"""A monitored container and a lease container in a database of their own, and a handler that records its calls."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_changefeed import (
    ChangeFeedContext,
    ChangeFeedProcessor,
    Changes,
    ProcessorOptions,
    StartFrom,
    TwoSteps,
)
from cosmos_changefeed.clock import SYSTEM, Clock
from devstack.settings import COSMOS_KEY

FAST = ProcessorOptions(
    poll_interval=0.02,
    acquire_interval=0.1,
    expiration_interval=60.0,
    renew_interval=0.3,
    start=StartFrom.beginning(),
)
"""Intervals for tests in which no lease is to expire, however slow the machine is; everything else as usual."""

CALM = replace(FAST, poll_interval=1.0, acquire_interval=2.0, renew_interval=17.0)
"""The same in virtual time, where nobody waits, and each look costs."""


USUAL = ProcessorOptions(start=StartFrom.beginning())
"""In virtual time: leases of 60 s are renewed after 17 s; a poll each 5 s, a look for leases each 13 s."""


@dataclass
class Containers:
    """What a processor works on."""

    endpoint: str
    database: str
    monitored: ContainerProxy
    leases: ContainerProxy
    clock: Clock

    async def write(self, partition_key: str, sequence: int) -> None:
        await self.monitored.create_item(
            {"id": f"{partition_key}-{sequence}", "partitionKey": partition_key, "sequence": sequence}
        )

    async def lease_documents(self) -> dict[str, dict[str, Any]]:
        """By what comes after the prefix: ``.info``, ``..0``, ..."""
        documents = [document async for document in self.leases.read_all_items()]
        return {document["id"][document["id"].index("=.") + 1 :]: document for document in documents}

    async def delete_leases(self, *names: str) -> None:
        """Those of these names; without a name all leases. The marker ``.info`` stays."""
        documents = await self.lease_documents()
        for name in names or [each for each in documents if each.startswith("..")]:
            await self.leases.delete_item(documents[name]["id"], documents[name]["id"])


@contextlib.asynccontextmanager
async def containers_at(endpoint: str, clock: Clock = SYSTEM) -> AsyncIterator[Containers]:
    """In a database of its own; it is deleted in the end."""
    name = f"feed-{uuid.uuid4().hex[:8]}"
    async with CosmosClient(endpoint, COSMOS_KEY) as client:
        database = await client.create_database(name)
        monitored = await database.create_container("items", PartitionKey("/partitionKey"))
        leases = await database.create_container("leases", PartitionKey("/id"))
        yield Containers(endpoint, name, monitored, leases, clock)
        await client.delete_database(name)


@dataclass
class Recorder:
    """A handler; fails as often as it is asked to, and stops inside a batch while it is held."""

    failures: int = 0
    items: list[Mapping[str, Any]] = field(default_factory=list)
    """Handled with success."""
    batches: list[tuple[list[str], ChangeFeedContext]] = field(default_factory=list)
    """Every call, with the ids it got."""
    errors: list[tuple[str | None, Exception]] = field(default_factory=list)
    cancelled: int = 0
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.go_on.set()

    async def __call__(self, changes: Sequence[Mapping[str, Any]], context: ChangeFeedContext) -> None:
        self.batches.append(([item["id"] for item in changes], context))
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.failures:
            self.failures -= 1
            raise ValueError("asked to fail")
        self.items += changes

    def on_error(self, lease_token: str | None, error: Exception) -> None:
        self.errors.append((lease_token, error))

    def has(self, count: int) -> bool:
        return len(self.items) >= count

    @property
    def complaints(self) -> list[tuple[str | None, Exception]]:
        """The errors, but for answers that came too late: the machine stood still, and they are asked for again."""
        return [each for each in self.errors if not isinstance(each[1], TimeoutError)]

    @property
    def ids(self) -> list[str]:
        return [item["id"] for item in self.items]

    def processor(
        self,
        containers: Containers,
        *,
        name: str = "a",
        prefix: str = "",
        options: ProcessorOptions | None = None,
        handler: TwoSteps[Changes] | None = None,
    ) -> ChangeFeedProcessor:
        """With another ``handler`` it calls this one itself."""
        return ChangeFeedProcessor(
            containers.monitored,
            containers.leases,
            handler or self,
            instance_name=name,
            lease_prefix=prefix,
            options=options or (FAST if containers.clock is SYSTEM else CALM),
            on_error=self.on_error,
            clock=containers.clock,
        )

"""A processor's containers in memory and in virtual time: an hour passes in a moment, under the real SDK."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cosmos_changefeed import Clock
from cosmos_changefeed.feed import FeedReader
from cosmos_changefeed.lease_store import LeaseStore
from tests.changefeed.support import Containers, containers_at
from tests.contract.in_memory import CosmosInMemory, MemoryLoop, cosmos_in_memory


@dataclass
class InMemory(Containers):
    """Those of a Cosmos in memory."""

    cosmos: CosmosInMemory
    clock: Clock
    """The loop's time."""

    async def lease_store(self) -> LeaseStore:
        """Of processors without a prefix."""
        reader = await FeedReader.open(self.monitored)
        return LeaseStore(self.leases, monitored=reader.identity, prefix="", clock=self.clock)

    def split(self, partition: str, container: str = "items") -> None:
        self.cosmos.store.account.split(self.database, container, int(partition))


@contextlib.asynccontextmanager
async def in_memory() -> AsyncIterator[InMemory]:
    """On a :class:`MemoryLoop` only."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, MemoryLoop)
    began = datetime.now(UTC)
    clock = Clock(lambda: began + timedelta(seconds=loop.time()), loop.time)
    with cosmos_in_memory(loop) as cosmos:
        async with containers_at(cosmos.address) as made:
            yield InMemory(**vars(made), cosmos=cosmos, clock=clock)

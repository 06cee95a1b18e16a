"""A processor's containers in memory and in virtual time: an hour passes in a moment, under the real SDK."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cosmos_changefeed import Clock
from cosmos_changefeed.feed import FeedReader
from cosmos_changefeed.lease_store import LeaseStore
from devstack.http_in_memory import SentRequest
from tests.changefeed.support import Containers, containers_at
from tests.contract.in_memory import CosmosInMemory, MemoryLoop, cosmos_in_memory


@dataclass
class Troubles:
    """The faults of requests; see :class:`outbox_simulation.engine.store.Meets`."""

    creations: list[str] = field(default_factory=list)
    """Of the next creations of leases: "lost_before", "lost_after", "retry_with" ..."""
    silent: bool = False
    """Whether no request is answered from now on."""
    lag: Callable[[SentRequest], float | None] = lambda _: None
    """How far the replicas are behind that answer."""

    def fault_of(self, request: SentRequest, who: str) -> str | None:
        del who
        creates = request.method == "POST" and "x-ms-documentdb-isquery" not in request.headers
        if self.silent:
            return "silent"
        meets = self.creations and creates and request.path.endswith("/colls/leases/docs/")
        return self.creations.pop(0) if meets else None

    def lag_seconds(self, request: SentRequest) -> float | None:
        return self.lag(request)


@dataclass
class InMemory(Containers):
    """Those of a Cosmos in memory."""

    cosmos: CosmosInMemory
    troubles: Troubles

    async def lease_store(self) -> LeaseStore:
        """Of processors without a prefix."""
        reader = await FeedReader.open(self.monitored)
        return LeaseStore(self.leases, monitored=reader.identity, prefix="", clock=self.clock)

    def split(self, partition: str, container: str = "items") -> list[str]:
        """The ids of the two that take its place."""
        account = self.cosmos.account
        before = set(account.partitions(self.database, container))
        account.split(self.database, container, int(partition))
        return [str(each) for each in account.partitions(self.database, container) if each not in before]


@contextlib.asynccontextmanager
async def in_memory(partitions: int | None = None) -> AsyncIterator[InMemory]:
    """On a :class:`MemoryLoop` only; containers have so many physical partitions."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, MemoryLoop)
    began = datetime.now(UTC)
    clock = Clock(lambda: began + timedelta(seconds=loop.time()), loop.time)
    with cosmos_in_memory(loop, partitions) as cosmos:
        cosmos.store.meets = troubles = Troubles()
        async with containers_at(cosmos.address, clock) as made:
            yield InMemory(**vars(made), cosmos=cosmos, troubles=troubles)

"""Measures the change feed processor: ``python -m tools.benchmarks.reader DATABASE PAGE CHANGES READINGS``.

It reads the container several times, each time with leases of its own, and prints changes a second, counted from the
end of the first page, a line each. ``dotnet/Reader.cs`` is its twin: keep the two alike.
"""

import asyncio
import os
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_changefeed import ChangeFeedContext, ChangeFeedProcessor, ProcessorOptions, StartFrom
from tests.support.azure import CONTACTS, LEASES


async def _rate(monitored: ContainerProxy, leases: ContainerProxy, page: int, changes: int) -> float:
    last: asyncio.Future[float] = asyncio.get_running_loop().create_future()
    handled, first, began = 0, 0, 0.0

    async def handle(items: Sequence[Mapping[str, Any]], _context: ChangeFeedContext) -> None:
        nonlocal handled, first, began
        handled += len(items)
        if not began:
            first, began = handled, time.perf_counter()
        if handled >= changes and not last.done():
            last.set_result(time.perf_counter())

    async with ChangeFeedProcessor(
        monitored,
        leases,
        handle,
        instance_name="reader",
        lease_prefix=uuid.uuid4().hex,
        options=ProcessorOptions(poll_interval=0.1, start=StartFrom.beginning(), max_items=page),
    ):
        ended = await last
    return (handled - first) / (ended - began)


async def _read(database: str, page: int, changes: int, readings: int) -> None:
    async with CosmosClient.from_connection_string(os.environ["COSMOS"]) as client:
        stored = client.get_database_client(database)
        monitored, leases = stored.get_container_client(CONTACTS), stored.get_container_client(LEASES)
        for _ in range(readings):
            print(f"{await _rate(monitored, leases, page, changes):.0f}", flush=True)


if __name__ == "__main__":
    asyncio.run(_read(sys.argv[1], *(int(each) for each in sys.argv[2:5])))

"""A watcher notes each version of each entry of the directory that the container's change feed shows.

At rest an entry may be right although it was wrong before: the next gap, or a walk, mends it. The feed shows what a
reader could have seen in between. It gives the newest version of an item, so a version that is soon replaced may be
missing; of those that it shows, each comes after the one before.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from azure.core.exceptions import AzureError
from azure.cosmos.aio import ContainerProxy, CosmosClient

from outbox_simulation.invariants.records import SeenEntry
from tests.support.azure import DIRECTORY
from tests.torture.journal import Journal
from tests.torture.stack import DATABASE, Stack

_PAUSE_SECONDS = 0.1
_PATIENCE_SECONDS = 5.0
"""For one look; a server that hangs must not end the watch."""


@asynccontextmanager
async def watching(stack: Stack, journal: Journal) -> AsyncIterator[None]:
    """Watch until the body ends."""
    watch = asyncio.create_task(_watch(stack, journal))
    try:
        yield
    finally:
        watch.cancel()
        await asyncio.wait({watch})


async def _watch(stack: Stack, journal: Journal) -> None:
    continuation: str | None = None
    while True:
        client = CosmosClient.from_connection_string(stack.cosmos.connection_string, retry_total=0)
        with contextlib.suppress(AzureError, OSError, TimeoutError):
            try:
                container = client.get_database_client(DATABASE).get_container_client(DIRECTORY)
                while True:
                    async with asyncio.timeout(_PATIENCE_SECONDS):
                        continuation = await _look(container, continuation, journal)
                    await asyncio.sleep(_PAUSE_SECONDS)
            finally:
                await client.close()
        await asyncio.sleep(_PAUSE_SECONDS)


async def _look(container: ContainerProxy, continuation: str | None, journal: Journal) -> str | None:
    """Note what is new; where the feed goes on."""
    where: dict[str, Any] = {"continuation": continuation} if continuation else {"start_time": "Beginning"}
    pages = container.query_items_change_feed(max_item_count=100, **where)
    seen = [item async for item in pages]
    for item in seen:
        if item.get("type") == "entry":
            journal.write(_shown(item))
    etag: str | None = container.client_connection.last_response_headers.get("etag")
    return etag or continuation


def _shown(item: Mapping[str, Any]) -> SeenEntry:
    return SeenEntry(
        at=time.monotonic(),
        aggregate=item["id"],
        sequence=item["lastSequence"],
        event=item["lastEventId"],
        applied_at=item["appliedAt"],
        data=item["data"],
    )

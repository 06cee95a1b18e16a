"""Measures the time from a commit until its event is in the read model, in three processes: idle, and under load.

Each entry records how long after its change it was written. Beside it the same with the SDKs alone: a program that
polls the feed and sends, and one that stores a document for each message.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from uuid import uuid4

from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_outbox.cosmos.aggregates.documents import DIGEST, digest
from cosmos_outbox.kernel.clock import utc_now
from devstack.testing import eventually
from tools.benchmarks.bed import Bed
from tools.benchmarks.latency import compared
from tools.benchmarks.measured import Part, Row
from tools.benchmarks.relaying import NewBed, Say
from tools.benchmarks.subscribing import CONTACT, bare_consumer, deploy, worker

IDLE = 60
"""The number of changes, one at a time."""
A_SECOND, SECONDS, AT_ONCE = 500, 10, 100
"""The changes under load: per second, for how long, and how many in a transaction."""
_POLL_DELAY_MS = 100
_PATIENCE_SECONDS = 240.0

Work = Callable[[Bed], AbstractContextManager[None]]


async def latencies(new_bed: NewBed, say: Say) -> Part:
    """Returns the median and the slowest hundredth of both."""
    rows: list[Row] = []
    loads = (
        ("idle", 1, IDLE, lambda: random.uniform(0.05, 0.5), 4.0),  # noqa: S311 - no secret
        (f"{A_SECOND} changes/s", AT_ONCE, A_SECOND * SECONDS // AT_ONCE, lambda: AT_ONCE / A_SECOND, 4.0),
    )
    for name, at_once, commits, pause, wanted in loads:
        say(f"arriving: {commits} x {at_once} changes, {name}")
        ours = await _measure(new_bed(), at_once, commits, pause, _ours)
        bare = await _measure(new_bed(), at_once, commits, pause, _bare)
        rows += compared(f"commit to applied in the read model, {name}", ours, bare, wanted, wanted)
    return Part(rows, [])


@contextmanager
def _ours(bed: Bed) -> Iterator[None]:
    with bed.worker(RELAY_POLL_DELAY_MS=str(_POLL_DELAY_MS)), worker(bed):
        yield


@contextmanager
def _bare(bed: Bed) -> Iterator[None]:
    with bed.bare_relay(_POLL_DELAY_MS), bare_consumer(bed):
        yield


async def _measure(
    bed: Bed, at_once: int, commits: int, pause: Callable[[], float], work: Work
) -> Sequence[float]:
    """Returns the milliseconds of each change but the first, which waits until the processes are up."""
    await deploy(bed)
    async with (
        bed.contacts() as container,
        CosmosClient.from_connection_string(bed.cosmos.connection_string) as client,
    ):
        entries = client.get_database_client(bed.database).get_container_client("directory")

        async def late() -> list[float]:
            query = "SELECT VALUE c.lateSeconds FROM c WHERE c.type = 'entry' ORDER BY c.appliedAt"
            return [float(str(each)) async for each in entries.query_items(query)]

        with work(bed):
            await _commit(container, 1)
            await eventually(late, within=60, what="the relay and the subscriber are up")
            begun = time.perf_counter()
            for number in range(1, commits + 1):
                await _commit(container, at_once)
                await asyncio.sleep(
                    max(0.0, begun + number * pause() - time.perf_counter()) if at_once > 1 else pause()
                )

            async def all_applied() -> bool:
                return len(await late()) == 1 + commits * at_once

            await eventually(all_applied, within=_PATIENCE_SECONDS, what="all changes are applied")
        return [each * 1000 for each in (await late())[1:]]


async def _commit(container: ContainerProxy, count: int) -> None:
    """Stores new contacts, whose events share a partition so that one transaction stores them."""
    partition, items = str(uuid4()), list[dict[str, Any]]()
    for _ in range(count):
        event_id, contact = str(uuid4()), str(uuid4())
        head = {"id": event_id, "contactId": contact, "action": "ContactCreatedEvent", "sequence": 1}
        now = {"createdAt": utc_now().isoformat()}
        data = {**head, **now, "contact": CONTACT | now}
        item = {
            "id": event_id, "partitionKey": partition, "type": "domainEvent", "aggregateType": "contact",
            "aggregateId": contact, "data": data, "ttl": 864_000,
        }  # fmt: skip
        items.append(item | {DIGEST: digest(item)})
    await container.execute_item_batch([("create", (each,)) for each in items], partition)

"""Measures the time from a commit until its event is in the read model, in three processes: idle, and under load.

Each entry records how long after its change it was written.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_outbox.cosmos.aggregates.documents import DIGEST, digest
from cosmos_outbox.kernel.clock import utc_now
from devstack.testing import eventually
from tools.benchmarks.bed import Bed
from tools.benchmarks.measured import Part, Row
from tools.benchmarks.relaying import NewBed, Say
from tools.benchmarks.subscribing import CONTACT, deploy, worker

IDLE = 60
"""The number of changes, one at a time."""
A_SECOND, SECONDS, AT_ONCE = 500, 10, 100
"""The changes under load: per second, for how long, and how many in a transaction."""
_POLL_DELAY_MS = "100"
_PATIENCE_SECONDS = 240.0


async def latencies(new_bed: NewBed, say: Say) -> Part:
    """Returns the median and the slowest hundredth of both."""
    say(f"arriving: {IDLE} changes, one at a time")
    idle = await _measure(new_bed(), 1, IDLE, lambda: random.uniform(0.05, 0.5))  # noqa: S311 - no secret
    say(f"arriving: {A_SECOND} changes a second for {SECONDS} s")
    loaded = await _measure(new_bed(), AT_ONCE, A_SECOND * SECONDS // AT_ONCE, lambda: AT_ONCE / A_SECOND)
    rows = []
    for name, times, wanted in (("idle", idle, 1_500), (f"{A_SECOND} changes/s", loaded, 10_000)):
        p50, p99 = statistics.median(times), sorted(times)[int(len(times) * 0.99) - 1]
        shown = f"p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms"
        rows.append(
            Row(
                f"commit to applied in the read model, {name}: p99",
                shown,
                "",
                p99 * 1000,
                wanted,
                " ms",
                at_most=True,
            )
        )
    return Part(rows, [])


async def _measure(bed: Bed, at_once: int, commits: int, pause: Any) -> Sequence[float]:
    """Returns the seconds of each change but the first, which waits until the processes are up."""
    await deploy(bed)
    async with (
        bed.contacts() as container,
        CosmosClient.from_connection_string(bed.cosmos.connection_string) as client,
    ):
        entries = client.get_database_client(bed.database).get_container_client("directory")

        async def late() -> list[float]:
            query = "SELECT VALUE c.lateSeconds FROM c WHERE c.type = 'entry' ORDER BY c.appliedAt"
            return [float(str(each)) async for each in entries.query_items(query)]

        with bed.worker(RELAY_POLL_DELAY_MS=_POLL_DELAY_MS), worker(bed):
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
        return (await late())[1:]


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

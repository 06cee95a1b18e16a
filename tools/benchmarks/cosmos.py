"""Measures the speed of devstack's Cosmos DB, with the SDK in this process and the server in another.

Prints rates, and the processor time that the SDK and the server spend on each operation: the ratio of the two is
comparable between machines. ``python -m tools.benchmarks.cosmos [--events N]``
"""

from tools.required import require

if __name__ == "__main__":
    require("benchmark")

import argparse
import asyncio
import os
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from devstack.testing import Service, running

KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Measured:
    """The times of one operation, in milliseconds."""

    name: str
    elapsed: float
    client_cpu: float
    server_cpu: float

    def __str__(self) -> str:
        share = self.server_cpu / self.client_cpu if self.client_cpu else 0.0
        return (
            f"{self.name:<28}{1000 / self.elapsed:>8.0f}/s {self.elapsed:>8.2f} ms"
            f"   SDK {self.client_cpu:>6.2f} ms   server {self.server_cpu:>6.2f} ms   server/SDK {share:>5.2f}"
        )


def server_cpu(pid: int) -> float:
    """Returns the seconds of processor time that the process has spent."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def client_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def memory_mb(pid: int, field: str = "VmHWM") -> float:
    """Returns the process's memory: ``VmHWM`` is the most that it ever held, ``VmRSS`` what it holds now."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise ValueError(field)


async def measure(name: str, pid: int, count: int, operation: Callable[[int], Awaitable[Any]]) -> Measured:
    await operation(-1)  # warms up connections and caches
    began, client, server = time.perf_counter(), client_cpu(), server_cpu(pid)
    for number in range(count):
        await operation(number)
    scale = 1000 / count
    return Measured(
        name,
        (time.perf_counter() - began) * scale,
        (client_cpu() - client) * scale,
        (server_cpu(pid) - server) * scale,
    )


def contact(number: int) -> dict[str, Any]:
    """Returns a document about the size of the app's own documents."""
    return {
        "id": f"contact-{number}",
        "partitionKey": f"contact-{number}",
        "type": "contact",
        "data": {
            "name": {"firstName": "John", "lastName": "Doe"},
            "email": "johndoe@contoso.com",
            "n": number,
        },
        "padding": "x" * 500,
        "ttl": -1,
    }


def event(number: int, ordinal: int = 0) -> dict[str, Any]:
    return {**contact(number), "id": f"event-{number}-{ordinal}", "type": "domainEvent", "ttl": 864_000}


async def single_operations(container: ContainerProxy, pid: int) -> None:
    def batch(number: int) -> Awaitable[Any]:
        operations: list[Any] = [
            ("create", ({**contact(number), "id": f"batch-{number}"},)),
            ("create", (event(number),)),
        ]
        return container.execute_item_batch(operations, f"contact-{number}")

    def query(_number: int) -> Awaitable[Any]:
        text = "SELECT * FROM c WHERE c.type = 'contact' ORDER BY c.data.n"
        part = {"Range": {"isMaxInclusive": False, "isMinInclusive": True, "max": "FF", "min": ""}}
        pages = container.query_items(text, feed_range=part, max_item_count=100).by_page()
        return first_page(pages)

    def feed(_number: int) -> Awaitable[Any]:
        pages = container.query_items_change_feed(start_time="Beginning", max_item_count=100).by_page()
        return first_page(pages)

    print(await measure("create", pid, 1000, lambda number: container.create_item(contact(number))))
    print(await measure("point read", pid, 1000, lambda _: container.read_item("contact-1", "contact-1")))
    print(await measure("batch of two", pid, 500, batch))
    print(await measure("ordered query page of 100", pid, 50, query))
    print(await measure("feed page of 100", pid, 50, feed))


async def first_page(pages: Any) -> list[Any]:
    return [item async for item in await anext(pages)]


async def backlog(container: ContainerProxy, pid: int, events: int) -> None:
    """Writes the events, then reads all of them through the feed, and compares the first pages with the last."""
    began = time.perf_counter()
    for start in range(0, events, 100):
        operations: list[Any] = [("create", (event(start, ordinal),)) for ordinal in range(100)]
        await container.execute_item_batch(operations, f"contact-{start}")
    written = time.perf_counter() - began
    print(f"{events} events written in batches of 100: {events / written:.0f}/s")
    pages = container.query_items_change_feed(start_time="Beginning", max_item_count=1000).by_page()
    times = []
    count = 0
    began = time.perf_counter()
    async for page in pages:
        count += len([item async for item in page])
        times.append(time.perf_counter() - began)
        began = time.perf_counter()
    assert count == events, f"{count} of {events} events came"
    tenth = max(1, len(times) // 10)
    first, last = (sum(part) / len(part) * 1000 for part in (times[:tenth], times[-tenth:]))
    print(f"{events} events read in pages of 1000: {events / sum(times):.0f}/s")
    print(f"page time: first tenth {first:.1f} ms, last tenth {last:.1f} ms, ratio {last / first:.2f}")
    print(f"server memory: {memory_mb(pid):.0f} MB at most")


async def run(service: Service, events: int) -> None:
    async with CosmosClient(service.address, KEY) as client:
        database = await client.create_database("bench")
        small = await database.create_container("small", PartitionKey("/partitionKey"), default_ttl=-1)
        await single_operations(small, service.pid)
        large = await database.create_container("large", PartitionKey("/partitionKey"), default_ttl=-1)
        await backlog(large, service.pid, events)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the speed of devstack's Cosmos DB.")
    parser.add_argument(
        "--events", type=int, default=100_000, help="size of the backlog (default %(default)s)"
    )
    events = parser.parse_args().events
    print(f"{os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        with running(Service("cosmos", data)) as service:
            asyncio.run(run(service, events))


if __name__ == "__main__":
    main()

"""The bed of every measurement: servers with an empty topic and container, a backlog, and the relay worker.

The rate of events is measured at the broker, which counts the messages it gets, so that the relay and a bare program
are measured in the same way.
"""

import asyncio
import sys
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_outbox.cosmos.aggregates.documents import DIGEST, digest
from devstack.testing import Process, Service
from tests.support.azure import CONTACTS, LEASES, PARKED, Topic

ROOT = Path(__file__).resolve().parents[2]
_BATCH = 100
_LOOK_SECONDS = 0.03
_PATIENCE_SECONDS = 300.0


@dataclass(frozen=True)
class Arrivals:
    """The broker's message count at each second, from the first messages to the last."""

    times: list[float]
    counts: list[int]

    @property
    def rate(self) -> float:
        """Messages in a second, once the first ones are there: the time before that is a start, not a speed."""
        return (self.counts[-1] - self.counts[0]) / max(self.times[-1] - self.times[0], 1e-9)


@dataclass
class Bed:
    """One empty deployment on the servers."""

    cosmos: Service
    servicebus: Service
    folder: Path
    database: str = field(default_factory=lambda: f"bench-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.topic = Topic(self.servicebus)

    @property
    def settings(self) -> dict[str, str]:
        """The settings of an app on this deployment."""
        return {
            "COSMOS": self.cosmos.connection_string,
            "COSMOS_DATABASE": self.database,
            "SERVICEBUS": self.servicebus.connection_string,
            "SERVICEBUS_TOPIC": self.topic.name,
        }

    async def deploy(self) -> None:
        """Creates the containers and the topic."""
        async with CosmosClient.from_connection_string(self.cosmos.connection_string) as client:
            database = await client.create_database(self.database)
            await database.create_container(CONTACTS, PartitionKey("/partitionKey"), default_ttl=-1)
            await database.create_container(LEASES, PartitionKey("/id"))
            await database.create_container(PARKED, PartitionKey("/partitionKey"), default_ttl=-1)
        await self.topic.create()

    @asynccontextmanager
    async def contacts(self) -> AsyncIterator[ContainerProxy]:
        async with CosmosClient.from_connection_string(self.cosmos.connection_string) as client:
            yield client.get_database_client(self.database).get_container_client(CONTACTS)

    async def store(self, documents: list[dict[str, Any]]) -> None:
        """Stores documents in batches by the partition keys of :func:`backlog`."""
        async with self.contacts() as container:
            for start in range(0, len(documents), _BATCH):
                batch: list[Any] = [("create", (each,)) for each in documents[start : start + _BATCH]]
                await container.execute_item_batch(batch, documents[start]["partitionKey"])

    @contextmanager
    def worker(self, **settings: str) -> Iterator[Process]:
        """Runs the relay in a process of its own."""
        with self._running("worker", ["-m", "cosmos_outbox", "relay"], settings) as process:
            yield process

    @contextmanager
    def bare_relay(self, poll_ms: int) -> Iterator[Process]:
        """Runs a program that polls the feed and sends, with the SDKs alone."""
        with self._running(
            "bare", ["-m", "tools.benchmarks.bare"], {"BARE_POLL_MS": str(poll_ms)}
        ) as process:
            yield process

    @contextmanager
    def _running(self, name: str, program: list[str], settings: dict[str, str]) -> Iterator[Process]:
        command, log = [sys.executable, *program], self.folder / f"{name}.log"
        process = Process(name, log, command, self.settings | settings, ROOT)
        try:
            yield process.start()
        finally:
            process.terminate()

    async def traffic(self) -> dict[str, int]:
        return await self.servicebus.faults.traffic()

    async def arrivals(self, count: int) -> Arrivals:
        """Watches until ``count`` more messages have been sent."""
        times: list[float] = []
        counts: list[int] = []
        deadline = time.perf_counter() + _PATIENCE_SECONDS
        url = f"{self.servicebus.addresses[-1].rstrip('/')}/_devstack/traffic"
        async with aiohttp.ClientSession() as session:
            before = None
            while not counts or counts[-1] < count:
                assert time.perf_counter() < deadline, f"{counts[-1:]} of {count} messages came"
                async with session.get(url) as answer:
                    messages = (await answer.json())["messages"]
                now, before = time.perf_counter(), messages if before is None else before
                if messages - before > (counts[-1] if counts else 0):
                    times.append(now)
                    counts.append(messages - before)
                await asyncio.sleep(_LOOK_SECONDS)
        return Arrivals(times, counts)


def backlog(contacts: int, each: int) -> list[dict[str, Any]]:
    """Returns event documents as a commit stores them, ``each`` of every contact.

    A hundred of them share a partition key, whatever their contact, so that they can be written a hundred at a time.
    The relay goes by the aggregate's id in the document.
    """
    documents: list[dict[str, Any]] = []
    for _ in range(contacts):
        contact = str(uuid.uuid4())
        for sequence in range(1, each + 1):
            partition = documents[-1]["partitionKey"] if len(documents) % _BATCH else str(uuid.uuid4())
            documents.append(_event(contact, sequence, partition))
    return documents


def _event(contact: str, sequence: int, partition: str) -> dict[str, Any]:
    event_id = str(uuid.uuid4())
    data = {
        "id": event_id,
        "contactId": contact,
        "action": "ContactNameUpdatedEvent",
        "sequence": sequence,
        "createdAt": "2026-03-01T13:30:00Z",
        "name": {"firstName": "Jane", "lastName": "Doe"},
        "correlationId": str(uuid.uuid4()),
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    item = {
        "id": event_id,
        "partitionKey": partition,
        "type": "domainEvent",
        "aggregateType": "contact",
        "aggregateId": contact,
        "data": data,
        "ttl": 864_000,
    }
    return item | {DIGEST: digest(item)}

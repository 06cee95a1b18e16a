"""One suite over every adapter of a port, against devstack."""

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol
from uuid import uuid4

import pytest
from azure.servicebus.aio import ServiceBusClient
from azure.storage.queue.aio import QueueServiceClient

from cosmos_outbox.cosmos import transaction
from cosmos_outbox.cosmos.aggregates.idempotency import CosmosClaims
from cosmos_outbox.cosmos.aggregates.unit_of_work import CosmosUnitOfWork, Lifetimes
from cosmos_outbox.cosmos.store.client import cosmos_client
from cosmos_outbox.cosmos.store.container import Container, Write, size_in_bytes
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.aggregate import Origin
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import CloudEvents, Publisher
from cosmos_outbox.servicebus.client import servicebus_client
from cosmos_outbox.servicebus.publisher import ServiceBusPublisher
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.transports import Webhook
from cosmos_outbox.storagequeue.client import queue_service
from cosmos_outbox.storagequeue.message import arrived
from cosmos_outbox.storagequeue.publisher import StorageQueuePublisher
from cosmos_outbox.webhook.publisher import WebhookPublisher
from devstack.testing import Service, running
from tests.contract.in_memory import (
    CosmosInMemory,
    MemoryLoop,
    ServiceInMemory,
    choose,
    cosmos_in_memory,
    loop_factories,
    servicebus_in_memory,
)
from tests.support.azure import (
    CLAIMS,
    CONTACTS,
    Queue,
    Topic,
    contacts_database,
    cosmos_connection,
    servicebus_connection,
)
from tests.support.contacts import ORIGIN
from tests.support.feed import EVENTS
from tests.support.receiver import OK, Answer, Got, Receiver, receiving, says


class CosmosStore:
    """The adapter of the unit of work. ``container`` may be replaced by one that fails."""

    def __init__(self, container: Container, *names: str) -> None:
        self.container = container
        self.names = names
        """Of the database and the container."""
        self.lifetimes = Lifetimes(events=600, requests=600)
        self.claim_names = names[0], CLAIMS
        self.claim_container = Container(container._client, *self.claim_names)
        self.claims = CosmosClaims(self.claim_container, 600)

    def make_claims_short(self) -> None:
        """From now on claims live for two seconds, which is less than the longest request."""
        self.claims = CosmosClaims(self.claim_container, 2)

    def open(self, origin: Origin = ORIGIN) -> CosmosUnitOfWork:
        return CosmosUnitOfWork(self.container, "test", origin, self.lifetimes)

    async def events(self, aggregate: AggregateKey) -> list[OutboxEvent]:
        query, token, found = "SELECT * FROM c WHERE c.aggregateType = @type", None, []
        while True:
            items, token = await self.container.page(query, {"@type": aggregate.type}, 100, token)
            found += [event for item in items if isinstance(event := EVENTS.event(item), OutboxEvent)]
            if token is None:
                mine = [event for event in found if event.aggregate == aggregate]
                return sorted(mine, key=lambda event: event.sequence or 0)


@pytest.fixture
async def store(cosmos_server: Service) -> AsyncIterator[CosmosStore]:
    async with contacts_database(cosmos_server) as database:
        client = cosmos_client(Connection(cosmos_connection(cosmos_server)), None)
        yield CosmosStore(Container(client, database.id, CONTACTS), database.id, CONTACTS)
        await client.close()


@pytest.fixture
def batch_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The size in bytes of each batch that is checked or stored from now on."""
    sizes: list[int] = []

    def noted(writes: Sequence[Write]) -> int:
        sizes.append(size_in_bytes(writes))
        return sizes[-1]

    monkeypatch.setattr(transaction, "size_in_bytes", noted)
    return sizes


class Broker(Protocol):
    """An adapter of the publisher, and what a subscriber got of one contact, in its order."""

    publisher: Publisher
    much: int
    """So many characters in an event make a large message, which can be sent."""
    absent: str
    """A part of what is said of what does not exist there."""

    async def received(self, contact_id: str, count: int) -> list[str]:
        """The ids of ``count`` messages at least, as the subscriber got them."""

    def missing(self) -> AbstractAsyncContextManager[Publisher]:
        """A publisher to what does not exist there."""

    def away(self) -> AbstractAsyncContextManager[Publisher]:
        """A publisher to a port at which nobody listens."""


_NOT_CREATED = "does not exist: create it as the deployment does"


class ServiceBusBroker:
    much = 100_000
    absent = _NOT_CREATED

    def __init__(self, client: ServiceBusClient, publisher: ServiceBusPublisher, topic: Topic) -> None:
        self.client = client
        self.publisher: Publisher = publisher
        self.topic = topic
        self.of = "contact"
        """The type of the aggregates."""

    async def received(self, aggregate_id: str, count: int) -> list[str]:
        found = await self.topic.receive_all(aggregate_id, count, of=self.of)
        return [str(message.message_id) for message in found]

    @asynccontextmanager
    async def missing(self) -> AsyncIterator[Publisher]:
        publisher = _to(self.client, "no-such-topic")
        yield publisher
        await publisher.close()

    @asynccontextmanager
    async def away(self) -> AsyncIterator[Publisher]:
        connection = servicebus_connection(self.topic.service)
        closed_port = connection.replace(f":{self.topic.service.port};", ":1;")
        async with servicebus_client(Connection(closed_port), None, retries=0) as client:
            publisher = _to(client, "topic")
            yield publisher
            await publisher.close()


def _to(client: ServiceBusClient, topic: str) -> ServiceBusPublisher:
    return ServiceBusPublisher(client, topic, service=CloudEvents("/test"), partitioned=False, senders=6)


class StorageQueueBroker:
    """Over Azurite: one queue."""

    much = 30_000
    absent = _NOT_CREATED

    def __init__(self, account: str, client: QueueServiceClient, queue: str) -> None:
        self.account, self.client, self.queue = account, client, queue
        self.publisher: Publisher = _to_queue(client, queue)
        self._found: defaultdict[str, list[str]] = defaultdict(list)

    async def received(self, contact_id: str, count: int) -> list[str]:
        """It waits for what is not there yet, and then looks whether there is more."""
        queue = self.client.get_queue_client(self.queue)
        for _ in range(200):
            messages = [each async for each in queue.receive_messages(messages_per_page=32, max_messages=32)]
            for each in messages:
                read = arrived(each.content, each.id, self.queue)
                self._found[read.delivery.properties["cloudEvents_subject"]].append(read.delivery.message_id)
            if not messages and len(self._found[contact_id]) >= count:
                break
            await asyncio.sleep(0 if messages else 0.05)
        return self._found[contact_id]

    @asynccontextmanager
    async def missing(self) -> AsyncIterator[Publisher]:
        yield _to_queue(self.client, "no-such-queue")

    @asynccontextmanager
    async def away(self) -> AsyncIterator[Publisher]:
        closed_port = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:1", self.account)
        async with queue_service(Connection(connection_string=closed_port), None) as client:
            yield _to_queue(client, self.queue)


def _to_queue(client: QueueServiceClient, queue: str) -> StorageQueuePublisher:
    return StorageQueuePublisher(client, [queue], service=CloudEvents("/test"), encoded=True, senders=6)


@asynccontextmanager
async def storage_queue(storage_server: Service) -> AsyncIterator[StorageQueueBroker]:
    async with queue_service(Connection(connection_string=storage_server.connection_string), None) as client:
        name = f"q-{uuid4().hex}"
        await client.create_queue(name)
        yield StorageQueueBroker(storage_server.connection_string, client, name)


@pytest.fixture
async def storagequeue_broker(storage_server: Service) -> AsyncIterator[StorageQueueBroker]:
    async with storage_queue(storage_server) as broker:
        yield broker


@asynccontextmanager
async def _posting(target: Webhook) -> AsyncIterator[WebhookPublisher]:
    publisher = WebhookPublisher(target, service=CloudEvents("/test"))
    yield publisher
    await publisher.close()


class WebhookBroker:
    """Over a receiver that takes whatever is not too large."""

    much = 100_000
    absent = "the receiver answers 404"

    def __init__(self, receiver: Receiver, publisher: WebhookPublisher) -> None:
        self.publisher: Publisher = publisher
        self._receiver = receiver
        receiver.answer = self._answer

    async def received(self, contact_id: str, count: int) -> list[str]:
        """What was answered is there."""
        taken = [each for each in self._receiver.got if len(each.body) <= LARGEST_POSTED]
        return [each.id for each in taken if json.loads(each.body)["subject"] == contact_id]

    @asynccontextmanager
    async def missing(self) -> AsyncIterator[Publisher]:
        async with _posting(self._receiver.target(url=f"{self._receiver.url}/no-such-path")) as publisher:
            yield publisher

    @asynccontextmanager
    async def away(self) -> AsyncIterator[Publisher]:
        async with _posting(self._receiver.target(url="http://127.0.0.1:1/events")) as publisher:
            yield publisher

    @staticmethod
    def _answer(got: Got) -> Answer:
        if "no-such-path" in got.line:
            return says(404)
        return says(413) if len(got.body) > LARGEST_POSTED else OK


LARGEST_POSTED = 256_000


@asynccontextmanager
async def webhook() -> AsyncIterator[WebhookBroker]:
    async with receiving() as receiver, _posting(receiver.target()) as publisher:
        yield WebhookBroker(receiver, publisher)


@pytest.fixture
async def webhook_broker() -> AsyncIterator[WebhookBroker]:
    async with webhook() as broker:
        yield broker


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """See :mod:`tests.contract.in_memory`."""
    return loop_factories(item)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """See :mod:`tests.contract.in_memory`."""
    if left_out := choose(items):
        config.hook.pytest_deselected(items=left_out)
        needless = set(left_out)
        items[:] = [item for item in items if item not in needless]


@pytest.fixture
async def cosmos_server(request: pytest.FixtureRequest) -> AsyncIterator[Service | CosmosInMemory]:
    """The one that all tests share, or one in memory, as the test's loop has it."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, MemoryLoop):
        with cosmos_in_memory(loop) as service:
            yield service
    else:
        yield request.getfixturevalue("cosmos_server")


@pytest.fixture(scope="module")
def _faulty_cosmos(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    partitions = getattr(request.module, "PARTITIONS", None)
    options = [] if partitions is None else [f"--partitions={partitions}"]
    with running(
        Service("cosmos", tmp_path_factory.mktemp("faulty") / "data", "--faults", *options)
    ) as service:
        yield service


@pytest.fixture
async def cosmos(request: pytest.FixtureRequest) -> AsyncIterator[Service | CosmosInMemory]:
    """One whose faults a test asks for, with as many ``PARTITIONS`` as the module says."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, MemoryLoop):
        partitions = getattr(request.module, "PARTITIONS", None)
        with cosmos_in_memory(loop, on_demand=True, partitions=partitions) as service:
            yield service
    else:
        process: Service = request.getfixturevalue("_faulty_cosmos")
        yield process
        await process.faults.clear()


@pytest.fixture
async def servicebus_server(request: pytest.FixtureRequest) -> AsyncIterator[Service | ServiceInMemory]:
    """The same for Service Bus."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, MemoryLoop):
        async with servicebus_in_memory(loop) as service:
            yield service
    else:
        yield request.getfixturevalue("servicebus_server")


@asynccontextmanager
async def service_bus(topic: Topic) -> AsyncIterator[ServiceBusBroker]:
    await topic.create()
    async with servicebus_client(Connection(servicebus_connection(topic.service)), None) as client:
        publisher = ServiceBusPublisher(
            client, topic.name, service=CloudEvents("/test"), partitioned=False, senders=6
        )
        yield ServiceBusBroker(client, publisher, topic)
        await publisher.close()
    await topic.delete()


@pytest.fixture
async def servicebus_broker(servicebus_server: Service) -> AsyncIterator[ServiceBusBroker]:
    async with service_bus(Topic(servicebus_server)) as broker:
        yield broker


@pytest.fixture
async def queue_broker(servicebus_server: Service) -> AsyncIterator[ServiceBusBroker]:
    async with service_bus(Queue(servicebus_server)) as broker:
        yield broker


QUEUE, STORAGEQUEUE = (pytest.param(each, marks=pytest.mark.long) for each in ("queue", "storagequeue"))
"""Of each transport there is one; the queue is one of Service Bus, and ``test_queue_of_service_bus`` has it too."""


@pytest.fixture(params=["servicebus", QUEUE, STORAGEQUEUE, "webhook"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Each transport, with the servers that it needs."""
    broker: Broker = request.getfixturevalue(f"{request.param}_broker")
    return broker

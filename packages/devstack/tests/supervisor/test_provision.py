"""What devstack.toml declares is there after a run, and a second run finds it and changes nothing."""

from datetime import timedelta
from uuid import uuid4

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from devstack import provision
from devstack.administration import administration_client
from devstack.app_file import Container, Cosmos, Queue, ServiceBus, Subscription, Topic
from devstack.service import CannotStart
from devstack.settings import cosmos_connection, servicebus_connection
from devstack.testing import Service


@pytest.fixture
def database() -> str:
    return f"db-{uuid4().hex}"


@pytest.fixture
def wanted(database: str) -> Cosmos:
    return Cosmos(
        containers=[
            Container(
                name="orders",
                setting="ORDERS",
                database=database,
                partition_key=["/customerId"],
                ttl=-1,
                composite_indexes=[["/city", "/id"]],
            ),
            Container(name="tenants", database=database, partition_key=["/tenant", "/user"]),
        ]
    )


@pytest.fixture
def topic() -> Topic:
    return Topic(
        name=f"topic-{uuid4().hex}",
        setting="ORDERS_TOPIC",
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window="PT3M",
        subscriptions=[
            Subscription(
                name="billing",
                setting="BILLING",
                requires_session=True,
                lock_duration="PT20S",
                max_delivery_count=4,
                dead_lettering_on_message_expiration=True,
            ),
            Subscription(name="archive"),
        ],
    )


@pytest.fixture
def cosmos(cosmos_server: Service) -> str:
    return cosmos_connection(cosmos_server.port)


@pytest.fixture
def servicebus(servicebus_server: Service) -> str:
    return servicebus_connection(int(servicebus_server.addresses[1].rpartition(":")[2]))


async def test_the_containers_are_made_as_they_are_declared(
    cosmos: str, wanted: Cosmos, database: str
) -> None:
    await provision.cosmos(cosmos, wanted)
    async with CosmosClient.from_connection_string(cosmos) as client:
        orders = await client.get_database_client(database).get_container_client("orders").read()
        tenants = await client.get_database_client(database).get_container_client("tenants").read()
    assert orders["partitionKey"]["paths"] == ["/customerId"]
    assert orders["defaultTtl"] == -1
    assert orders["indexingPolicy"]["compositeIndexes"] == [
        [{"path": "/city", "order": "ascending"}, {"path": "/id", "order": "ascending"}]
    ]
    assert tenants["partitionKey"]["paths"] == ["/tenant", "/user"]
    assert tenants["partitionKey"]["kind"] == "MultiHash"
    assert "defaultTtl" not in tenants


async def test_a_second_run_leaves_the_items_alone(cosmos: str, wanted: Cosmos, database: str) -> None:
    await provision.cosmos(cosmos, wanted)
    async with CosmosClient.from_connection_string(cosmos) as client:
        orders = client.get_database_client(database).get_container_client("orders")
        await orders.create_item({"id": "1", "customerId": "p"})
        await provision.cosmos(cosmos, wanted)
        await orders.read_item("1", "p")


async def test_a_container_with_another_key_or_without_ttl_is_refused(
    cosmos: str, wanted: Cosmos, database: str
) -> None:
    async with CosmosClient.from_connection_string(cosmos) as client:
        made = await client.create_database(database)
        await made.create_container("orders", PartitionKey(path="/id"), default_ttl=-1)
        with pytest.raises(CannotStart, match='"orders" exists, but not with the partition key /customerId'):
            await provision.cosmos(cosmos, wanted)
        await made.delete_container("orders")
        await made.create_container("orders", PartitionKey(path="/customerId"))
        with pytest.raises(CannotStart, match='"orders" exists without TTL; name another one in ORDERS'):
            await provision.cosmos(cosmos, wanted)


async def test_topics_subscriptions_and_queues_are_made_as_they_are_declared(
    servicebus: str, topic: Topic
) -> None:
    name = f"queue-{uuid4().hex}"
    wanted = ServiceBus(
        topics=[topic], queues=[Queue(name=name, max_delivery_count=3, requires_session=True)]
    )
    for _ in range(2):
        await provision.servicebus(servicebus, wanted)
    async with administration_client(servicebus) as client:
        made = await client.get_topic(topic.name)
        billing = await client.get_subscription(topic.name, "billing")
        archive = await client.get_subscription(topic.name, "archive")
        queue = await client.get_queue(name)
        assert made.requires_duplicate_detection
        assert made.duplicate_detection_history_time_window == timedelta(minutes=3)
        assert not made.enable_partitioning
        assert billing.requires_session
        assert billing.dead_lettering_on_message_expiration
        assert billing.lock_duration == timedelta(seconds=20)
        assert billing.max_delivery_count == 4
        assert not archive.requires_session
        assert queue.requires_session
        assert queue.max_delivery_count == 3
        await client.delete_topic(topic.name)
        await client.delete_queue(name)


async def test_what_is_there_with_other_settings_is_kept(servicebus: str, topic: Topic) -> None:
    """As with a Config.json that has the subscription, with a delivery count of its own."""
    async with administration_client(servicebus) as client:
        await client.create_topic(topic.name, requires_duplicate_detection=True)
        await client.create_subscription(topic.name, "billing", requires_session=True, max_delivery_count=3)
        await provision.servicebus(servicebus, ServiceBus(topics=[topic]))
        assert (await client.get_subscription(topic.name, "billing")).max_delivery_count == 3
        await client.delete_topic(topic.name)


async def test_entities_without_duplicate_detection_or_sessions_are_refused(
    servicebus: str, topic: Topic
) -> None:
    wanted = ServiceBus(topics=[topic])
    async with administration_client(servicebus) as client:
        await client.create_topic(topic.name)
        with pytest.raises(CannotStart, match=r"exists without duplicate detection; .* ORDERS_TOPIC"):
            await provision.servicebus(servicebus, wanted)
        await client.delete_topic(topic.name)
        await client.create_topic(topic.name, requires_duplicate_detection=True)
        await client.create_subscription(topic.name, "billing")
        with pytest.raises(CannotStart, match=r"exists without sessions; .* BILLING"):
            await provision.servicebus(servicebus, wanted)
        await client.delete_topic(topic.name)


async def test_a_service_that_is_not_there_is_one_line(topic: Topic) -> None:
    with pytest.raises(CannotStart, match=r'^cannot make the topic "topic-'):
        await provision.servicebus(servicebus_connection(1), ServiceBus(topics=[topic]))

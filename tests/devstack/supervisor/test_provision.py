"""What the settings name is there after a run, and a second run finds it and changes nothing."""

from uuid import uuid4

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from devstack import provision
from devstack.administration import administration_client
from devstack.service import CannotStart
from devstack.settings import Names, cosmos_connection, servicebus_connection
from tests.support.processes import Service


@pytest.fixture
def names() -> Names:
    unique = uuid4().hex
    return Names(
        f"db-{unique}",
        "contacts",
        "leases",
        "parked",
        f"topic-{unique}",
        "directory",
        topic_partitioned=False,
    )


@pytest.fixture
def cosmos(cosmos_server: Service) -> str:
    return cosmos_connection(cosmos_server.port)


@pytest.fixture
def servicebus(servicebus_server: Service) -> str:
    return servicebus_connection(int(servicebus_server.addresses[1].rpartition(":")[2]))


async def test_the_containers_are_made_as_the_app_needs_them(cosmos: str, names: Names) -> None:
    await provision.cosmos(cosmos, names)
    async with CosmosClient.from_connection_string(cosmos) as client:
        database = client.get_database_client(names.database)
        contacts = await database.get_container_client("contacts").read()
        leases = await database.get_container_client("leases").read()
        parked = await database.get_container_client("parked").read()
    assert contacts["partitionKey"]["paths"] == ["/partitionKey"]
    assert contacts["defaultTtl"] == -1
    assert leases["partitionKey"]["paths"] == ["/id"]
    assert leases["defaultTtl"] == -1
    assert parked["partitionKey"]["paths"] == ["/partitionKey"]
    assert parked["defaultTtl"] == -1


async def test_a_second_run_leaves_the_items_alone(cosmos: str, names: Names) -> None:
    await provision.cosmos(cosmos, names)
    async with CosmosClient.from_connection_string(cosmos) as client:
        contacts = client.get_database_client(names.database).get_container_client("contacts")
        await contacts.create_item({"id": "1", "partitionKey": "p"})
        await provision.cosmos(cosmos, names)
        await contacts.read_item("1", "p")


async def test_a_container_with_another_key_or_without_ttl_is_refused(cosmos: str, names: Names) -> None:
    async with CosmosClient.from_connection_string(cosmos) as client:
        database = await client.create_database(names.database)
        await database.create_container("contacts", PartitionKey(path="/id"), default_ttl=-1)
        with pytest.raises(
            CannotStart, match='"contacts" exists, but not with the partition key /partitionKey'
        ):
            await provision.cosmos(cosmos, names)
        await database.delete_container("contacts")
        await database.create_container("contacts", PartitionKey(path="/partitionKey"))
        with pytest.raises(
            CannotStart, match='"contacts" exists without TTL; name another one in COSMOS_CONTAINER'
        ):
            await provision.cosmos(cosmos, names)


async def test_the_topic_drops_duplicates_and_the_subscription_has_sessions(
    servicebus: str, names: Names
) -> None:
    for _ in range(2):
        await provision.servicebus(servicebus, names)
    async with administration_client(servicebus) as client:
        topic = await client.get_topic(names.topic)
        subscription = await client.get_subscription(names.topic, "directory")
        assert topic.requires_duplicate_detection
        assert not topic.enable_partitioning
        assert subscription.requires_session
        assert subscription.dead_lettering_on_message_expiration
        await client.delete_topic(names.topic)


async def test_what_is_there_with_other_settings_is_kept(servicebus: str, names: Names) -> None:
    """As with a Config.json that has the subscription, with a delivery count of its own."""
    async with administration_client(servicebus) as client:
        await client.create_topic(names.topic, requires_duplicate_detection=True)
        await client.create_subscription(
            names.topic, "directory", requires_session=True, max_delivery_count=3
        )
        await provision.servicebus(servicebus, names)
        assert (await client.get_subscription(names.topic, "directory")).max_delivery_count == 3
        await client.delete_topic(names.topic)


async def test_a_topic_without_duplicate_detection_and_a_subscription_without_sessions_are_refused(
    servicebus: str, names: Names
) -> None:
    async with administration_client(servicebus) as client:
        await client.create_topic(names.topic)
        with pytest.raises(CannotStart, match=r"exists without duplicate detection; .* SERVICEBUS_TOPIC"):
            await provision.servicebus(servicebus, names)
        await client.delete_topic(names.topic)
        await client.create_topic(names.topic, requires_duplicate_detection=True)
        await client.create_subscription(names.topic, "directory")
        with pytest.raises(CannotStart, match=r"exists without sessions; .* SERVICEBUS_SUBSCRIPTION"):
            await provision.servicebus(servicebus, names)
        await client.delete_topic(names.topic)


async def test_a_service_that_is_not_there_is_one_line(names: Names) -> None:
    with pytest.raises(CannotStart, match=r'^cannot make the topic "topic-'):
        await provision.servicebus(servicebus_connection(1), names)

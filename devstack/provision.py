"""What the settings name exists before the app starts, and a run that finds it there already changes nothing.

An entity that is there but could never work (its key, its sessions and its duplicate detection are fixed when
it is made) is refused in one line: the app would only fail later, and less clearly.
"""

from datetime import timedelta

from azure.core.exceptions import AzureError, ResourceExistsError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient, DatabaseProxy
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from devstack.administration import administration_client
from devstack.service import CannotStart
from devstack.settings import Names

LEASES_KEY, CONTACTS_KEY, PARKED_KEY = "/id", "/partitionKey", "/partitionKey"
NOTHING_EXPIRES_BY_DEFAULT = -1
"""TTL is on, and an item lives for ever unless it says otherwise
(https://learn.microsoft.com/azure/cosmos-db/nosql/time-to-live)."""


async def cosmos(connection: str, names: Names) -> None:
    """The database and its containers. Raises :class:`CannotStart`."""
    try:
        async with CosmosClient.from_connection_string(connection) as client:
            database = await client.create_database_if_not_exists(names.database)
            await _container(
                database, names.container, CONTACTS_KEY, "COSMOS_CONTAINER", NOTHING_EXPIRES_BY_DEFAULT
            )
            # TTL is on so that the lock of an instance that died while it made the leases goes away by itself.
            await _container(
                database,
                names.lease_container,
                LEASES_KEY,
                "COSMOS_LEASE_CONTAINER",
                NOTHING_EXPIRES_BY_DEFAULT,
            )
            await _container(
                database,
                names.parked_container,
                PARKED_KEY,
                "COSMOS_PARKED_CONTAINER",
                NOTHING_EXPIRES_BY_DEFAULT,
            )
    except AzureError as error:
        raise CannotStart(
            f'cannot make the database "{names.database}" and its containers "{names.container}", '
            f'"{names.lease_container}" and "{names.parked_container}": {_first_line(error)}'
        ) from error


async def servicebus(connection: str, names: Names) -> None:
    """The topic and its subscription; ``connection`` has the admin port. Raises :class:`CannotStart`."""
    try:
        async with administration_client(connection) as client:
            await _topic(client, names)
            await _subscription(client, names)
    except AzureError as error:
        raise CannotStart(
            f'cannot make the topic "{names.topic}" and its subscription "{names.subscription}": '
            f"{_first_line(error)}"
        ) from error


async def _container(
    database: DatabaseProxy, name: str, key: str, setting: str, default_ttl: int | None = None
) -> None:
    container = await database.create_container_if_not_exists(
        name, PartitionKey(path=key), default_ttl=default_ttl
    )
    properties = await container.read()
    if properties["partitionKey"]["paths"] != [key]:
        raise CannotStart(
            f'the container "{name}" exists, but not with the partition key {key}; name another in {setting}'
        )
    if default_ttl is not None and properties.get("defaultTtl") is None:
        raise CannotStart(f'the container "{name}" exists without TTL; name another one in {setting}')


async def _topic(client: ServiceBusAdministrationClient, names: Names) -> None:
    try:
        await client.create_topic(
            names.topic,
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window=timedelta(minutes=10),
            enable_partitioning=names.topic_partitioned,
        )
    except ResourceExistsError:
        topic = await client.get_topic(names.topic)
        if not topic.requires_duplicate_detection:
            raise CannotStart(
                f'the topic "{names.topic}" exists without duplicate detection; '
                "name another one in SERVICEBUS_TOPIC"
            ) from None


async def _subscription(client: ServiceBusAdministrationClient, names: Names) -> None:
    try:
        await client.create_subscription(
            names.topic,
            names.subscription,
            requires_session=True,
            lock_duration=timedelta(minutes=1),
            max_delivery_count=10,
            dead_lettering_on_message_expiration=True,
        )
    except ResourceExistsError:
        subscription = await client.get_subscription(names.topic, names.subscription)
        if not subscription.requires_session:
            raise CannotStart(
                f'the subscription "{names.subscription}" exists without sessions; '
                "name another one in SERVICEBUS_SUBSCRIPTION"
            ) from None


def _first_line(error: AzureError) -> str:
    return str(error.message or error).strip().partition("\n")[0]

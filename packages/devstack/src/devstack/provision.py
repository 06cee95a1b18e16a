"""What ``devstack.toml`` declares exists before the app starts, and a run that finds it there already changes nothing.

An entity that is there but could never work (its key, its sessions and its duplicate detection are fixed when
it is made) is refused in one line: the app would only fail later, and less clearly.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from azure.core.exceptions import AzureError, ResourceExistsError, ResourceNotFoundError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient, DatabaseProxy

from devstack.administration import administration_client
from devstack.app_file import Container, Cosmos, Queue, ServiceBus, Storage, Subscription, Topic
from devstack.service import CannotStart


async def cosmos(connection: str, wanted: Cosmos) -> None:
    """The databases and their containers. Raises :class:`CannotStart`."""
    async with CosmosClient.from_connection_string(connection) as client:
        await containers(client, wanted)


async def containers(client: CosmosClient, wanted: Cosmos) -> None:
    """The same, by a client that is open."""
    for each in wanted.containers:
        with _errors(f'the container "{each.name}" in the database "{each.database}"'):
            await _container(await client.create_database_if_not_exists(each.database), each)


async def servicebus(connection: str, wanted: ServiceBus) -> None:
    """Topics, subscriptions and queues; ``connection`` has the admin port. Raises :class:`CannotStart`."""
    async with administration_client(connection) as client:
        for topic in wanted.topics:
            what, name = f'the topic "{topic.name}"', topic.name
            await _exists(what, topic, partial(client.get_topic, name), partial(client.create_topic, name))
            get, create = partial(client.get_subscription, name), partial(client.create_subscription, name)
            for each in topic.subscriptions:
                subscription = f'the subscription "{each.name}" of {what}'
                await _exists(subscription, each, partial(get, each.name), partial(create, each.name))
        for queue in wanted.queues:
            what, name = f'the queue "{queue.name}"', queue.name
            await _exists(what, queue, partial(client.get_queue, name), partial(client.create_queue, name))


async def storage(connection: str, wanted: Storage) -> None:
    """Queues and blob containers. Raises :class:`CannotStart`."""
    # Imported here: most apps have none, and start without these SDKs.
    from azure.storage.blob.aio import BlobServiceClient  # noqa: PLC0415
    from azure.storage.queue.aio import QueueServiceClient  # noqa: PLC0415

    async with QueueServiceClient.from_connection_string(connection) as queues:
        for name in wanted.queues:
            with _errors(f'the queue "{name}"'), contextlib.suppress(ResourceExistsError):
                await queues.create_queue(name)
    async with BlobServiceClient.from_connection_string(connection) as blobs:
        for name in wanted.blob_containers:
            with _errors(f'the blob container "{name}"'), contextlib.suppress(ResourceExistsError):
                await blobs.create_container(name)


async def _container(database: DatabaseProxy, wanted: Container) -> None:
    paths = wanted.partition_key
    key = PartitionKey(paths[0]) if len(paths) == 1 else PartitionKey(paths, kind="MultiHash")
    container = await database.create_container_if_not_exists(
        wanted.name, key, default_ttl=wanted.ttl, indexing_policy=_indexing(wanted)
    )
    properties = await container.read()
    if properties["partitionKey"]["paths"] != paths:
        raise CannotStart(
            f'the container "{wanted.name}" exists, but not with the partition key {", ".join(paths)}; {wanted.rename}'
        )
    if wanted.ttl is not None and properties.get("defaultTtl") is None:
        raise CannotStart(f'the container "{wanted.name}" exists without TTL; {wanted.rename}')


def _indexing(wanted: Container) -> dict[str, Any] | None:
    """None: the service's own policy, which indexes each property by itself."""
    if wanted.indexes is None and not wanted.composite_indexes:
        return None
    included = ["/*"] if wanted.indexes is None else wanted.indexes
    return {
        "indexingMode": "consistent",
        "includedPaths": [{"path": path} for path in included],
        "excludedPaths": [] if "/*" in included else [{"path": "/*"}],
        "compositeIndexes": [
            [{"path": path, "order": "ascending"} for path in paths] for paths in wanted.composite_indexes
        ],
    }


async def _exists(
    what: str,
    wanted: Topic | Subscription | Queue,
    get: Callable[[], Awaitable[Any]],
    create: Callable[..., Awaitable[Any]],
) -> None:
    """It is asked for first: an emulator refuses to make what is beyond its limits, be it there or not."""
    with _errors(what):
        try:
            found = await get()
        except ResourceNotFoundError:
            try:
                found = await create(**_properties(wanted))
            except ResourceExistsError:  # made by another one since it was asked for
                found = await get()
    _check(what, wanted, found)


def _properties(wanted: Topic | Subscription | Queue) -> dict[str, Any]:
    return wanted.model_dump(exclude={"name", "setting", "subscriptions"}, exclude_none=True)


def _check(what: str, wanted: Topic | Subscription | Queue, found: Any) -> None:
    """What was fixed when it was made, and the app cannot do without, must be there; all else may differ."""
    for name, without in (
        ("requires_duplicate_detection", "duplicate detection"),
        ("requires_session", "sessions"),
    ):
        if getattr(wanted, name, False) and not getattr(found, name):
            raise CannotStart(f"{what} exists without {without}; {wanted.rename}")


@contextlib.contextmanager
def _errors(what: str) -> Iterator[None]:
    try:
        yield
    except AzureError as error:
        raise CannotStart(f"cannot make {what}: {_first_line(error)}") from error


def _first_line(error: AzureError) -> str:
    return str(error.message or error).strip().partition("\n")[0]

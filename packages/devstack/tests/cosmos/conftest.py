"""Each test gets a container of its own on a server that the worker's tests share."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient, DatabaseProxy

from cosmos.raw import KEY, Raw
from devstack.testing import Service, running

MakeContainer = Callable[..., Awaitable[ContainerProxy]]


@pytest.fixture(scope="session")
def faulty_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A Cosmos with the administrative calls and four physical partitions in each new container."""
    folder: Path = tmp_path_factory.mktemp("cosmos-faults") / "data"
    with running(Service("cosmos", folder, "--faults", "--partitions=4")) as service:
        yield service


@pytest.fixture
async def database(cosmos_server: Service) -> AsyncIterator[DatabaseProxy]:
    async with CosmosClient(cosmos_server.address, KEY) as client:
        yield await client.create_database(f"db-{uuid.uuid4()}")


@pytest.fixture
async def faulty_database(faulty_server: Service) -> AsyncIterator[DatabaseProxy]:
    async with CosmosClient(faulty_server.address, KEY) as client:
        yield await client.create_database(f"db-{uuid.uuid4()}")


@pytest.fixture
async def container(database: DatabaseProxy) -> ContainerProxy:
    """Partition key ``/pk``, TTL on, one physical partition."""
    return await database.create_container("items", PartitionKey("/pk"), default_ttl=-1)


@pytest.fixture
async def wide(faulty_database: DatabaseProxy) -> ContainerProxy:
    """Partition key ``/pk``, four physical partitions."""
    return await faulty_database.create_container("items", PartitionKey("/pk"), default_ttl=-1)


@pytest.fixture
async def raw(cosmos_server: Service) -> AsyncIterator[Raw]:
    async with Raw(cosmos_server.address) as client:
        yield client


@pytest.fixture
async def faulty_raw(faulty_server: Service) -> AsyncIterator[Raw]:
    async with Raw(faulty_server.address) as client:
        yield client

"""Each test gets a container of its own on a server that the worker's tests share."""

import contextlib
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient, DatabaseProxy
from azure.cosmos.exceptions import CosmosResourceNotFoundError

from cosmos.raw import KEY, Raw
from devstack.testing import Service, running


@pytest.fixture(scope="session")
def faulty_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A Cosmos with the administrative calls and four physical partitions in each new container."""
    folder: Path = tmp_path_factory.mktemp("cosmos-faults") / "data"
    with running(Service("cosmos", folder, "--faults", "--partitions=4")) as service:
        yield service


@contextlib.asynccontextmanager
async def database_at(endpoint: str) -> AsyncIterator[DatabaseProxy]:
    """A database of the test's own, which is deleted in the end."""
    async with CosmosClient(endpoint, KEY) as client:
        made = await client.create_database(f"db-{uuid.uuid4()}")
        yield made
        with contextlib.suppress(CosmosResourceNotFoundError):  # the test has deleted it
            await client.delete_database(made)


@pytest.fixture
async def database(cosmos_server: Service) -> AsyncIterator[DatabaseProxy]:
    async with database_at(cosmos_server.address) as made:
        yield made


@pytest.fixture
async def faulty_database(faulty_server: Service) -> AsyncIterator[DatabaseProxy]:
    async with database_at(faulty_server.address) as made:
        yield made


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

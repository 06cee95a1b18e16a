"""The tests of one worker share a Cosmos server; each test has containers of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from devstack.testing import Service
from tests.changefeed.in_memory import InMemory, in_memory
from tests.changefeed.support import Containers, containers_at
from tests.contract.in_memory import MemoryLoop


@pytest.fixture
async def containers(cosmos_server: Service) -> AsyncIterator[Containers]:
    async with containers_at(cosmos_server.address) as made:
        yield made


@pytest.fixture
async def memory(request: pytest.FixtureRequest) -> AsyncIterator[InMemory]:
    """Containers of a Cosmos in memory, in virtual time: an hour passes in a moment.

    They have as many physical partitions as the test's module says in ``PARTITIONS``.
    """
    partitions = getattr(request, "param", None) or getattr(request.module, "PARTITIONS", None)
    async with in_memory(partitions) as made:
        yield made


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A test that works in memory runs on the loop of that time."""
    if "memory" in getattr(item, "fixturenames", ()):
        return {"memory": MemoryLoop}
    return {"sockets": asyncio.new_event_loop}

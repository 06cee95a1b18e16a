"""The tests of one worker share a Cosmos server; each test has containers of its own."""

from collections.abc import AsyncIterator

import pytest

from devstack.testing import Service
from tests.changefeed.support import Containers, containers_at


@pytest.fixture
async def containers(cosmos_server: Service) -> AsyncIterator[Containers]:
    async with containers_at(cosmos_server.address) as made:
        yield made

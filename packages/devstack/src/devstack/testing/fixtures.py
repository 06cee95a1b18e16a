"""The services as fixtures: ``pytest_plugins = ["devstack.testing.fixtures"]``, or ``-p devstack.testing.fixtures``.

One server of each kind is shared by all tests of a process: each test makes databases and entities of its own, and none
kills, pauses or breaks it. A test that does starts a service of its own.
"""

from collections.abc import Iterator

import pytest

from devstack.testing.service import Service, running


@pytest.fixture(scope="session")
def cosmos_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A Cosmos DB with a database for each test that makes one."""
    with running(Service("cosmos", tmp_path_factory.mktemp("cosmos") / "data")) as service:
        yield service


@pytest.fixture(scope="session")
def servicebus_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A Service Bus with entities for each test that makes them."""
    with running(Service("servicebus", tmp_path_factory.mktemp("servicebus") / "data")) as service:
        yield service

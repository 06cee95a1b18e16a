"""The services as fixtures: ``pytest_plugins = ["devstack.testing.fixtures"]``, or ``-p devstack.testing.fixtures``.

``cosmos_server``, ``servicebus_server`` and ``storage_server`` are shared by all tests of a process: each test makes
databases and entities of its own, and none kills, pauses or breaks them. A test that does takes ``stack``, which is its
own.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from devstack.testing.service import Service, running
from devstack.testing.stack import Stack


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


@pytest.fixture(scope="session")
def storage_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A Blob and Queue Storage (Azurite) with containers and queues for each test that makes them."""
    with running(Service("storage", tmp_path_factory.mktemp("storage") / "data")) as service:
        yield service


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """A Cosmos DB and a Service Bus of the test's own, with faults on demand; its log files are in ``tmp_path``."""
    with Stack(tmp_path) as started:
        yield started

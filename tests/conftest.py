"""Every test runs on random ports and its own data, and sees nothing of the developer's environment."""

import gc
import os
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from devstack.testing import Service, running, warm
from tests.contract.in_memory import runs_in_memory
from tests.support import emulators, processes
from tests.support.memory import memory_lot
from tests.support.paths import ROOT

_OURS = (
    "COSMOS",
    "SERVICEBUS",
    "EVENT_TTL",
    "IDEMPOTENCY_",
    "AzureWebJobs",
    "AZURE_",
    "FUNCTIONS_",
    "WEBSITE_",
    "DEVSTACK_",
    "OTEL_",
    "APPLICATIONINSIGHTS_",
)
_WAITING = (
    "examples/",
    "packages/devstack/tests/functions/",
    "packages/devstack/tests/servicebus/",
    "packages/devstack/tests/supervisor/",
    "packages/devstack/tests/testing/",
    "tests/browser/",
    "tests/changefeed/",
    "tests/commands/",
    "tests/contract/",
    "tests/deploy/",
    "tests/e2e/",
    "tests/generated/",
    "tests/preflight/",
    "tests/testing/",
    "tests/torture/",
)
"""Whose tests wait for sockets, timers and other processes, most of their time, unless they run in memory."""

_FIRST = (
    "packages/devstack/tests/functions/test_servicebus_trigger",
    "tests/contract/test_subscriber_service",
)
"""Those that wait for longest: begun later, one of them would run alone at the end."""

_LAST = ("packages/simulation/tests/", "tests/models/")
"""Whose tests wait for nothing, so that both cores have something to do up to the end."""

# How long an example takes says how busy the machine is. New examples are drawn at each run; make test-all draws more.
_busy = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", _busy, max_examples=40)
settings.register_profile("thorough", _busy, max_examples=400)
settings.load_profile("quick")

gc.disable()  # until all tests are collected: nothing of that is garbage

for _name in [name for name in os.environ if name.startswith(_OURS)]:
    del os.environ[_name]
os.environ["DEVSTACK_NO_FSYNC"] = "1"

_OF_THE_LIBRARY = [
    file.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    for file in sorted((ROOT / "cosmos_outbox").rglob("*.py"))
    if not {"__init__.py", "__main__.py", "templates", "testing"} & {*file.parts}
]
"""What a service loads only when it needs it, too: else each process of a test would compile that anew."""

warm.import_ahead("infra.bootstrap", *_OF_THE_LIBRARY, "fastapi", "uvicorn")


def pytest_report_header() -> str:
    """Say whether the app is also run in Microsoft's runtime, which there is for Python 3.13 and later."""
    runs = sys.version_info >= (3, 13)
    return "tests/runtime: " + ("run" if runs else "NOT run, azure-functions-runtime needs Python 3.13")


def pytest_configure(config: pytest.Config) -> None:
    emulators.register(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    emulators.expect_failures(items)
    items.sort(key=_place)
    waiting = {item.path for item in items if item.nodeid.startswith(_WAITING)}
    config.stash[processes.WAITING] = waiting - {item.path for item in items if runs_in_memory(item)}


def _place(item: pytest.Item) -> int:
    return 2 if item.nodeid.startswith(_LAST) else 0 if item.nodeid.startswith(_FIRST) else 1


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(20_000, 10, 20)  # a test makes much and ends soon
    gc.enable()


@pytest.fixture(scope="session")
def cosmos_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A Cosmos shared by the tests of one worker: each makes a database of its own, none restarts it."""
    own = Service("cosmos", tmp_path_factory.mktemp("cosmos") / "data")
    with running(emulators.elsewhere("cosmos") or own) as service:
        yield service


@pytest.fixture(scope="session")
def servicebus_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A Service Bus shared by the tests of one worker: each makes entities of its own, none restarts it."""
    own = Service("servicebus", tmp_path_factory.mktemp("servicebus") / "data")
    with running(emulators.elsewhere("servicebus") or own) as service:
        yield service


@pytest.fixture
async def lot() -> AsyncIterator[CosmosParkingLot]:
    """An empty parking lot over devstack in memory, of the test's own."""
    async with memory_lot(CosmosParkingLot) as made:
        yield made

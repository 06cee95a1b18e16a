"""Every test runs on random ports and its own data, and sees nothing of the developer's environment."""

import gc
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from devstack.testing import Service, running, warm
from tests.support import emulators

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
_LONG = (
    "tests/torture/test_runs",
    "tests/browser/test_real",
    "tests/e2e/",
    "tests/commands/",
    "tests/changefeed/test_instances",
    "tests/contract/test_effects",
    "tests/contract/test_export",
    "tests/contract/test_idle_costs",
    "tests/contract/test_own_container",
    "tests/contract/test_parking",
    "tests/contract/test_publisher",
    "tests/contract/test_receiving_sessions",
    "tests/contract/test_republish",
    "tests/contract/test_subscriber_service",
    "tests/simulation/test_models",
    "tests/simulation/test_planted",
    "tests/simulation/test_seeds",
    "tests/testing/test_",
    "examples/",
    "packages/devstack/tests/supervisor/",
    "packages/devstack/tests/cosmos/test_durability",
    "packages/devstack/tests/functions/test_servicebus_trigger",
    "packages/devstack/tests/functions/test_start",
    "packages/devstack/tests/testing/test_stack",
)
"""Files that take long, most of it waiting for sockets and timers."""

_COMPUTES = ("tests/simulation/", "tests/models/")
"""Those that never wait."""

_BEGUN_BY: Mapping[bool | None, float] = {True: 0.7, False: 0.9, None: 1.0}
"""When the last of those that wait begins, of those that compute, and of all others: so no worker is left alone."""

# How long an example takes says how busy the machine is. New examples are drawn at each run; make test-all draws more.
_busy = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", _busy, max_examples=40)
settings.register_profile("thorough", _busy, max_examples=400)
settings.load_profile("quick")

gc.disable()  # until all tests are collected: nothing of that is garbage

for _name in [name for name in os.environ if name.startswith(_OURS)]:
    del os.environ[_name]
os.environ["DEVSTACK_NO_FSYNC"] = "1"

warm.import_ahead("infra.bootstrap", "cosmos_outbox.functions", "cosmos_outbox.cli.work")


def pytest_report_header() -> str:
    """Say whether the app is also run in Microsoft's runtime, which there is for Python 3.13 and later."""
    runs = sys.version_info >= (3, 13)
    return "tests/runtime: " + ("run" if runs else "NOT run, azure-functions-runtime needs Python 3.13")


def pytest_configure(config: pytest.Config) -> None:
    emulators.register(config)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    emulators.expect_failures(items)
    places = _places(items)
    items.sort(key=lambda item: places[item.path])  # stable: else the order stays


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(
        100_000, 20, 50
    )  # a test makes much and ends soon: looking for garbage takes a fifteenth of its time
    gc.enable()


def _places(items: list[pytest.Item]) -> dict[Path, float]:
    """The place of each file: those that wait lie between those that compute, so that no core has nothing to do."""
    of: dict[bool | None, dict[Path, None]] = {waits: {} for waits in _BEGUN_BY}
    for item in items:
        waits = True if _takes_long(item) else False if item.nodeid.startswith(_COMPUTES) else None
        of[waits].setdefault(item.path)
    return {
        file: _BEGUN_BY[waits] * place / len(files)
        for waits, files in of.items()
        for place, file in enumerate(files)
    }


def _takes_long(item: pytest.Item) -> bool:
    return item.nodeid.startswith(_LONG) or any(map(item.get_closest_marker, ("long", "deep")))


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

"""The tests also run against Microsoft's emulators: a known gap is expected there, and documented."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from azure.core import MatchConditions
from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient, DatabaseProxy

from devstack import provision
from devstack.administration import administration_client
from devstack.app_file import Queue, ServiceBus
from devstack.service import CannotStart
from devstack.settings import SERVICEBUS_CONNECTION
from devstack.testing import Service
from tests.support import emulators
from tests.support.gaps import gappy, gappy_management
from tests.support.paths import ROOT

pytest_plugins = ["pytester"]

CONFTEST = """
from tests.support import emulators

pytest_configure = emulators.register

def pytest_collection_modifyitems(items):
    emulators.expect_failures(items)
"""
TESTS = """
import pytest
from tests.support.emulators import Gap

@pytest.mark.known_gap(Gap.BATCH_LIMITS)
def test_gap():
    assert False

@pytest.mark.known_gap(Gap.BATCH_LIMITS)
def test_mended():
    pass

def test_no_gap():
    assert False
"""


@pytest.mark.parametrize(
    ("cosmos", "gaps", "outcomes"),
    [
        ("http://127.0.0.1:1/", "", {"failed": 1, "xfailed": 1, "xpassed": 1}),
        ("http://127.0.0.1:1/", "NO_304 BATCH_LIMITS", {"failed": 1, "xfailed": 1, "xpassed": 1}),
        ("http://127.0.0.1:1/", "NO_304", {"failed": 2, "passed": 1}),
        ("", "", {"failed": 2, "passed": 1}),
    ],
)
def test_a_known_gap_may_fail_on_an_emulator_and_nowhere_else(
    cosmos: str,
    gaps: str,
    outcomes: dict[str, int],
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TEST_COSMOS", cosmos)
    monkeypatch.setenv("TEST_GAPS", gaps)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    pytester.runpytest_inprocess("--strict-markers", "-p", "no:cacheprovider").assert_outcomes(**outcomes)


def test_every_gap_of_the_emulators_is_documented() -> None:
    document = (ROOT / "docs" / "internals" / "emulators.md").read_text()
    for gap in emulators.Gap:
        assert f"({gap})" in document, gap.name


def test_a_server_that_runs_elsewhere_is_neither_started_nor_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEST_SERVICEBUS", raising=False)
    assert emulators.elsewhere("servicebus") is None
    monkeypatch.setenv("TEST_SERVICEBUS", "amqp://127.0.0.1:5672 http://127.0.0.1:5300")
    server = emulators.elsewhere("servicebus")
    assert server is not None
    assert server.start().addresses == ["amqp://127.0.0.1:5672", "http://127.0.0.1:5300"]
    assert server.terminate() == 0
    with pytest.raises(AssertionError, match="own_stack"):
        server.kill()


@pytest.fixture
async def gappy_database(cosmos_server: Service) -> AsyncIterator[DatabaseProxy]:
    async with (
        gappy(cosmos_server.connection_string) as connection,
        CosmosClient.from_connection_string(connection) as client,
    ):
        database = await client.create_database(uuid4().hex)
        yield database
        await client.delete_database(database)


async def test_the_proxy_ignores_policy_and_update_of_a_container(gappy_database: DatabaseProxy) -> None:
    nothing: dict[str, Any] = {"indexingMode": "consistent", "excludedPaths": [{"path": "/*"}]}
    container = await gappy_database.create_container("c", PartitionKey("/pk"), indexing_policy=nothing)
    await gappy_database.replace_container(container, PartitionKey("/pk"), default_ttl=-1)
    found = await container.read()
    assert "defaultTtl" not in found
    assert found["indexingPolicy"]["includedPaths"] == [{"path": "/*"}]


async def test_the_proxy_ignores_conditions_tokens_and_the_size_of_pages(
    gappy_database: DatabaseProxy,
) -> None:
    container = await gappy_database.create_container("c", PartitionKey("/pk"))
    items = [await container.create_item({"id": each, "pk": "k"}) for each in "abc"]
    etag = items[0]["_etag"]
    condition: dict[str, Any] = {"etag": etag, "match_condition": MatchConditions.IfModified}
    assert (await container.read_item("a", "k", session_token="0:0#999", **condition))["_etag"] == etag
    wrong: dict[str, Any] = {"if_match_etag": '"another"'}
    await container.execute_item_batch([("replace", ("a", {"id": "a", "pk": "k"}), wrong)], "k")
    tokens: list[str] = []
    found = container.query_items(
        "SELECT * FROM c ORDER BY c.id",
        partition_key="k",
        max_item_count=1,
        response_hook=lambda headers, _: tokens.append(headers["x-ms-session-token"]),
    )
    assert [item["id"] async for item in await anext(found.by_page())] == ["a", "b", "c"]
    assert {token.partition(":")[2] for token in tokens} == {"0#0"}


async def test_what_is_there_may_have_fewer_deliveries_than_an_app_declares(
    servicebus_server: Service,
) -> None:
    """The proxy takes ten deliveries at most, and refuses to make what is there with more."""
    queue = Queue(name=uuid4().hex, max_delivery_count=11)
    async with gappy_management(servicebus_server.addresses[1]) as address:
        connection = SERVICEBUS_CONNECTION.format(address.partition("//")[2])
        with pytest.raises(CannotStart, match="MaxDeliveryCount"):
            await provision.servicebus(connection, ServiceBus(queues=[queue]))
        async with administration_client(connection) as admin:
            await admin.create_queue(queue.name, max_delivery_count=10)
            await provision.servicebus(connection, ServiceBus(queues=[queue]))
            await admin.delete_queue(queue.name)

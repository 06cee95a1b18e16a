"""An inspection reports an account that refuses, fails or answers unreadably, and leaves nothing open."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient, DatabaseProxy
from azure.cosmos.exceptions import CosmosHttpResponseError

from cosmos_outbox.cosmos.maintenance.inspection import CosmosInspection
from cosmos_outbox.cosmos.store.partition_key import PARTITION_KEY
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.errors import CannotCheck, Denied
from devstack.testing import Service
from tests.support.azure import CONTACTS, contacts_database, cosmos_connection
from tests.support.emulators import Gap


@pytest.fixture
async def database(cosmos_server: Service) -> AsyncIterator[DatabaseProxy]:
    async with contacts_database(cosmos_server) as made:
        yield made


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[CosmosClient]:
    """The clients that were closed."""
    clients: list[CosmosClient] = []
    close = CosmosClient.close

    async def noted(client: CosmosClient) -> None:
        clients.append(client)
        await close(client)

    monkeypatch.setattr(CosmosClient, "close", noted)
    return clients


def inspecting(server: Service, database: str, *, key: str | None = None, **more: Any) -> CosmosInspection:
    connection = cosmos_connection(server)
    if key is not None:
        connection = f"{connection.partition('AccountKey=')[0]}AccountKey={key};"
    return CosmosInspection(Connection(connection), None, database, **more)


class Response:
    """As much of a response as the SDK's errors read."""

    reason = ""
    status_code = 0

    def __init__(self, headers: Mapping[str, str]) -> None:
        self.headers = headers

    def text(self) -> str:
        return ""


def answer(status: int, headers: Mapping[str, str] | None = None) -> CosmosHttpResponseError:
    response = None if headers is None else Response(headers)
    return CosmosHttpResponseError(status_code=status, message="said so", response=response)


def raising(error: Exception) -> Callable[..., Awaitable[None]]:
    async def failed(*_: object, **__: object) -> None:
        raise error

    return failed


@pytest.mark.known_gap(Gap.INDEX_POLICY)
async def test_a_container_is_reported_as_it_is_deployed(
    cosmos_server: Service, database: DatabaseProxy, closed: list[CosmosClient]
) -> None:
    policy: dict[str, Any] = {
        "indexingMode": "consistent",
        "includedPaths": [{"path": "/type/?"}],
        "excludedPaths": [{"path": "/*"}],
        "compositeIndexes": [
            [{"path": "/a", "order": "ascending"}, {"path": "/b"}],
            [{"path": "/a", "order": "ascending"}, {"path": "/c", "order": "descending"}],
        ],
    }
    key = PartitionKey(["/tenantId", "/bookingId"], kind="MultiHash")
    none: dict[str, Any] = {"indexingMode": "none", "automatic": False}
    await database.create_container("inspected", key, default_ttl=60, indexing_policy=policy)
    await database.create_container("not indexed", PartitionKey("/partitionKey"), indexing_policy=none)
    async with inspecting(cosmos_server, database.id) as inspection:
        found = await inspection.container("inspected")
        bare = await inspection.container("not indexed")
        assert await inspection.container("no-such") is None
        assert not closed
    assert len(closed) == 1
    assert found is not None
    assert (found.partition_key, found.default_ttl) == (("/tenantId", "/bookingId"), 60)
    assert found.indexing.enabled
    assert "/type/?" in found.indexing.included
    assert "/*" in found.indexing.excluded
    assert found.indexing.composite == (("/a", "/b"),)
    assert bare is not None
    assert (bare.default_ttl, bare.indexing.enabled) == (None, False)


async def test_the_unique_keys_of_a_container_are_reported(
    cosmos_server: Service, database: DatabaseProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the service has them; devstack makes no container with one."""
    properties = await database.get_container_client(CONTACTS).read()
    keys = {"uniqueKeys": [{"paths": ["/email", "/city"]}, {"paths": ["/number"]}]}

    async def read(*_: object, **__: object) -> dict[str, Any]:
        return {**properties, "uniqueKeyPolicy": keys}

    async with inspecting(cosmos_server, database.id) as inspection:
        plain = await inspection.container(CONTACTS)
        monkeypatch.setattr(ContainerProxy, "read", read)
        found = await inspection.container(CONTACTS)
    assert plain is not None
    assert found is not None
    assert (plain.unique_keys, found.unique_keys) == ((), (("/email", "/city"), ("/number",)))


async def test_of_a_missing_database_each_container_is_missing(cosmos_server: Service) -> None:
    async with inspecting(cosmos_server, "no-such-database") as inspection:
        assert await inspection.container(CONTACTS) is None


async def test_a_denied_inspection_names_the_clock_difference_and_closes_all(
    cosmos_server: Service, closed: list[CosmosClient]
) -> None:
    ahead = timedelta(minutes=20)
    inspection = inspecting(cosmos_server, "any", key="D2y6", clock=lambda: utc_now() + ahead)
    with pytest.raises(Denied, match="Unauthorized"):
        async with inspection:
            pytest.fail("it was not entered")
    assert inspection.ahead is not None
    assert inspection.ahead.total_seconds() == pytest.approx(-1200, abs=60)
    assert len(closed) == 1


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (answer(403), Denied, "403"),
        (answer(503), CannotCheck, "answers with an error .*503"),
        (ClientAuthenticationError("no sign-in\nand more"), CannotCheck, "signing in failed: no sign-in$"),
        (AzureError("no way"), CannotCheck, "cannot be reached"),
        (ConnectionResetError(), CannotCheck, "cannot be reached"),
        (TimeoutError(), CannotCheck, "does not answer within"),
    ],
)
@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_access_to_items_is_tried_by_a_read_and_by_a_write(
    cosmos_server: Service,
    database: DatabaseProxy,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    kind: type[Exception],
    message: str,
) -> None:
    async with inspecting(cosmos_server, database.id) as inspection:
        await inspection.try_access(CONTACTS, PARTITION_KEY)
        await inspection.try_access("no-such", PARTITION_KEY)
        for call in ("read_item", "execute_item_batch"):
            with monkeypatch.context() as patch:
                patch.setattr(ContainerProxy, call, raising(error))
                with pytest.raises(kind, match=message):
                    await inspection.try_access(CONTACTS, PARTITION_KEY)
    assert [item async for item in database.get_container_client(CONTACTS).read_all_items()] == []


ANSWERED = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "ahead"),
    [
        ({"Date": format_datetime(ANSWERED + timedelta(seconds=90), usegmt=True)}, timedelta(seconds=90)),
        (
            {"date": format_datetime(ANSWERED - timedelta(hours=1), usegmt=True), "x": "y"},
            timedelta(hours=-1),
        ),
        ({"Date": "no date"}, None),
        ({"x-ms-date": format_datetime(ANSWERED, usegmt=True)}, None),
        ({}, None),
        (None, None),
    ],
)
async def test_how_far_the_clock_is_off_is_known_from_an_answers_date(
    cosmos_server: Service,
    monkeypatch: pytest.MonkeyPatch,
    headers: Mapping[str, str] | None,
    ahead: timedelta | None,
) -> None:
    monkeypatch.setattr(CosmosClient, "__aenter__", raising(answer(403, headers)))
    inspection = inspecting(cosmos_server, "any", clock=lambda: ANSWERED)
    with pytest.raises(Denied):
        async with inspection:
            pytest.fail("it was not entered")
    assert inspection.ahead == ahead

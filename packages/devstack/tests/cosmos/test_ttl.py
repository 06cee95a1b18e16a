"""An expired item is gone at once, everywhere. The service's clock is turned, so nobody waits."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos import PartitionKey, exceptions
from azure.cosmos.aio import ContainerProxy, CosmosClient, DatabaseProxy

from cosmos.raw import KEY, all_of
from devstack.cosmos import server
from devstack.cosmos.resources.service import Options, Service
from devstack.cosmos.storage import ttl as expiry
from devstack.cosmos.storage.catalogue import Catalogue
from devstack.cosmos.storage.model import Container
from devstack.cosmos.storage.partition_key import parse_definition
from devstack.cosmos.storage.store import Store
from devstack.cosmos.wire.auth import Authorizer
from devstack.testing import Service as Devstack
from devstack.testing import eventually


async def is_there(container: ContainerProxy, item_id: str) -> bool:
    try:
        await container.read_item(item_id, "a")
    except exceptions.CosmosResourceNotFoundError:
        return False
    return True


Turn = Callable[[float], Awaitable[None]]


@pytest.fixture
async def turn(faulty_server: Devstack) -> AsyncIterator[Turn]:
    """Lets the service's clock be so many seconds ahead."""
    yield faulty_server.faults.turn_clock
    await faulty_server.faults.turn_clock(0)


@pytest.mark.parametrize("ttl", [0, None, -2, 2147483648, "5", 1.5, True])
async def test_a_ttl_that_is_no_number_of_seconds_is_refused(container: ContainerProxy, ttl: Any) -> None:
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        await container.create_item({"id": "1", "pk": "a", "ttl": ttl})

    assert refused.value.status_code == 400
    assert not await is_there(container, "1")


@pytest.mark.parametrize("ttl", [-1, 1, 2147483647])
async def test_valid_ttls_are_kept_as_written(container: ContainerProxy, ttl: int) -> None:
    created = await container.create_item({"id": "1", "pk": "a", "ttl": ttl})

    assert created["ttl"] == ttl


async def test_an_expired_item_is_gone_from_reads_queries_batches_and_the_feed(
    wide: ContainerProxy, turn: Turn
) -> None:
    container = wide
    await container.create_item({"id": "short", "pk": "a", "ttl": 100})
    await container.create_item({"id": "stays", "pk": "a"})
    assert await is_there(container, "short")

    await turn(101)

    assert not await is_there(container, "short")
    assert [item["id"] async for item in container.query_items("SELECT * FROM c", partition_key="a")] == [
        "stays"
    ]
    count = container.query_items("SELECT VALUE COUNT(1) FROM c", partition_key="a")
    assert await all_of(count) == [1]
    assert [item["id"] async for item in container.query_items_change_feed(start_time="Beginning")] == [
        "stays"
    ]
    with pytest.raises(exceptions.CosmosBatchOperationError) as failed:
        await container.execute_item_batch([("replace", ("short", {"id": "short", "pk": "a"}))], "a")
    assert failed.value.status_code == 404
    created = await container.execute_item_batch([("create", ({"id": "short", "pk": "a"},))], "a")
    assert created[0]["statusCode"] == 201


async def test_a_rewrite_starts_the_ttl_anew(wide: ContainerProxy, turn: Turn) -> None:
    await wide.create_item({"id": "rewritten", "pk": "a", "ttl": 400})
    await wide.create_item({"id": "left", "pk": "a", "ttl": 400})
    await turn(300)
    await wide.upsert_item({"id": "rewritten", "pk": "a", "ttl": 400})
    await turn(500)
    assert [await is_there(wide, each) for each in ("rewritten", "left")] == [True, False]
    await turn(800)
    assert not await is_there(wide, "rewritten")


async def test_without_a_default_ttl_items_do_not_expire_and_with_one_they_do(
    faulty_database: DatabaseProxy, turn: Turn
) -> None:
    database = faulty_database
    off = await database.create_container("off", PartitionKey("/pk"))
    on = await database.create_container("on", PartitionKey("/pk"), default_ttl=100)
    await off.create_item({"id": "1", "pk": "a", "ttl": 100})
    await on.create_item({"id": "1", "pk": "a"})
    await on.create_item({"id": "never", "pk": "a", "ttl": -1})

    await turn(101)

    assert not await is_there(on, "1")
    assert await is_there(on, "never")
    assert await is_there(off, "1")
    await database.replace_container("off", PartitionKey("/pk"), default_ttl=-1)
    assert not await is_there(off, "1")
    await database.replace_container("on", PartitionKey("/pk"))
    await on.create_item({"id": "2", "pk": "a", "ttl": 1})
    assert "defaultTtl" not in await on.read()


@pytest.mark.parametrize("ttl", [0, -5, "1"])
async def test_a_containers_default_is_checked_too(database: DatabaseProxy, ttl: Any) -> None:
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        await database.create_container("bad", PartitionKey("/pk"), default_ttl=ttl)

    assert refused.value.status_code == 400


async def test_a_purge_that_fails_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk was full for a while."""
    purge, asked = expiry.purge, list[int]()

    def once_failing(run: sqlite3.Connection, container: Container, now: int) -> int:
        asked.append(now)
        if len(asked) == 1:
            raise sqlite3.OperationalError("disk I/O error")
        return purge(run, container, now)

    monkeypatch.setattr(expiry, "purge", once_failing)
    monkeypatch.setattr(server, "PURGE_SECONDS", 0.01)
    async with (
        server.serving(0, tmp_path, Options(), Authorizer(accept_entra=False)) as address,
        CosmosClient(address, KEY) as client,
    ):
        database = await client.create_database("d")
        await database.create_container("c", PartitionKey("/pk"), default_ttl=-1)
        await eventually(lambda: len(asked) > 1)


async def test_a_container_that_is_deleted_during_a_purge_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    purge, purged = expiry.purge, list[str]()
    with Store.opened(tmp_path) as store:
        service = Service(store, Catalogue(store))

        def change(act: Callable[[sqlite3.Connection], object]) -> None:
            with store.transaction() as run:
                act(run)
            service.catalogue.reload()

        def deleting_the_second(run: sqlite3.Connection, container: Container, now: int) -> int:
            purged.append(container.id)
            if container.id == "first":
                second = service.catalogue.container("d", "second")
                change(lambda run: service.catalogue.remove_container(run, second, None))
            return purge(run, container, now)

        change(lambda run: service.catalogue.add_database(run, "d", 1))
        for name in ("first", "second", "third"):
            change(partial(add, service, name))
        monkeypatch.setattr(expiry, "purge", deleting_the_second)

        await server.purge_expired(service)

    assert purged == ["first", "third"]


def add(service: Service, name: str, run: sqlite3.Connection) -> None:
    database = service.catalogue.database("d")
    properties = {"partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}, "defaultTtl": -1}
    key = parse_definition(properties)
    service.catalogue.add_container(run, database, name, properties, key=key, partitions=1, timestamp=1)

"""The expiry of a real container is stopped and resumed; nothing else of the container changes meanwhile."""

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.cosmos.upkeep.expiry import Expiry
from cosmos_outbox.wiring.service import Service as Declared
from devstack.testing import Service, eventually
from tests.support.azure import cosmos_connection, database_of
from tests.support.own import BOOKINGS, HIERARCHICAL, TENANT


@pytest.mark.parametrize("own", [TENANT, HIERARCHICAL], ids=["one path", "two paths"])
async def test_while_the_expiry_is_stopped_what_is_overdue_is_counted_and_stays(
    cosmos_server: Service, own: Declared
) -> None:
    key = {"tenantId": "acme", "bookingId": "b-1"}
    async with (
        database_of(cosmos_server, own) as database,
        CosmosClient.from_connection_string(cosmos_connection(cosmos_server)) as client,
    ):
        bookings = database.get_container_client(BOOKINGS)
        before = await bookings.read()
        expiry = Expiry(database, bookings, Container(client, database.id, BOOKINGS, paths=own.paths))
        assert not await expiry.is_stopped()

        await expiry.stop()
        assert await expiry.is_stopped()
        for name, more in {
            "soon": {"ttl": 1},
            "later": {"ttl": 600},
            "never": {"ttl": -1},
            "no-ttl": {},
        }.items():
            await bookings.create_item({"id": name, **key, **more})

        async def one_is_overdue() -> bool:
            return await expiry.overdue() == 1

        await eventually(one_is_overdue)
        assert {item["id"] async for item in bookings.read_all_items()} == {
            "soon",
            "later",
            "never",
            "no-ttl",
        }

        await expiry.resume()
        assert not await expiry.is_stopped()
        assert {item["id"] async for item in bookings.read_all_items()} == {"later", "never", "no-ttl"}
        changes = {"_etag", "_ts"}
        after = await bookings.read()
        assert {name: after[name] for name in after if name not in changes} == {
            name: before[name] for name in before if name not in changes
        }

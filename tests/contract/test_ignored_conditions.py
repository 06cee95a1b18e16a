"""Behind a store that ignores ``If-Match`` in batches, what only reads destroys nothing."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from cosmos_outbox.cosmos.maintenance.inspection import CosmosInspection
from cosmos_outbox.cosmos.store.client import cosmos_client
from cosmos_outbox.cosmos.store.container import Container, Write
from cosmos_outbox.cosmos.store.partition_key import PARTITION_KEY
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.errors import IgnoresConditions, Misconfigured
from cosmos_outbox.worker import relay, subscriber
from devstack.testing import Service
from domain.contact import Contact
from tests.contract.conftest import CosmosStore
from tests.support.azure import CONTACTS, contacts_database, cosmos_connection
from tests.support.contacts import DETAILS, NOON
from tests.support.emulators import Gap
from tests.support.gaps import gappy
from tests.support.use_cases import wire

pytestmark = pytest.mark.needs_a_socket("the proxy between the SDK and devstack listens on one")


NO_BROKER = (
    "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=n;SharedAccessKey=a2V5;UseDevelopmentEmulator=true;"
)


@pytest.fixture
async def gappy_account(cosmos_server: Service) -> AsyncIterator[str]:
    async with gappy(cosmos_connection(cosmos_server), [Gap.BATCH_IGNORES_ETAG]) as connection:
        yield connection


@pytest.fixture
async def store(cosmos_server: Service, gappy_account: str) -> AsyncIterator[CosmosStore]:
    async with contacts_database(cosmos_server) as database:
        client = cosmos_client(Connection(gappy_account), None)
        yield CosmosStore(Container(client, database.id, CONTACTS), database.id, CONTACTS)
        await client.close()


async def test_the_gap_is_there(store: CosmosStore) -> None:
    await store.container.execute("key", [Write.create({"id": "a", "partitionKey": "key"})])
    changed = {"id": "a", "partitionKey": "key", "changed": True}
    await store.container.execute("key", [Write.replace(changed, '"a version that no item has"')])
    found = await store.container.read("a", "key")
    assert found is not None
    assert found["changed"] is True


async def test_a_consistent_read_leaves_the_aggregate_as_it_is(store: CosmosStore) -> None:
    contact = Contact.create(DETAILS, at=NOON)
    async with store.open() as work:
        work.add(contact)
        await work.commit()
    for _ in range(2):
        async with store.open() as work:
            found = await work.get(Contact, str(contact.id), newest=True)
        assert found.aggregate.state.email == DETAILS.email


async def test_a_store_of_which_it_is_not_known_yet_is_asked_once(store: CosmosStore) -> None:
    with pytest.raises(Misconfigured, match="ignores If-Match"):
        await store.container.check()
    assert await store.container.page("SELECT * FROM c", {}, 10, None) == ([], None)


async def test_no_worker_begins_on_it(cosmos_server: Service, gappy_account: str) -> None:
    async with contacts_database(cosmos_server) as database:
        settings = {"COSMOS": gappy_account, "COSMOS_DATABASE": database.id, "SERVICEBUS": NO_BROKER}
        for work in (relay.run, subscriber.run):
            with pytest.raises(Misconfigured, match="ignores If-Match"):
                await work(wire(settings), asyncio.Event())


async def test_preflight_says_so_and_leaves_nothing_behind(store: CosmosStore, gappy_account: str) -> None:
    async with CosmosInspection(Connection(gappy_account), None, store.names[0]) as inspection:
        with pytest.raises(IgnoresConditions):
            await inspection.try_access(CONTACTS, PARTITION_KEY)
    assert await store.container.page("SELECT * FROM c", {}, 10, None) == ([], None)

"""Who asks again for what has changed since a list's ``asOf`` misses nothing that its replicas had not got yet."""

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.http import listing
from cosmos_outbox.outbox.selection import Selection
from devstack.testing import Service
from domain.contact import Contact
from tests.contract.conftest import CosmosStore
from tests.support.azure import CONTACTS, contacts_database
from tests.support.contacts import DETAILS, NOON

pytestmark = pytest.mark.own_stack


async def changed(store: CosmosStore, since: Selection) -> list[str]:
    async with store.open() as work:
        return [each.aggregate_id for each in (await work.page(Contact, 50, None, since)).items]


async def test_a_change_that_a_replica_had_not_got_comes_with_the_next_look(cosmos: Service) -> None:
    contact = Contact.create(DETAILS, at=NOON)
    async with (
        contacts_database(cosmos) as database,
        CosmosClient.from_connection_string(cosmos.connection_string) as ours,
        CosmosClient.from_connection_string(cosmos.connection_string) as elsewhere,
    ):
        written, read = (
            CosmosStore(Container(each, database.id, CONTACTS), database.id, CONTACTS)
            for each in (ours, elsewhere)
        )
        await cosmos.faults.add("lag", container=CONTACTS, seconds=600, count=None)
        async with written.open() as work:
            work.add(contact)
            await work.commit()
        as_of = listing.as_of(None)
        assert await changed(read, Selection(changed_since=as_of)) == []
        await cosmos.faults.clear()
        assert await changed(read, Selection(changed_since=as_of)) == [str(contact.id)]

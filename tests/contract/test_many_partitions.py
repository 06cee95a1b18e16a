"""A consistent read of a container of many partitions renews their tokens side by side."""

import pytest

from cosmos_outbox.cosmos.store.client import cosmos_client
from cosmos_outbox.cosmos.store.consistent_reads import renew_tokens
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.settings.connections import Connection
from devstack.testing import Service
from tests.support.azure import CONTACTS, contacts_database, cosmos_connection

PARTITIONS = 40
pytestmark = pytest.mark.needs_a_socket("requests wait side by side")


async def test_the_tokens_of_many_partitions_are_renewed_side_by_side(cosmos: Service) -> None:
    async with contacts_database(cosmos) as database:
        client = cosmos_client(Connection(cosmos_connection(cosmos)), None)
        container = Container(client, database.id, CONTACTS)
        feed = client.get_database_client(database.id).get_container_client(CONTACTS)
        await renew_tokens(container, feed)  # opens the connections
        await cosmos.faults.add("slow", seconds=0.3, count=PARTITIONS, method="POST")
        began = monotonic()
        tokens = await renew_tokens(container, feed)
        took = monotonic() - began
        await client.close()
    assert len(tokens.split(",")) == PARTITIONS
    assert took < PARTITIONS * 0.3 / 2, "one after the other it takes the sum"

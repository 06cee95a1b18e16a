"""Read-your-writes holds while a physical partition is split, in whatever order the answers come.

Every replica lags, so a read without the session token of a write does not see the write.
"""

from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.cosmos.store.writes import Write
from devstack.testing import Service, running
from tests.support.azure import CONTACTS, contacts_database

pytestmark = pytest.mark.own_stack


class LateOnce(Container):
    """The answer to the first write comes after the partition is split and the second write is answered."""

    cosmos: Service
    database: str
    writes = 0

    async def _execute(self, partition_key: Key, writes: Sequence[Write]) -> tuple[list[str], str | None]:
        self.writes += 1
        if self.writes > 1:
            return await super()._execute(partition_key, writes)
        etags, of_the_parent = await super()._execute(partition_key, writes)
        await self.cosmos.faults.split(self.database, CONTACTS, "0")
        await self.execute(partition_key, [note("second", partition_key)])
        self._sessions.merge(self.paths.text(partition_key), of_the_parent)
        return etags, of_the_parent


def note(item_id: str, partition_key: Key) -> Write:
    return Write.create({"id": item_id, "partitionKey": partition_key, "type": "note"})


@pytest.fixture(scope="module")
def cosmos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(Service("cosmos", tmp_path_factory.mktemp("cosmos") / "data", "--faults")) as service:
        yield service


@pytest.fixture
async def container(cosmos: Service) -> AsyncIterator[LateOnce]:
    async with contacts_database(cosmos) as database:
        client = CosmosClient.from_connection_string(cosmos.connection_string)
        container = LateOnce(client, database.id, CONTACTS)
        container.cosmos, container.database = cosmos, database.id
        yield container
        await client.close()


async def test_a_late_answer_of_the_parent_hides_no_write_of_the_child(
    container: LateOnce, cosmos: Service
) -> None:
    await container.execute("key", [note("first", "key")])
    await cosmos.faults.add("lag", container=CONTACTS, seconds=600, count=None)
    assert await container.read("first", "key") is not None
    assert await container.read("second", "key") is not None

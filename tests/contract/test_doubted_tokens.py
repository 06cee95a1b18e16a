"""What a consistent read has proven stays proven when another request doubts the renewed session token.

Every replica lags, so a read without a token sees nothing of what a test stored. The requests of a process share the
tokens.
"""

from collections.abc import AsyncIterator, Sequence
from uuid import uuid4

import pytest

from cosmos_outbox.cosmos.aggregates.aggregates import Aggregates
from cosmos_outbox.cosmos.store.client import cosmos_client
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.outbox.aggregate import Receipt
from cosmos_outbox.settings.connections import Connection
from devstack.testing import Service
from domain.contact import Contact
from tests.contract.conftest import CosmosStore
from tests.support.azure import CONTACTS, contacts_database
from tests.support.contacts import DETAILS, LATER, ORIGIN
from tests.support.use_cases import Contacts

pytestmark = pytest.mark.own_stack


class Shared(Container):
    """Another request of the process reads right after the first refusal, on a replica that is behind its token."""

    cosmos: Service
    refused = False

    async def _execute(self, partition_key: Key, writes: Sequence[Write]) -> tuple[list[str], str | None]:
        try:
            return await super()._execute(partition_key, writes)
        except StoreFailed:
            if not self.refused:
                self.refused = True
                await self._read_on_a_replica_that_is_behind(partition_key)
            raise

    async def _read_on_a_replica_that_is_behind(self, partition_key: Key) -> None:
        await self.cosmos.faults.add("session-not-available", count=2, operation="read")
        with pytest.raises(StoreFailed):
            await self.read("what another request reads", partition_key)
        assert [fault["kind"] for fault in await self.cosmos.faults.pending()] == ["lag"]


@pytest.fixture
async def store(cosmos: Service) -> AsyncIterator[CosmosStore]:
    async with contacts_database(cosmos) as database:
        client = cosmos_client(Connection(cosmos.connection_string), None)
        yield CosmosStore(Container(client, database.id, CONTACTS), database.id, CONTACTS)
        await client.close()


async def lag(cosmos: Service) -> None:
    await cosmos.faults.add("lag", container=CONTACTS, seconds=600, count=None)


def another(store: CosmosStore, cosmos: Service) -> CosmosStore:
    """Another instance, which has no session yet."""
    container = Shared(store.container._client, *store.names)
    container.cosmos = cosmos
    return CosmosStore(container, *store.names)


def service(store: CosmosStore) -> Contacts:
    return Contacts(Aggregates(store.open, store.claims), clock=lambda: LATER, new_id=uuid4)


async def create(store: CosmosStore) -> Receipt[Contact]:
    return await service(store).create(DETAILS, ORIGIN)


async def test_a_contact_that_is_there_is_not_called_missing(store: CosmosStore, cosmos: Service) -> None:
    contact_id = (await create(store)).aggregate.id
    mine = another(store, cosmos)
    await lag(cosmos)
    await service(mine).delete(contact_id, ORIGIN)


async def test_an_own_commit_is_recognized(store: CosmosStore, cosmos: Service) -> None:
    """The SDK repeats a batch whose answer was lost, and the answer is a 412 to the repetition."""
    contact_id = (await create(store)).aggregate.id
    mine = another(store, cosmos)
    async with mine.open() as work:
        found = await work.get(Contact, str(contact_id))
        contact, etag = found.aggregate, found.etag
        contact.describe("ours", at=LATER)
        await lag(cosmos)
        await cosmos.faults.add("drop-after-commit", operation="batch", container=CONTACTS)
        receipt = (await work.commit()).receipt(contact)
    assert receipt.etag not in (None, etag)
    assert [event.sequence for event in await store.events(contact.key)] == [1, 2]

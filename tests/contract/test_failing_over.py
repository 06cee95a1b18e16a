"""A region that takes no writes for a while, and answers that do not say which state they are of: nothing is lost.

Both come from the service itself here, through the SDK with its own repetitions. All replicas lag as far as they may.
"""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from cosmos_outbox.cosmos.store.client import CosmosClient, cosmos_client
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.outbox.aggregate import Receipt
from cosmos_outbox.outbox.errors import OutcomeUnknown, PreconditionFailed, Unavailable
from cosmos_outbox.settings.connections import Connection
from devstack.testing import Service
from domain.contact import Contact
from domain.values import Name
from tests.contract.conftest import CosmosStore
from tests.support.azure import CONTACTS, contacts_database
from tests.support.contacts import DETAILS, LATER, NOON

pytestmark = pytest.mark.own_stack


@pytest.fixture
async def client(cosmos: Service) -> AsyncIterator[CosmosClient]:
    """The service's own, which notes at the transport whether an answer was lost."""
    client = cosmos_client(Connection(cosmos.connection_string), None)
    yield client
    await client.close()


@pytest.fixture
async def store(cosmos: Service, client: CosmosClient) -> AsyncIterator[CosmosStore]:
    async with contacts_database(cosmos) as database:
        yield CosmosStore(Container(client, database.id, CONTACTS), database.id, CONTACTS)


async def create(store: CosmosStore) -> UUID:
    async with store.open() as work:
        contact = Contact.create(DETAILS, at=NOON)
        work.add(contact)
        await work.commit()
        return contact.id


async def rename(store: CosmosStore, contact_id: UUID, last_name: str) -> Receipt[Contact]:
    async with store.open() as work:
        contact = (await work.get(Contact, str(contact_id))).aggregate
        contact.rename(Name(first_name="Jane", last_name=last_name), at=LATER)
        return (await work.commit()).receipt(contact)


async def failing_over(cosmos: Service, container: str, *, lost: int = 1, forbidden: int | None = 1) -> None:
    """The next answer to a batch is lost, then the region takes no writes, and no refusal has a session token."""
    batches: dict[str, Any] = {"container": container, "operation": "batch"}
    await cosmos.faults.add("lag", seconds=600, count=None, container=container)
    if lost:
        await cosmos.faults.add("drop-after-commit", count=lost, **batches)
    await cosmos.faults.add("write-forbidden", count=forbidden, **batches)
    if forbidden:
        await cosmos.faults.add("no-session-token", count=None, **batches)


async def events(store: CosmosStore, contact_id: UUID) -> list[int | None]:
    aggregate = Contact.create(DETAILS, at=NOON, id=contact_id).key
    return [event.sequence for event in await store.events(aggregate)]


@pytest.mark.long
async def test_an_own_commit_is_recognized_after_a_region_failed_over(
    cosmos: Service, store: CosmosStore
) -> None:
    contact_id = await create(store)
    await failing_over(cosmos, CONTACTS)

    receipt = await rename(store, contact_id, "Doe")

    assert receipt.aggregate.state.name.last_name == "Doe"
    assert receipt.etag is not None, "nobody has changed the contact since"
    await cosmos.faults.clear()
    assert await events(store, contact_id) == [1, 2]


async def test_another_writers_commit_is_not_taken_for_ones_own(cosmos: Service, store: CosmosStore) -> None:
    contact_id = await create(store)
    async with store.open() as work:
        contact = (await work.get(Contact, str(contact_id))).aggregate
        await rename(store, contact_id, "Another")
        await failing_over(cosmos, CONTACTS, lost=0)
        contact.rename(Name(first_name="Jane", last_name="Doe"), at=LATER)
        with pytest.raises(PreconditionFailed):
            await work.commit()
    await cosmos.faults.clear()
    assert await events(store, contact_id) == [1, 2]


@pytest.mark.long  # as long as the unit of work tries
@pytest.mark.parametrize("lost", [0, 1])
async def test_while_no_region_takes_writes_the_caller_knows_what_may_be_stored(
    cosmos: Service, store: CosmosStore, lost: int
) -> None:
    contact_id = await create(store)
    await failing_over(cosmos, CONTACTS, lost=lost, forbidden=None)

    with pytest.raises(Unavailable) as refused:
        await rename(store, contact_id, "Doe")

    assert isinstance(refused.value, OutcomeUnknown) or not lost
    await cosmos.faults.clear()
    assert len(await events(store, contact_id)) == 1 + lost
    await rename(store, contact_id, "Roe")
    assert len(await events(store, contact_id)) == 2 + lost

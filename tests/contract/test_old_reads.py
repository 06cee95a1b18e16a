"""Reads may be old, as far as Session consistency allows: nothing is refused, and nothing doubled, because of one."""

from collections.abc import Callable
from uuid import UUID, uuid4

import pytest

from cosmos_outbox.cosmos.aggregates.aggregates import Aggregates
from cosmos_outbox.cosmos.relay.parked_documents import PARTITION, ParkedDocuments
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.relay.relay import Relay
from cosmos_outbox.cosmos.store.client import cosmos_client
from cosmos_outbox.cosmos.store.container import Container, StoreFailed
from cosmos_outbox.cosmos.store.partition_key import Item, Key
from cosmos_outbox.outbox.aggregate import Receipt
from cosmos_outbox.outbox.errors import AggregateNotFound
from cosmos_outbox.settings.connections import Connection
from devstack.testing import Service
from domain.contact import Contact
from domain.values import ContactDetails
from outbox_simulation.engine.bus_publisher import BusPublisher
from tests.contract.conftest import CosmosStore
from tests.support.azure import PARKED, contacts_database
from tests.support.contacts import DETAILS, LATER, ORIGIN
from tests.support.feed import EVENTS, event_document, read
from tests.support.losses import OldReplica
from tests.support.memory import committed
from tests.support.use_cases import Contacts


class Lagging(Container):
    """Another instance, whose replica lags: until this process has a session token, reads see an old state."""

    old: dict[str, Item]

    async def read(self, item_id: str, partition_key: Key, *, consistent: bool = False) -> Item | None:
        if not consistent and self.seen(partition_key) is None:
            return self.old.get(item_id)
        return await super().read(item_id, partition_key, consistent=consistent)


@pytest.fixture
def lagging(store: CosmosStore) -> CosmosStore:
    container = Lagging(store.container._client, *store.names)
    container.old = {}
    return CosmosStore(container, *store.names)


def service(store: CosmosStore) -> Contacts:
    return Contacts(Aggregates(store.open, store.claims), clock=lambda: LATER, new_id=uuid4)


async def create(store: CosmosStore) -> Receipt[Contact]:
    return await service(store).create(DETAILS, ORIGIN)


def described(text: str) -> Callable[[ContactDetails], ContactDetails]:
    return lambda details: details.model_copy(update={"description": text})


async def remember(lagging: CosmosStore, store: CosmosStore, contact_id: UUID) -> None:
    """What is stored now is what the lagging replica will show."""
    item = await store.container.read(str(contact_id), str(contact_id))
    assert item is not None
    assert isinstance(lagging.container, Lagging)
    lagging.container.old[str(contact_id)] = item


async def test_a_contact_that_was_just_made_elsewhere_can_be_changed_and_deleted(
    store: CosmosStore, lagging: CosmosStore
) -> None:
    contact_id = (await create(store)).aggregate.id
    changed = await service(lagging).revise(contact_id, described("x"), ORIGIN)
    assert changed.aggregate.state.description == "x"
    another = (await create(store)).aggregate.id
    await service(lagging).delete(another, ORIGIN)
    with pytest.raises(AggregateNotFound):
        await service(store).delete(another, ORIGIN)


async def test_the_newest_etag_is_not_refused_because_of_a_lagging_replica(
    store: CosmosStore, lagging: CosmosStore
) -> None:
    contact_id = (await create(store)).aggregate.id
    await remember(lagging, store, contact_id)
    newest = (await service(store).revise(contact_id, described("one"), ORIGIN)).etag
    assert newest is not None
    receipt = await service(lagging).revise(contact_id, described("two"), ORIGIN, if_match=[newest])
    assert (receipt.aggregate.state.description, receipt.events) == ("two", 1)
    assert receipt.aggregate.state.last_sequence == 3
    assert lagging.container.renewals == 1


async def test_a_read_of_the_newest_state_finds_what_a_replica_does_not_know_yet(
    store: CosmosStore, lagging: CosmosStore
) -> None:
    """What ``Cache-Control: no-cache`` asks for: another team heals from such an answer."""
    contact_id = (await create(store)).aggregate.id
    with pytest.raises(AggregateNotFound):
        await service(lagging).read(contact_id, ORIGIN)
    found = await service(lagging).read(contact_id, ORIGIN, newest=True)
    assert found.aggregate.id == contact_id


async def test_a_change_back_to_an_old_value_is_not_dropped_on_a_lagging_replica(
    store: CosmosStore, lagging: CosmosStore
) -> None:
    contact_id = (await service(store).create(described("a")(DETAILS), ORIGIN)).aggregate.id
    await remember(lagging, store, contact_id)
    await service(store).revise(contact_id, described("b"), ORIGIN)
    receipt = await service(lagging).revise(contact_id, described("a"), ORIGIN)
    assert (receipt.aggregate.state.description, receipt.aggregate.state.last_sequence) == ("a", 3)


async def test_a_change_is_not_refused_because_of_an_old_state(
    store: CosmosStore, lagging: CosmosStore
) -> None:
    contact_id = (await service(store).create(DETAILS, ORIGIN)).aggregate.id
    await remember(lagging, store, contact_id)
    await service(store).revise(contact_id, described("agreed"), ORIGIN)
    seen: list[str | None] = []

    def only_if_agreed(details: ContactDetails) -> ContactDetails:
        seen.append(details.description)
        if details.description != "agreed":
            raise ZeroDivisionError("not agreed")
        return details.model_copy(update={"description": "done"})

    receipt = await service(lagging).revise(contact_id, only_if_agreed, ORIGIN)
    assert receipt.aggregate.state.description == "done"
    assert seen == [None, "agreed"]
    with pytest.raises(ZeroDivisionError):
        await service(lagging).revise(contact_id, only_if_agreed, ORIGIN)


async def test_no_event_slips_past_a_block_that_another_instance_just_wrote(cosmos_server: Service) -> None:
    async with (
        contacts_database(cosmos_server) as database,
        cosmos_client(Connection(cosmos_server.connection_string), None) as client,
    ):
        documents = ParkedDocuments(EVENTS)
        lagging = OldReplica(client, database.id, PARKED)
        here = CosmosParkingLot(Container(client, database.id, PARKED), "t", documents, ttl_seconds=60)
        there = CosmosParkingLot(lagging, "t", documents, ttl_seconds=60)
        topic = BusPublisher(limit=1000)
        await Relay(topic, here, committed(here)).forward([read(event_document("a", 1, text="x" * 2000))])
        await Relay(topic, there, committed(there)).forward([read(event_document("a", 2))])
        assert topic.sent == []
        assert [one.sequence for one in (await here.page(10, None)).items] == [1, 2]


class Shared(Container):
    """After each renewal another page of the process reads the same partition, and meets replicas that are behind."""

    service: Service
    meets = True

    async def renew_token(self, partition_key: Key) -> None:
        await super().renew_token(partition_key)
        if not self.meets:  # the renewal that a doubted token asks for
            return
        self.meets = False
        await self.service.faults.add("session-not-available", container=PARKED, count=None)
        with pytest.raises(StoreFailed):
            await self.read("another", partition_key)
        await self.service.faults.clear()
        await self.service.faults.add("lag", seconds=600, container=PARKED, count=None)
        self.meets = True


async def test_a_failing_read_takes_no_consistent_read_from_another_page(cosmos: Service) -> None:
    """A token that no replica in reach can satisfy may be bad, as after a restore, or only new: a renewal shows."""
    async with (
        contacts_database(cosmos) as database,
        cosmos_client(Connection(cosmos.connection_string), None) as client,
        cosmos_client(Connection(cosmos.connection_string), None) as another,
    ):
        documents = ParkedDocuments(EVENTS)
        shared = Shared(another, database.id, PARKED)
        shared.service = cosmos
        here = CosmosParkingLot(Container(client, database.id, PARKED), "t", documents, ttl_seconds=60)
        there = CosmosParkingLot(shared, "t", documents, ttl_seconds=60)
        topic = BusPublisher(limit=1000)
        await Relay(topic, here, committed(here)).forward([read(event_document("a", 1, text="x" * 2000))])
        await Relay(topic, there, committed(there)).forward([read(event_document("a", 2))])
        assert topic.sent == []
        await cosmos.faults.clear()
        assert [one.sequence for one in (await here.page(10, None)).items] == [1, 2]


async def test_the_renewed_token_of_a_parking_lot_costs_a_refused_write_a_page(
    cosmos_server: Service,
) -> None:
    async with (
        contacts_database(cosmos_server) as database,
        cosmos_client(Connection(cosmos_server.connection_string), None) as client,
    ):
        container = Container(client, database.id, PARKED)
        lot = CosmosParkingLot(container, "t", ParkedDocuments(EVENTS), ttl_seconds=60)
        await Relay(BusPublisher(), lot, committed(lot)).forward(
            [read(event_document(name, 1)) for name in "abcdef"]
        )
        assert container.renewals == 1
        assert await container.page("SELECT * FROM c", {}, 10, None, partition_key=PARTITION) == ([], None)


async def test_a_contact_that_never_was_is_not_found_and_that_is_proven(lagging: CosmosStore) -> None:
    with pytest.raises(AggregateNotFound):
        await service(lagging).delete(UUID("b5e2e7aa-4982-4735-9422-c39a7c4af5c2"), ORIGIN)
    assert lagging.container.renewals == 1

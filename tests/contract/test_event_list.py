"""The list of one contact's events has what the store, the lease and the parking lot say of each."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_changefeed import ChangeFeedProcessor, ProcessorOptions, StartFrom
from cosmos_outbox.cosmos.maintenance.event_list import EventList, EventPage, EventState
from cosmos_outbox.cosmos.relay.forwarding import RelayFailures
from cosmos_outbox.cosmos.relay.originals import CosmosOriginals
from cosmos_outbox.cosmos.relay.parked_documents import ParkedDocuments
from cosmos_outbox.cosmos.relay.parking import Parking
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.relay.relay import Relay
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.operations.relay_status import RelayObserver
from cosmos_outbox.outbox.errors import AggregateNotFound
from devstack.testing import Service, eventually
from outbox_simulation.engine.bus_publisher import BusPublisher
from tests.support.azure import CONTACTS, LEASES, PARKED, contacts_database
from tests.support.emulators import Gap
from tests.support.feed import EVENTS
from tests.support.short_pages import shorten_pages

pytestmark = pytest.mark.known_gap(Gap.CHANGE_FEED)

PREFIX = "relay-"
TTL = 1000
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@dataclass
class World:
    """One contact, the container of its events, and a relay that runs when the test says so."""

    feed: ContainerProxy
    leases: ContainerProxy
    lot: CosmosParkingLot
    list: EventList
    observer: RelayObserver
    topic: BusPublisher
    contact: str

    @property
    def originals(self) -> CosmosOriginals:
        return CosmosOriginals(self.list.container, EVENTS)

    @property
    def key(self) -> AggregateKey:
        return AggregateKey("contact", self.contact)

    async def store(self, *sequences: int, ttl: int = TTL, **data: Any) -> None:
        """Event documents without a digest, as an earlier version of the service has written them."""
        for sequence in sequences:
            await self.feed.create_item(event(self.contact, sequence, ttl, data))

    async def state(
        self, last_sequence: int, *, deleted: bool = False, partition_key: str | None = None
    ) -> None:
        data = {"id": self.contact, "lastSequence": last_sequence, "deleted": deleted}
        place = partition_key or self.contact
        item = {"id": self.contact, "partitionKey": place, "type": "contact", "data": data}
        await self.feed.upsert_item(item)

    async def forward(self) -> None:
        """Let a relay forward all that is stored, and end."""
        relay = Relay(self.topic, self.lot, self.originals)

        async def handle(items: Any, _: object) -> None:
            await relay.forward(EVENTS.events(items))

        async with ChangeFeedProcessor(
            self.feed,
            self.leases,
            handle,
            instance_name="r",
            lease_prefix=PREFIX,
            options=ProcessorOptions(start=StartFrom.beginning()),
        ):
            await eventually(self._nothing_waits)

    async def _nothing_waits(self) -> bool:
        status = await self.observer.status()
        return bool(status.leases) and all(
            lease.oldest_waiting_seconds is None and lease.position is not None for lease in status.leases
        )

    async def page(self, size: int = 50, before: int | None = None) -> EventPage:
        return await self.list.page(self.key, size, before)


def event(contact: str, sequence: int | None, ttl: int, data: dict[str, Any]) -> dict[str, Any]:
    event_id = str(uuid4())
    numbered = {} if sequence is None else {"sequence": sequence}
    return {
        "id": event_id, "partitionKey": contact, "type": "domainEvent", "aggregateType": "contact", "ttl": ttl,
        "data": {"id": event_id, "contactId": contact, "action": "Changed", "createdAt": "2026-03-01T12:00:00Z",
                 "correlationId": "order-4711", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"} | numbered | data,
    }  # fmt: skip


@pytest.fixture
async def world(cosmos_server: Service) -> AsyncIterator[World]:
    async with world_of(cosmos_server) as world:
        yield world


@asynccontextmanager
async def world_of(cosmos: Service) -> AsyncIterator[World]:
    async with contacts_database(cosmos) as database:
        client = CosmosClient.from_connection_string(cosmos.connection_string)
        named = client.get_database_client(database.id)
        feed, leases = (named.get_container_client(name) for name in (CONTACTS, LEASES))
        lot = CosmosParkingLot(
            Container(client, database.id, PARKED),
            "test",
            ParkedDocuments(EVENTS),
            ttl_seconds=TTL,
        )
        observer = RelayObserver(feed, leases, lot, PREFIX, TTL, RelayFailures(leases, "f", TTL))
        events = EventList(Container(client, database.id, CONTACTS), feed, lot, observer.progress)
        yield World(feed, leases, lot, events, observer, BusPublisher(), str(uuid4()))
        await client.close()


def states(page: EventPage) -> dict[int | None, EventState]:
    return {each.sequence: each.state for each in page.items}


async def test_an_event_waits_until_the_lease_has_passed_it(world: World) -> None:
    await world.state(2)
    await world.store(1, contact={"name": "John"})
    await world.store(2, name={"firstName": "Jane"}, email="jane@contoso.com")

    before = await world.page()
    assert states(before) == {
        2: EventState.UNKNOWN,
        1: EventState.UNKNOWN,
    }, "no relay was ever started, so no lease says anything"

    await world.forward()
    passed = await world.page()
    assert states(passed) == {2: EventState.SENT, 1: EventState.SENT}

    await world.state(3)
    await world.store(3, description=None)
    assert states(await world.page())[3] is EventState.WAITING


async def test_that_nothing_waits_is_not_believed_of_a_replica_that_lags(cosmos: Service) -> None:
    """Weaker than Session consistency, the leases may be measured on an older replica than the one that has the events.

    Here the two are read by clients that share no session.
    """
    async with (
        world_of(cosmos) as world,
        CosmosClient.from_connection_string(cosmos.connection_string) as other,
    ):
        await world.state(1)
        await world.store(1)
        await world.forward()
        await world.store(2)
        database = other.get_database_client(world.feed.container_link.split("/")[1])
        observer = replace(world.observer, feed=database.get_container_client(CONTACTS))
        events = replace(world.list, progress=observer.progress)
        await cosmos.faults.add("lag", operation="feed", seconds=600, count=None)
        assert states(await events.page(world.key, 50, None)) == {
            2: EventState.UNKNOWN,
            1: EventState.UNKNOWN,
        }
        await cosmos.faults.clear()
        assert states(await events.page(world.key, 50, None))[2] is EventState.WAITING


async def test_no_value_of_a_property_is_listed(world: World) -> None:
    await world.state(1)
    await world.store(1, name={"firstName": "Xanthippe"}, email="x@contoso.com")
    [listed] = (await world.page()).items
    assert "Xanthippe" not in str(listed)
    assert "x@contoso.com" not in str(listed)
    assert (listed.correlation_id, listed.action, listed.created_at) == (
        "order-4711",
        "Changed",
        "2026-03-01T12:00:00Z",
    )


async def test_pages_go_down_by_sequence_and_miss_nothing(world: World) -> None:
    await world.state(7)
    await world.store(*range(1, 8))
    seen, before = [], None
    while True:
        page = await world.page(3, before)
        seen += [each.sequence for each in page.items]
        before = page.before
        if before is None:
            break
    assert seen == [7, 6, 5, 4, 3, 2, 1]


async def test_parked_and_discarded_events_and_the_skip_marker_are_listed(world: World) -> None:
    await world.state(3)
    world.topic.limit = 1000
    await world.store(1)
    await world.store(2, description="x" * 2000)
    await world.store(3, email="a@contoso.com")
    await world.forward()

    page = await world.page()
    assert states(page) == {3: EventState.PARKED, 2: EventState.PARKED, 1: EventState.SENT}
    [blocker] = [each for each in page.items if each.sequence == 2]
    assert blocker.parking_id is not None

    async def at_once(_: float) -> None:
        """No relay sends any more."""

    def in_two_minutes() -> datetime:
        return utc_now() + timedelta(seconds=120)

    later = Parking(world.lot, world.topic, world.originals, pause=at_once, clock=in_two_minutes)
    await later.discard(blocker.parking_id, "too large")
    page = await world.page()
    found = [(each.sequence, each.action, each.state) for each in page.items]
    assert (2, "Changed", EventState.DISCARDED) in found
    assert (2, "EventDiscarded", EventState.PARKED) in found
    assert states(page)[3] is EventState.PARKED


async def test_a_broken_document_is_listed(world: World) -> None:
    await world.state(1)
    await world.store(1)
    bad = event(world.contact, None, TTL, {"id": "another"})
    odd = event(world.contact, 2, TTL, {"createdAt": "never"})
    for item in (bad, odd):
        await world.feed.create_item(item)
    page = await world.page()
    assert [(each.sequence, each.event_id) for each in page.items[:2]] == [
        (None, bad["id"]),
        (2, odd["id"]),
    ]


async def test_no_events_of_others_are_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the type of an event is indexed: over all partitions each event of every aggregate would be read."""
    asked, container = list[tuple[str, str | None]](), world.list.container
    first = container.first

    async def noted(query: str, *given: Any, partition_key: str | None = None) -> list[dict[str, Any]]:
        asked.append((query, partition_key))
        return await first(query, *given, partition_key=partition_key)

    monkeypatch.setattr(container, "first", noted)
    with pytest.raises(AggregateNotFound, match="no event of contact"):
        await world.page()
    everywhere = [query for query, partition_key in asked if partition_key is None]
    assert everywhere == ["SELECT * FROM c WHERE c.type = @aggregateType AND c.id = @id"], "ids are indexed"


async def test_events_that_a_lagging_replica_does_not_show_are_listed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica that had the contact is not the one that answers the query."""
    container = world.list.container
    await world.state(2)
    await world.store(1, 2)
    first = container.first

    async def lagging(query: str, *given: Any, partition_key: str | None = None) -> list[dict[str, Any]]:
        if partition_key is not None and container.seen(partition_key) is None:
            return []
        return await first(query, *given, partition_key=partition_key)

    monkeypatch.setattr(container, "first", lagging)
    assert [each.sequence for each in (await world.page()).items] == [2, 1]
    assert container.renewals == 1


async def test_an_aggregate_may_be_stored_under_another_partition_key(world: World) -> None:
    item = event(world.contact, 1, TTL, {"name": {"firstName": "Jane"}})
    await world.feed.create_item(item | {"partitionKey": "tenant", "aggregateId": world.contact})
    data = {"id": world.contact, "lastSequence": 1, "deleted": False}
    own = {"id": world.contact, "partitionKey": "tenant", "type": "contact", "data": data}
    await world.feed.create_item(own)
    other = event("tenant", 1, TTL, {})  # of the aggregate whose id is the partition key
    await world.feed.create_item(other)
    await world.forward()
    page = await world.page()
    assert [(each.event_id, each.state) for each in page.items] == [(item["id"], EventState.SENT)]


async def test_a_page_of_the_store_that_ends_early_is_not_the_end_of_the_events(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.store(1, 2, 3, 5, 6)
    await world.state(6)
    shorten_pages(monkeypatch)
    page = await world.page()
    assert [each.sequence for each in page.items] == [6, 5, 3, 2, 1]
    assert page.before is None
    newest = await world.page(3)
    assert ([each.sequence for each in newest.items], newest.before) == ([6, 5, 3], 3)

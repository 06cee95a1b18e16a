"""What an operator is told of one contact's events is what the store, the lease and the parking lot say of each."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_changefeed import ChangeFeedProcessor, ProcessorOptions, StartFrom
from cosmos_outbox.cosmos.relay.parked_documents import PARTITION, ParkedDocuments
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.cosmos.upkeep.relay_failures import RelayFailures
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.operations.aggregate_past import AggregatePast
from cosmos_outbox.operations.leaving import WayOut
from cosmos_outbox.operations.past_events import EventState, Expired, Past
from cosmos_outbox.operations.relay_status import RelayObserver
from cosmos_outbox.outbox.destination import ALL
from cosmos_outbox.outbox.errors import AggregateNotFound
from cosmos_outbox.outbox.parking import Parking
from cosmos_outbox.outbox.relay import Relay
from cosmos_outbox.testing.simulation.bus_publisher import BusPublisher
from devstack.testing import Service, eventually, running
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
    past: AggregatePast
    topic: BusPublisher
    contact: str

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
        relay = Relay(self.topic, self.lot)

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
        status = await self.past.observer.status()
        return bool(status.leases) and all(
            lease.oldest_waiting_seconds is None and lease.position is not None for lease in status.leases
        )

    async def page(self, size: int = 50, before: int | None = None) -> Past:
        return await self.past.page(self.key, size, before)


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
        past = AggregatePast(
            Container(client, database.id, CONTACTS),
            EVENTS,
            [way_out(feed, leases, lot)],
        )
        yield World(feed, leases, lot, past, BusPublisher(), str(uuid4()))
        await client.close()


def way_out(feed: ContainerProxy, leases: ContainerProxy, lot: CosmosParkingLot) -> WayOut:
    observer = RelayObserver(feed, leases, lot, PREFIX, TTL, RelayFailures(leases, "f", TTL))
    return WayOut(ALL, observer, Parking(lot, BusPublisher()), PARTITION)


def observed(past: AggregatePast, **changes: Any) -> AggregatePast:
    [way] = past.ways
    return replace(past, ways=[replace(way, observer=replace(way.observer, **changes))])


def states(page: Past) -> dict[int | None, EventState]:
    return {each.sequence: each.state for each in page.events}


async def test_an_event_waits_until_the_lease_has_passed_it(world: World) -> None:
    await world.state(2)
    await world.store(1, contact={"name": "John"})
    await world.store(2, name={"firstName": "Jane"}, email="jane@contoso.com")

    before = await world.page()
    assert (before.progress.lease, states(before)) == (
        None,
        {2: EventState.UNKNOWN, 1: EventState.UNKNOWN},
    ), "no relay was ever started, so no lease tells anything"

    await world.forward()
    passed = await world.page()
    assert states(passed) == {2: EventState.FORWARDED, 1: EventState.FORWARDED}
    assert (passed.progress.lease, passed.progress.waiting_since) == ("0", None)
    assert passed.progress.position is not None

    await world.state(3)
    await world.store(3, description=None)
    assert states(await world.page())[3] is EventState.WAITING


async def test_that_nothing_waits_is_not_believed_of_a_replica_that_lags(tmp_path: Path) -> None:
    """Weaker than Session consistency, the leases may be measured on an older replica than the one that has the events.

    Here the two are read by clients that share no session.
    """
    with running(Service("cosmos", tmp_path / "data", "--faults")) as cosmos:
        async with (
            world_of(cosmos) as world,
            CosmosClient.from_connection_string(cosmos.connection_string) as other,
        ):
            await world.state(1)
            await world.store(1)
            await world.forward()
            await world.store(2)
            database = other.get_database_client(world.feed.container_link.split("/")[1])
            past = observed(world.past, feed=database.get_container_client(CONTACTS))
            await cosmos.faults.add("lag", operation="feed", seconds=600, count=None)
            assert states(await past.page(world.key, 50, None)) == {
                2: EventState.UNKNOWN,
                1: EventState.UNKNOWN,
            }
            await cosmos.faults.clear()
            assert states(await past.page(world.key, 50, None))[2] is EventState.WAITING


async def test_names_and_times_are_told_and_values_are_not(world: World) -> None:
    await world.state(1)
    caused: dict[str, Any] = {
        "causationId": "the event of another",
        "causedBy": "a digest",
        "tracestate": "vendor=1",
    }
    await world.store(1, name={"firstName": "Xanthippe"}, email="x@contoso.com", **caused)
    [told] = (await world.page()).events
    assert told.changed == ["email", "name"]
    assert "Xanthippe" not in str(told)
    assert (told.trace_id, told.correlation_id, told.action) == (TRACE, "order-4711", "Changed")
    assert told.created_at == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert told.stored_at is not None
    assert told.expires_at == told.stored_at + timedelta(seconds=TTL)
    assert abs(utc_now() - told.stored_at) < timedelta(seconds=30)


async def test_pages_go_down_by_sequence_and_miss_nothing(world: World) -> None:
    await world.state(7)
    await world.store(*range(1, 8))
    seen, before = [], None
    while True:
        page = await world.page(3, before)
        assert page.expired == []
        seen += [each.sequence for each in page.events]
        before = page.before
        if before is None:
            break
    assert seen == [7, 6, 5, 4, 3, 2, 1]


async def test_sequences_without_a_document_have_expired(world: World) -> None:
    await world.state(9)
    await world.store(4, 5, 8, 9)
    first = await world.page(2)
    assert ([each.sequence for each in first.events], first.expired, first.before) == ([9, 8], [], 8)
    second = await world.page(2, first.before)
    assert ([each.sequence for each in second.events], second.before) == ([5, 4], None)
    assert second.expired == [Expired(6, 7), Expired(1, 3)]


async def test_of_a_contact_that_did_not_change_for_long_all_events_have_expired(world: World) -> None:
    await world.state(3, deleted=True)
    later = observed(world.past, clock=lambda: utc_now() + timedelta(seconds=TTL + 60))
    page = await later.page(world.key, 50, None)
    assert (page.events, page.expired, page.last_sequence, page.deleted) == ([], [Expired(1, 3)], 3, True)


async def test_an_event_that_a_lagging_read_does_not_see_yet_is_not_said_to_have_expired(
    world: World,
) -> None:
    await world.state(3)
    await world.store(1, 2)
    page = await world.page()
    assert ([each.sequence for each in page.events], page.expired) == ([2, 1], [])


async def test_parked_and_discarded_events_are_told_and_so_is_the_notice(world: World) -> None:
    await world.state(3)
    world.topic.limit = 1000
    await world.store(1)
    await world.store(2, description="x" * 2000)
    await world.store(3, email="a@contoso.com")
    await world.forward()

    page = await world.page()
    assert states(page) == {3: EventState.PARKED, 2: EventState.PARKED, 1: EventState.FORWARDED}
    [blocker] = [each for each in page.events if each.sequence == 2]
    assert blocker.parking_id is not None

    async def at_once(_: float) -> None:
        """No relay sends any more."""

    later = Parking(world.lot, world.topic, pause=at_once, clock=lambda: utc_now() + timedelta(seconds=120))
    await later.discard(blocker.parking_id, "too large")
    page = await world.page()
    found = [(each.sequence, each.action, each.state) for each in page.events]
    assert (2, "Changed", EventState.DISCARDED) in found
    assert (2, "EventDiscarded", EventState.PARKED) in found
    assert states(page)[3] is EventState.PARKED
    assert page.expired == []


async def test_a_broken_document_is_told_with_its_place(world: World) -> None:
    await world.state(1)
    await world.store(1)
    bad = event(world.contact, None, TTL, {"id": "another"})
    odd = event(world.contact, 2, TTL, {"createdAt": "never"})
    for item in (bad, odd):
        await world.feed.create_item(item)
    page = await world.page()
    assert [(each.sequence, each.event_id) for each in page.events[:2]] == [
        (None, bad["id"]),
        (2, odd["id"]),
    ]
    assert page.events[1].action is None
    assert page.expired == []


async def test_of_what_never_was_nothing_is_told_and_no_events_of_others_are_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the type of an event is indexed: over all partitions each event of every aggregate would be read."""
    asked, container = list[tuple[str, str | None]](), world.past.container
    first = container.first

    async def noted(query: str, *given: Any, partition_key: str | None = None) -> list[dict[str, Any]]:
        asked.append((query, partition_key))
        return await first(query, *given, partition_key=partition_key)

    monkeypatch.setattr(container, "first", noted)
    with pytest.raises(AggregateNotFound, match="nothing is stored of"):
        await world.page()
    everywhere = [query for query, partition_key in asked if partition_key is None]
    assert everywhere == ["SELECT * FROM c WHERE c.type = @aggregateType AND c.id = @id"], "ids are indexed"
    assert container.fences == 2, (
        "what one replica does not show is not called missing: neither contact nor event"
    )


@pytest.mark.parametrize("partition_key", [None, "tenant"])
async def test_an_aggregate_that_a_lagging_replica_does_not_show_is_not_called_missing(
    world: World, monkeypatch: pytest.MonkeyPatch, partition_key: str | None
) -> None:
    container = world.past.container
    await world.state(1, partition_key=partition_key)
    first = container.first

    async def lagging(query: str, *given: Any, partition_key: str | None = None) -> list[dict[str, Any]]:
        if partition_key is None or container.seen(partition_key) is None:
            return []
        return await first(query, *given, partition_key=partition_key)

    monkeypatch.setattr(container, "first", lagging)
    assert (await world.page()).last_sequence == 1


async def test_events_that_a_lagging_replica_does_not_show_are_not_called_expired(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica that told of the contact had it; the next one is as old as it can be."""
    container = world.past.container
    await world.state(2)
    await world.store(1, 2)
    first = container.first

    async def lagging(query: str, *given: Any, partition_key: str | None = None) -> list[dict[str, Any]]:
        if partition_key is not None and container.seen(partition_key) is None:
            return []
        return await first(query, *given, partition_key=partition_key)

    monkeypatch.setattr(container, "first", lagging)
    page = await world.page()
    assert ([each.sequence for each in page.events], page.expired) == ([2, 1], [])
    assert container.fences == 1


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
    assert [(each.event_id, each.state) for each in page.events] == [(item["id"], EventState.FORWARDED)]
    assert (page.last_sequence, page.progress.lease) == (1, "0")


async def test_a_page_of_the_store_that_ends_early_is_not_the_end_of_the_events(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.store(1, 2, 3, 5, 6)
    await world.state(6)
    shorten_pages(monkeypatch)
    page = await world.page()
    assert [each.sequence for each in page.events] == [6, 5, 3, 2, 1]
    assert (page.expired, page.before) == ([Expired(4, 4)], None)
    newest = await world.page(3)
    assert ([each.sequence for each in newest.events], newest.before) == ([6, 5, 3], 3)


async def test_of_more_events_than_are_looked_at_none_is_said_to_have_expired(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cosmos_outbox.operations.aggregate_past.MOST_EVENTS", 3)
    await world.store(1, 2, 3, 4, 5)
    await world.state(5)
    page = await world.page()
    assert (len(page.events), page.expired) == (3, [])

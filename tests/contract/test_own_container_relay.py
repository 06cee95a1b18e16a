"""Events of a team's own container reach the topic, in order; parking, history, repetition and erasing work there."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos.aio import ContainerProxy

from cosmos_changefeed import (
    ChangeFeedProcessor,
    ProcessorOptions,
    StartFrom,
)
from cosmos_outbox.cosmos.aggregates.documents import EventReader, digest, is_as_committed
from cosmos_outbox.cosmos.maintenance.event_list import Span
from cosmos_outbox.cosmos.maintenance.inspection import CosmosInspection
from cosmos_outbox.cosmos.relay.parked_documents import PARTITION, ParkedDocuments, ParkedEvent
from cosmos_outbox.cosmos.store.consistent_reads import renew_tokens
from cosmos_outbox.cosmos.store.container import Write
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.preflight.cosmos import judge
from cosmos_outbox.preflight.plan import needed
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.worker import relay as relay_worker
from devstack.testing import Service as Server
from devstack.testing import eventually, running
from tests.support.azure import Topic
from tests.support.emulators import Gap
from tests.support.own import BOOKINGS, HIERARCHICAL, NESTED, TENANT, World, world_of

pytestmark = pytest.mark.known_gap(Gap.CHANGE_FEED)

KINDS = {"one path": TENANT, "hierarchical": HIERARCHICAL, "nested": NESTED}
ALL = ProcessorOptions(start=StartFrom.beginning())
"""As the relay reads: what was stored before it began is not left out."""
LARGE = "x" * 300_000
"""Over what a message may hold."""


class Place(World):
    """A world with a topic."""

    topic: Topic

    @property
    def leases(self) -> ContainerProxy:
        return self.wired.relay.leases

    async def forward(self) -> None:
        """Let a relay forward all that is stored, and end."""

        async def handle(items: Any, _: object) -> None:
            await self.wired.relay.forwarding.forward(items)

        async with self.processor(handle):
            await eventually(self.nothing_waits)

    def processor(self, handle: Callable[[Any, object], Awaitable[None]]) -> ChangeFeedProcessor:
        """What gives a relay the pages of the feed."""
        return ChangeFeedProcessor(
            self.outbox.feed,
            self.leases,
            handle,
            instance_name="r",
            lease_prefix=self.outbox.settings.feed.lease_prefix,
            options=ALL,
        )

    async def nothing_waits(self) -> bool:
        status = await self.wired.operator.observer.status()
        return bool(status.leases) and all(
            lease.oldest_waiting_seconds is None and lease.position is not None for lease in status.leases
        )

    async def received(self, booking: str, count: int, *, of: str = "booking") -> list[tuple[str, Any]]:
        """(action, sequence) of all that a subscriber gets of one booking."""
        messages = await self.topic.receive_all(booking, count, of=of)
        return [
            (str(message.subject), (message.application_properties or {}).get(b"sequence"))
            for message in messages
        ]

    async def parked(self, *, discarded: bool = False) -> list[ParkedEvent]:
        return list((await self.wired.operator.parking.page(100, None, discarded=discarded)).items)

    async def make_too_large(self, booking: str, tenant: Any = "acme") -> None:
        """An event that the broker never takes, and one behind it."""
        item = await self.read(booking, tenant, booking)
        async with self.transaction(tenant, booking) as tx:
            tx.replace(item, if_match=item["_etag"])
            tx.event("TooLarge", of=("booking", booking), data={"text": LARGE})
            tx.event("Behind", of=("booking", booking))


@asynccontextmanager
async def place_of(kind: str, cosmos: Server, servicebus: Server) -> AsyncIterator[Place]:
    topic = Topic(servicebus)
    await topic.create()
    async with world_of(KINDS[kind], cosmos, servicebus.connection_string, topic.name) as world:
        place = Place(world.service, world.wired, world.proxy, world.environment)
        place.topic = topic
        yield place
    await topic.delete()


@pytest.fixture(
    params=[kind if kind == "hierarchical" else pytest.param(kind, marks=pytest.mark.long) for kind in KINDS]
)
async def place(
    request: pytest.FixtureRequest, cosmos_server: Server, servicebus_server: Server
) -> AsyncIterator[Place]:
    async with place_of(request.param, cosmos_server, servicebus_server) as place:
        yield place


async def test_an_event_rewritten_by_the_host_is_published_as_committed(place: Place) -> None:
    """By its partition key the document is found again, whatever the key's paths are."""
    tenant = 17
    async with place.transaction(tenant) as tx:
        event_id = tx.event("NoteTaken", of=("note", "b-1"), data={"at": "2024-05-01T10:00:00.000+02:00"})
    stored = await place.read(event_id, tenant)
    delivered = stored | {"_lsn": 5, "data": stored["data"] | {"at": "2024-05-01T08:00:00+00:00"}}
    [event] = await place.wired.relay.relay.originals.verify(place.outbox.events.events([delivered]))
    assert isinstance(event, OutboxEvent)
    assert event.data["at"] == "2024-05-01T10:00:00.000+02:00"


async def test_an_event_under_another_partition_key_does_not_fit_its_digest(place: Place) -> None:
    async with place.transaction("acme") as tx:
        event_id = tx.event("NoteTaken", of=("note", "n-1"))
    stored, paths = await place.read(event_id), place.service.paths
    assert is_as_committed(stored, paths)
    moved = stored | paths.fields(place.key("other"))
    assert not is_as_committed(moved, paths)
    assert digest(moved, paths) != stored["digest"]


async def test_what_cannot_be_sent_is_parked_and_replayed(place: Place) -> None:
    tenant = 17
    await place.book("b-1", tenant)
    await place.make_too_large("b-1", tenant)
    await place.book("b-2", tenant)
    await place.forward()
    assert await place.received("b-1", 1) == [("BookingMade", 1)]
    assert await place.received("b-2", 1) == [("BookingMade", 1)]
    parked = await place.parked()
    assert [(one.action, one.sequence) for one in parked] == [("TooLarge", 2), ("Behind", 3)]

    # The broker's limit is raised, say: here the parked document is made small, as an operator would.
    parked_events = place.outbox.container(f"{BOOKINGS}-parked")
    [item] = await parked_events.first(
        "SELECT * FROM c WHERE c.eventId = @id", {"@id": parked[0].event_id}, 1, partition_key=PARTITION
    )
    assert place.service.paths.of(item["document"]) == place.service.paths.key(place.key(tenant))
    item["document"]["data"]["text"] = "short"
    item["document"]["digest"] = digest(item["document"], place.service.paths)
    await parked_events.execute(PARTITION, [Write.upsert(item)])
    assert (await place.wired.operator.parking.replay(AggregateKey("booking", "b-1"))).done
    assert await place.received("b-1", 2) == [("TooLarge", 2), ("Behind", 3)]
    assert await place.parked() == []


def test_of_a_document_that_is_not_kept_its_place_is() -> None:
    for service in KINDS.values():
        documents = ParkedDocuments(EventReader(paths=service.paths))
        key: Any = ["acme", 17] if len(service.paths.paths) > 1 else 17
        document = {"id": "a", **service.paths.fields(key), "data": {}}
        item = {"reason": "r", "document": document}
        left = documents.without_document(item)
        assert left["document"] == {"id": "a", **service.paths.fields(key)}
        assert documents.has_document(item)
        assert not documents.has_document(left)


async def test_preflight_may_try_what_the_app_does_in_the_container(place: Place) -> None:
    connection = service_settings(place).cosmos
    async with CosmosInspection(connection, None, place.environment["COSMOS_DATABASE"]) as inspection:
        await inspection.try_access(BOOKINGS, place.service.paths)
        state = await inspection.container(BOOKINGS)
    need = needed(service_settings(place), place.service)[0]
    findings = [str(each) for each in judge(need, state, "d")]
    assert [each for each in findings if not each.startswith("ok")] == []
    assert await place.all() == [], "nothing is changed"


def service_settings(place: Place) -> Settings:
    return place.service.settings(place.environment)


async def test_a_relay_worker_sends_each_aggregates_events_in_order(place: Place) -> None:
    """As ``cosmos-outbox relay`` runs it; of a note the order is that in which its events were raised."""
    stop = asyncio.Event()
    wired = place.service.wire(place.environment)
    relay = asyncio.create_task(relay_worker.run(wired, stop))
    await place.book(tenant=17)
    await place.move("BookingMoved", "BookingPaid", tenant=17)
    async with place.transaction() as tx:
        for action in "abcdefgh":
            tx.event(action, of=("note", "n-1"))
    assert await place.received("b-1", 3) == [("BookingMade", 1), ("BookingMoved", 2), ("BookingPaid", 3)]
    assert await place.received("n-1", 8, of="note") == [(action, None) for action in "abcdefgh"]
    stop.set()
    await relay


@pytest.mark.own_stack
@pytest.mark.parametrize("kind", [pytest.param("one path", marks=pytest.mark.long), "hierarchical"])
async def test_several_physical_partitions_are_read_consistently(kind: str, tmp_path: Path) -> None:
    server = Server("cosmos", tmp_path / "data", "--partitions=3")
    with running(server):
        async with world_of(KINDS[kind], server) as world:
            for number in range(9):
                await world.book(f"b-{number}", number)
            token = await renew_tokens(world.container, world.outbox.feed)
            assert len(token.split(",")) == 3
            times = [event["_ts"] for event in await world.events()]
            window = await world.wired.operator.history(token).window(Span(min(times), max(times) + 1))
            found = {event.aggregate.id for event in window.events if event.aggregate}
            assert found <= {f"b-{number}" for number in range(9)}
            assert found
            for number in (0, 8):
                past = await world.wired.operator.event_list.page(
                    AggregateKey("booking", f"b-{number}"), 2, None
                )
                assert [event.sequence for event in past.items] == [1]

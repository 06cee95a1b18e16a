"""A read model of a team's own aggregates: each event once, in order, healed from the team's documents."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel

from cosmos_outbox.composition.declarations import ReadModelDeclaration
from cosmos_outbox.inbox.entry import After, EntrySchema
from cosmos_outbox.inbox.errors import SourceBehind
from cosmos_outbox.inbox.healing import Counts, WalkProgress
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.inbox.read_model import Complete, HealReason, Put, SkipReason
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.service import Service
from cosmos_outbox.settings.names import DocumentSource
from cosmos_outbox.worker.running import running as running_service
from devstack.testing import Service as Server
from devstack.testing import eventually
from tests.support.azure import Topic
from tests.support.emulators import Gap
from tests.support.own import BOOKINGS, World, declared, world_of

PARTITIONS = 3
pytestmark = [pytest.mark.own_stack, pytest.mark.known_gap(Gap.CHANGE_FEED)]

PATHS = {
    "one path": ["/tenantId"],
    "two": ["/tenantId", "/bookingId"],
    "three": ["/a/region", "/tenantId", "/bookingId"],
}
TYPED = DocumentSource({"/type": "booking"})


class Seats(BaseModel):
    seats: int


FORM = EntrySchema(Seats, search={"seats": lambda entry: str(entry.seats)}, sorted_by=["seats"])


def state_of(document: Any) -> Seats:
    assert "_etag" not in document
    return Seats(seats=document["seats"])


def project(_: Seats, event: Event) -> After[Seats] | None:
    if event.action == "BookingMoved":
        return After(Seats(seats=event.data["seats"]))
    return After(None) if event.action == "BookingEnded" else None


class Desk(World):
    """A world with a read model. It knows how a hierarchical key of any depth is made."""

    board: ReadModelDeclaration[Seats]

    def key(self, tenant: Any = "acme", booking: str = "b-1") -> Any:
        return {1: tenant, 2: [tenant, booking], 3: [7, tenant, booking]}[len(self.service.paths.paths)]

    @property
    def model(self) -> Any:
        return self.wired.read_model(self.board)

    async def entry(self, booking: str = "b-1") -> tuple[int, int | None] | None:
        """(sequence, seats); None seats: deleted."""
        read = await self.model.inbox.entries.newest(AggregateKey("booking", booking))
        if read is None:
            return None
        return read.entry.last_sequence, None if read.entry.deleted else read.entry.state.seats

    async def event(self, sequence: int, booking: str = "b-1") -> Event:
        """A stored event, as its message holds it."""
        [item] = [
            item
            for item in await self.events()
            if (item["aggregateId"], item["data"]["sequence"]) == (booking, sequence)
        ]
        data = item["data"]
        key = AggregateKey("booking", booking)
        return Event(item["id"], key, data["action"], sequence, utc_now(), data)

    async def handle(self, sequence: int, booking: str = "b-1") -> Any:
        return await self.model.inbox.handle(await self.event(sequence, booking))

    async def walked(self) -> Counts:
        """What a walk over all finds, for which nothing is too young."""
        progress: WalkProgress = await self.model.healing.rebuild(lambda _: None)
        assert progress.last_counts is not None
        return progress.last_counts


def service_of(kind: str, source: DocumentSource = TYPED) -> tuple[Service, ReadModelDeclaration[Seats]]:
    service = declared(*PATHS[kind])
    board = service.read_model(
        "board", of="booking", form=FORM, state_of=state_of, project=project, source=source
    )
    return service, board


@pytest.fixture(
    params=["two", *(pytest.param(each, marks=pytest.mark.long) for each in ("one path", "three"))]
)
async def desk(request: pytest.FixtureRequest, cosmos: Server) -> AsyncIterator[Desk]:
    service, board = service_of(request.param)
    async with world_of(service, cosmos) as world:
        desk = Desk(service, service.wire(world.environment), world.proxy, world.environment)
        desk.board = board
        async with desk.wired.resources:
            yield desk


async def test_a_missing_document_is_looked_for_consistently_in_each_partition(desk: Desk) -> None:
    await desk.book()
    source = desk.model.inbox.source
    costs = []
    for booking in ("b-1", "nobody"):
        before = source.container.renewals
        found = await source.newest(AggregateKey("booking", booking))
        costs.append((found and found.state, source.container.renewals - before))
    assert costs == [(Seats(seats=1), 1), (None, 3)]


async def test_behind_a_lagging_replica_a_document_is_proven_there_or_gone(
    desk: Desk, cosmos: Server
) -> None:
    await desk.book()
    await desk.book("b-2")
    await desk.book("b-3", 17)
    first, never, there = [await desk.event(1, each) for each in ("b-1", "b-2", "b-3")]
    await desk.model.inbox.handle(first)
    await desk.run(lambda tx: tx.delete("b-1"))
    await desk.proxy.delete_item("b-2", desk.key("acme", "b-2"))
    await cosmos.faults.add("lag", seconds=600, count=None, container=BOOKINGS)
    assert await desk.model.inbox.handle(never) == Complete(SkipReason.GONE)
    assert (await desk.model.inbox.handle(there)).because is HealReason.NEW
    assert await desk.entry("b-3") == (1, 1)
    healed = await desk.model.inbox.heal(AggregateKey("booking", "b-1"))
    assert isinstance(healed, Put)
    assert (await desk.entry(), await desk.entry("b-2")) == ((1, None), None)


async def test_a_document_that_says_deleted_makes_a_deleted_entry_that_stays(desk: Desk) -> None:
    await desk.book()
    item = await desk.read("b-1")
    async with desk.transaction() as tx:
        tx.replace(item | {"deleted": True, "ttl": 1_000_000}, if_match=item["_etag"])
        tx.event("BookingEnded", of=("booking", "b-1"))
    await desk.handle(1)
    assert await desk.entry() == (2, None)
    assert await desk.handle(2) == Complete(SkipReason.DELETED)


async def test_one_id_in_two_partitions_is_reported_and_not_guessed(desk: Desk) -> None:
    await desk.book("b-1", "acme")
    event = await desk.event(1)
    await desk.proxy.create_item(
        desk.document("b-1", tenant="other", type="booking", seats=9, meta={"lastSequence": 1})
    )
    with pytest.raises(SourceBehind, match="two documents have the id of booking b-1"):
        await desk.model.inbox.handle(event)


async def test_documents_of_other_kinds_are_never_taken_for_the_aggregate(desk: Desk) -> None:
    """A note has the id of a booking, in another partition; events name the booking."""
    await desk.proxy.create_item(desk.document("b-1", tenant="other", type="note", seats=9))
    await desk.book()
    await desk.handle(1)
    assert await desk.entry() == (1, 1)
    assert (await desk.walked()).sources == 1


async def test_a_walk_finds_what_no_event_reported(desk: Desk) -> None:
    for booking, tenant in (("b-1", "acme"), ("b-2", 17), ("b-3", True), ("b-4", "x")):
        await desk.book(booking, tenant)
    await desk.handle(1)
    await desk.handle(1, "b-4")
    await desk.move()
    await desk.proxy.delete_item("b-4", desk.key("x", "b-4"))
    counts = await desk.walked()
    assert (counts.entries, counts.sources, counts.healed, counts.failed) == (4, 3, 4, 0)
    found = {booking: await desk.entry(booking) for booking in ("b-1", "b-2", "b-3", "b-4")}
    assert found == {"b-1": (2, 2), "b-2": (1, 1), "b-3": (1, 1), "b-4": (1, None)}
    assert (await desk.walked()).healed == 0


async def test_a_walk_compares_all_but_the_document_that_cannot_be_read(desk: Desk) -> None:
    for booking in ("b-1", "b-2", "b-3"):
        await desk.book(booking)
    bad = await desk.proxy.read_item("b-2", desk.key("acme", "b-2"))
    await desk.proxy.upsert_item(bad | {"seats": "many"})
    counts = await desk.walked()
    assert (counts.entries, counts.sources, counts.healed, counts.failed) == (2, 3, 2, 1)
    assert [await desk.entry(each) for each in ("b-1", "b-2", "b-3")] == [(1, 1), None, (1, 1)]


@pytest.mark.needs_a_socket("the command, which runs in a thread")
async def test_the_service_runs_with_its_read_model(cosmos: Server, servicebus_server: Server) -> None:
    topic = Topic(servicebus_server)
    await topic.create("board")
    service, board = service_of("two", DocumentSource({"/type": "booking"}, id="/number", deleted="/over"))
    async with (
        world_of(service, cosmos, servicebus_server.connection_string, topic.name) as world,
        running_service(service, environment=world.environment, slots=2) as at_work,
    ):
        async with at_work.wired.outbox.transaction(world.key()) as tx:
            tx.create(world.document("d-1", type="other"))
            tx.create(world.document("document-of-b-1", type="booking", number="b-1", seats=3))
            tx.event("BookingMade", of=("booking", "b-1"), document="document-of-b-1")

        async def there() -> bool:
            read = await at_work.wired.read_model(board).inbox.entries.read(AggregateKey("booking", "b-1"))
            return read is not None and read.entry.state == Seats(seats=3)

        await eventually(there)
        assert await at_work.health.trouble() is None
    await topic.delete()

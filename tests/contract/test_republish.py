"""Stored events are published again: in order, under new ids that a resumed run repeats, and never what is parked.

On devstack: real documents, a real topic that drops duplicates, the real parking lot.
"""

import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4, uuid5

import pytest
from azure.cosmos.aio import CosmosClient
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import ServiceBusConnectionError

from cosmos_outbox.cosmos.aggregates.documents import SCHEMA_VERSION, digest
from cosmos_outbox.cosmos.maintenance.event_list import CosmosEventHistory, Span, Window
from cosmos_outbox.cosmos.relay.originals import CosmosOriginals
from cosmos_outbox.cosmos.relay.parked_documents import ParkedDocuments
from cosmos_outbox.cosmos.relay.parking import Parking
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.relay.relay import Relay
from cosmos_outbox.cosmos.store.consistent_reads import renew_tokens
from cosmos_outbox.cosmos.store.container import Container, Write
from cosmos_outbox.cosmos.store.partition_key import Item
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.operations.republish import DryRun, Republishing, RepublishingProgress
from cosmos_outbox.outbox.aggregate_block import AggregateBlock
from cosmos_outbox.outbox.errors import NotDelivered, Unavailable
from cosmos_outbox.outbox.feed import FeedEvent, OutboxEvent
from cosmos_outbox.outbox.publisher import Accepted, AggregateEvents, Outcome, Publisher, Unknown
from devstack.testing import Service, eventually
from tests.contract.conftest import ServiceBusBroker
from tests.support.azure import CONTACTS, PARKED, contacts_database, cosmos_connection
from tests.support.feed import EVENTS, contact_id, contact_key, event_document

A = contact_key("a")
RUN = uuid4()


@dataclass
class World:
    container: Container
    lot: CosmosParkingLot
    broker: ServiceBusBroker
    originals: CosmosOriginals
    session_token: str
    at_once: int = 200
    pauses: list[float] = field(default_factory=list)

    async def store(self, *items: Item) -> None:
        for item in items:
            plain = {name: value for name, value in item.items() if not name.startswith("_")}
            await self.container.execute(item["partitionKey"], [Write.upsert(plain)])

    async def stored(self) -> list[Item]:
        found, token = [], None
        while True:
            items, token = await self.container.page("SELECT * FROM c", {}, 100, token)
            found += items
            if token is None:
                return found

    async def next_second(self) -> None:
        """Return when the store's clock shows another second."""
        tick = {"id": "tick", "partitionKey": "tick", "type": "tick"}
        written: set[int] = set()

        async def another() -> bool:
            await self.store(tick)
            written.update([item["_ts"] for item in await self.stored() if item["type"] == "tick"])
            return len(written) > 1

        await eventually(another)

    async def span(self, aggregate: AggregateKey | None = None) -> Span:
        times = [item["_ts"] for item in await self.stored() if item["type"] == "domainEvent"]
        return Span(min(times), max(times) + 1, aggregate)

    def republishing(self, publisher: Publisher | None = None, run: UUID = RUN) -> Republishing:
        async def pause(seconds: float) -> None:
            self.pauses.append(seconds)

        history = CosmosEventHistory(self.container, EVENTS, self.session_token, self.at_once)
        publisher = publisher or self.broker.publisher
        return Republishing(history.window, self.lot, self.originals, publisher, run, 60.0, 20.0, pause)

    async def publish(
        self, work: Republishing | None = None, span: Span | None = None
    ) -> RepublishingProgress:
        progress = RepublishingProgress()
        async for _ in (work or self.republishing()).publish(span or await self.span(), progress):
            pass
        return progress

    async def received(self, contact: str, count: int) -> list[tuple[str, str, int]]:
        """(message id, id of the event, sequence) of all that a subscriber gets."""
        messages = await self.broker.topic.receive_all(contact_id(contact), count)
        found = []
        for message in messages:
            properties = {
                (name.decode() if isinstance(name, bytes) else name): value
                for name, value in (message.application_properties or {}).items()
            }
            first_sent = {properties[b] for b in ("originalMessageId", "cloudEvents_id") if b in properties}
            [event_id] = {one.decode() if isinstance(one, bytes) else str(one) for one in first_sent}
            assert str(message.message_id) != event_id or "originalMessageId" not in properties
            found.append((str(message.message_id), event_id, int(str(properties["sequence"]))))
        return found


@pytest.fixture
async def world(cosmos_server: Service, servicebus_broker: ServiceBusBroker) -> AsyncIterator[World]:
    async with contacts_database(cosmos_server) as database:
        client = CosmosClient.from_connection_string(cosmos_connection(cosmos_server))
        container = Container(client, database.id, CONTACTS)
        documents = ParkedDocuments(EVENTS)
        lot = CosmosParkingLot(Container(client, database.id, PARKED), "test", documents, ttl_seconds=600)
        session_token = await renew_tokens(container, database.get_container_client(CONTACTS))
        yield World(container, lot, servicebus_broker, CosmosOriginals(container, EVENTS), session_token)
        await client.close()


def document(contact: str, sequence: int, **data: Any) -> Item:
    item = event_document(contact, sequence, **data)
    return item | {"digest": digest(item), SCHEMA_VERSION: 1}


def event_id(contact: str, sequence: int) -> str:
    return str(document(contact, sequence)["id"])


def again(contact: str, *sequences: int, run: UUID = RUN) -> list[tuple[str, str, int]]:
    """What a subscriber gets of these events in a run."""
    ids = [event_id(contact, sequence) for sequence in sequences]
    return [(str(uuid5(run, one)), one, sequence) for one, sequence in zip(ids, sequences, strict=True)]


@dataclass
class Failing:
    """A topic that takes so many events, and then is away, or takes the rest of the page without an answer."""

    publisher: Publisher
    events: int
    answer_lost: bool = False
    pages: list[Sequence[AggregateEvents]] = field(default_factory=list)

    @property
    def guarantees(self) -> Any:
        return self.publisher.guarantees

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        self.pages.append(page)
        return [await self._publish(group, until) for group in page]

    async def _publish(self, group: AggregateEvents, until: float) -> Outcome:
        taken = group.events[: self.events]
        self.events -= len(taken)
        sent = group.events if self.answer_lost else taken
        if sent:
            [outcome] = await self.publisher.publish([AggregateEvents(group.aggregate, sent)], until)
            assert isinstance(outcome, Accepted)
        if len(taken) == len(group.events):
            return Accepted()
        return Unknown(len(taken), "Service Bus cannot be reached")


async def test_what_was_forwarded_is_published_again_in_order_under_new_ids(world: World) -> None:
    """The topic still knows the events' own ids, and drops them."""
    # A contact's events are written in order: a second may end anywhere between two of them.
    await world.store(*(document(contact, sequence) for sequence in range(1, 6) for contact in "ab"))
    await Relay(world.broker.publisher, world.lot, world.originals).forward(
        EVENTS.events(await world.stored())
    )
    for contact in "ab":
        first = await world.received(contact, 5)
        assert first == [
            (event_id(contact, number), event_id(contact, number), number) for number in range(1, 6)
        ]

    progress = await world.publish()
    assert (progress.published, progress.whole) == (10, True)
    assert await world.received("a", 5) == again("a", 1, 2, 3, 4, 5)
    assert await world.received("b", 5) == again("b", 1, 2, 3, 4, 5)


@pytest.mark.parametrize("at_once", [3, *(pytest.param(each, marks=pytest.mark.long) for each in (15, 200))])
async def test_an_aggregate_keeps_its_order_over_windows_of_any_size(world: World, at_once: int) -> None:
    """Several windows, some of several seconds, some of a part of one: what is cut off belongs to the next one."""
    world.at_once = at_once
    for start in range(1, 41, 10):
        items = [document("a", sequence) for sequence in range(start, start + 10)]
        random.Random(start).shuffle(items)
        await world.container.execute(contact_id("a"), [Write.create(_plain(item)) for item in items])
        await world.next_second()
    work = world.republishing(DryRun())
    windows = [reached async for reached in work.publish(await world.span(), RepublishingProgress())]
    assert windows == sorted(set(windows))
    assert (await world.publish()).published == 40
    assert await world.received("a", 40) == again("a", *range(1, 41))


def _plain(item: Item) -> Item:
    return {name: value for name, value in item.items() if not name.startswith("_")}


async def test_only_what_was_stored_in_the_time_is_published(world: World) -> None:
    await world.store(document("a", 1))
    whole = await world.span()
    assert (await world.publish(span=Span(0, whole.since))).published == 0
    assert (await world.publish(span=Span(whole.to, whole.to + 1000))).published == 0
    assert (await world.publish(span=Span(whole.since, whole.since + 1))).published == 1
    assert await world.received("a", 1) == again("a", 1)


async def test_one_aggregate_can_be_published_alone(world: World) -> None:
    await world.store(document("a", 1), document("b", 1))
    other = document("b", 2) | {
        "partitionKey": contact_id("b"),
        "aggregateId": contact_id("a"),
        "aggregateType": "x",
    }
    del other["data"]["contactId"]
    await world.store(other | {"digest": digest(other)})
    progress = await world.publish(span=await world.span(A))
    assert (progress.published, progress.whole) == (1, True)
    assert await world.received("a", 1) == again("a", 1)
    assert await world.broker.topic.is_empty(contact_id("b"))


async def test_a_run_that_was_cut_off_is_resumed_without_a_second_copy(world: World) -> None:
    """Cut off at an event whose answer was lost: the two failures of a resumption at once."""
    world.at_once = 4
    for sequence in range(1, 13):
        await world.store(document("a", sequence), document("b", sequence))
    cut = Failing(world.broker.publisher, events=8, answer_lost=True)
    with pytest.raises(NotDelivered, match="cannot be reached"):
        await world.publish(replace(world.republishing(cut), patience_seconds=0.0))

    assert (await world.publish()).published == 24, "from the beginning, under the same ids"
    assert await world.received("a", 12) == again("a", *range(1, 13))
    assert await world.received("b", 12) == again("b", *range(1, 13))

    other = uuid4()
    await world.publish(world.republishing(run=other))
    assert await world.received("a", 12) == again("a", *range(1, 13), run=other)


async def test_a_send_whose_answer_is_lost_is_repeated_under_the_same_id(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.store(*(document("a", sequence) for sequence in range(1, 4)))
    send, lost = ServiceBusSender.send_messages, iter([True])

    async def lose_the_first_answer(self: ServiceBusSender, *arguments: Any, **options: Any) -> None:
        await send(self, *arguments, **options)
        if next(lost, False):
            raise ServiceBusConnectionError

    monkeypatch.setattr(ServiceBusSender, "send_messages", lose_the_first_answer)
    assert (await world.publish()).published == 3
    assert world.pauses == [1.0]
    assert await world.received("a", 3) == again("a", 1, 2, 3)


async def test_a_broker_that_stays_away_ends_the_run_after_its_patience(world: World) -> None:
    await world.store(document("a", 1), document("a", 2))
    away = Failing(world.broker.publisher, events=0)
    with pytest.raises(NotDelivered):
        await world.publish(replace(world.republishing(away), patience_seconds=0.0))
    assert len(away.pages) == 1
    assert world.pauses == []
    assert await world.broker.topic.is_empty(contact_id("a"))


async def test_a_parked_aggregate_is_skipped_and_listed_and_the_others_go_out(world: World) -> None:
    await world.store(document("a", 1), document("a", 2), document("b", 1))
    [second] = EVENTS.events([document("a", 2)])
    await world.lot.park(AggregateBlock(A).blocked_by(second, "too large", [], utc_now()), [second])
    progress = await world.publish()
    assert progress.skipped == {A: "it is parked"}
    assert (progress.published, progress.whole) == (1, False)
    assert await world.received("b", 1) == again("b", 1)
    assert await world.broker.topic.is_empty(contact_id("a"))


async def test_an_aggregate_parked_during_the_run_is_skipped_from_there_on(world: World) -> None:
    """Freed later in the run, it stays skipped: its events would have a gap."""
    items = [document("a", sequence) for sequence in (1, 2, 3)]
    await world.store(*items)
    events = EVENTS.events(items)
    history = Scripted([[one] for one in events])
    work = replace(world.republishing(), window=history.window)
    progress = RepublishingProgress()
    windows = work.publish(Span(0, 3), progress)
    await anext(windows)
    block = AggregateBlock(A).blocked_by(events[1], "too large", [], utc_now())
    await world.lot.park(block, [events[1]])
    await anext(windows)
    [parked] = (await world.lot.read_blocks([A])).values()
    [waiting] = [one for one, _ in await world.lot.waiting(A, 10)]
    claimed = await world.lot.store(parked.claimed("replay", utc_now()))
    await world.lot.settle(claimed, [waiting], lambda newest: newest)
    assert not (await world.lot.read_blocks([A]))[A].blocked
    await anext(windows)
    assert progress.skipped == {A: "it is parked"}
    assert await world.received("a", 1) == again("a", 1)


@dataclass
class Scripted:
    """A history of one window each second."""

    windows: list[list[FeedEvent]]
    failures: list[Exception] = field(default_factory=list)

    async def window(self, span: Span) -> Window:
        if self.failures:
            raise self.failures.pop()
        return Window(self.windows[span.since], span.since + 1)


async def test_a_discarded_events_skip_marker_is_republished_in_its_place(world: World) -> None:
    items = [document("a", sequence) for sequence in (1, 2, 3)]
    await world.store(*items)
    events = EVENTS.events(items)
    long_ago = utc_now() - timedelta(hours=1)
    stopped = AggregateBlock(A).blocked_by(events[1], "too large", events[:1], long_ago)
    await world.lot.park(stopped, events[1:])
    parking = Parking(world.lot, world.broker.publisher, world.originals)
    [in_the_way] = [one for one, _ in await world.lot.waiting(A, 1)]
    await parking.discard(in_the_way.id, "no longer wanted")
    assert (await parking.replay(A)).done
    first_sent, _ = await world.broker.topic.receive(contact_id("a"), 2)

    progress = await world.publish()
    assert (progress.published, progress.discarded, progress.whole) == (3, 1, True)
    messages = await world.broker.topic.receive(contact_id("a"), 3)
    assert [(message.application_properties or {})[b"sequence"] for message in messages] == [1, 2, 3]
    skip_marker = messages[1]
    assert (str(skip_marker), skip_marker.subject) == (str(first_sent), "EventDiscarded"), (
        "the same skip marker as then"
    )
    assert skip_marker.message_id == str(uuid5(RUN, str(first_sent.message_id)))
    again_published = await world.publish()
    assert again_published.published == 3, "the topic drops them: a resumed run has the same ids"


async def test_a_document_that_is_not_as_committed_stops_its_aggregate_only(world: World) -> None:
    forged = document("a", 2) | {"data": document("a", 2)["data"] | {"action": "Forged"}}
    ownerless = document("c", 1) | {"id": "no-owner", "partitionKey": "x" * 200}
    await world.store(document("a", 1), forged, document("a", 3), document("b", 1), ownerless)
    progress = await world.publish()
    assert list(progress.skipped) == [A]
    assert "unverified" in progress.skipped[A]
    assert event_id("a", 2) in progress.skipped[A]
    assert (progress.published, progress.ownerless) == (2, 1)
    assert await world.received("a", 1) == again("a", 1)
    assert await world.received("b", 1) == again("b", 1)


async def test_a_store_that_fails_for_a_moment_does_not_end_the_run(world: World) -> None:
    await world.store(document("a", 1))
    events = EVENTS.events([document("a", 1)])
    work = replace(world.republishing(), window=Scripted([events], [Unavailable("injected")] * 3).window)
    assert (await world.publish(work, Span(0, 1))).published == 1
    assert world.pauses == [1.0, 2.0, 4.0]
    stays_away = Scripted([events], [Unavailable("injected")] * 99)
    with pytest.raises(Unavailable):
        await world.publish(replace(work, window=stays_away.window, patience_seconds=0.0), Span(0, 1))


async def test_an_event_without_a_sequence_is_ordered_by_the_time_of_its_write(world: World) -> None:
    early = document("a", 1, createdAt="2026-03-01T12:00:01Z")
    late = document("a", 2, createdAt="2026-03-01T12:00:02Z")
    for item in (early, late):
        del item["data"]["sequence"]
        item["digest"] = digest(item)
    await world.container.execute(contact_id("a"), [Write.create(_plain(late)), Write.create(_plain(early))])
    work = world.republishing()
    window = await work.window(await world.span())
    published = Failing(world.broker.publisher, events=99)
    await world.publish(replace(work, publisher=published))
    [[group]] = published.pages
    assert [event.id for event in group.events] == [early["id"], late["id"]]
    assert all(isinstance(event, OutboxEvent) for event in window.events)

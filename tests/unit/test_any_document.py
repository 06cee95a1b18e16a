"""Whatever a document holds, it costs its aggregate and nobody else, and an operator can get rid of it.

The real reader, sorter, parked documents and encoder of the SDK; what is in memory is the topic, and the lot's store.
"""

import json
import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, cast
from uuid import uuid4

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch

from cosmos_outbox.cosmos.aggregates.documents import EventReader, is_as_committed
from cosmos_outbox.cosmos.relay.originals import CosmosOriginals
from cosmos_outbox.cosmos.relay.parked_documents import MarkerDocuments, ParkedDocuments, chunks
from cosmos_outbox.cosmos.store.partition_key import PartitionKeyPaths
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.errors import StillUnsendable
from cosmos_outbox.outbox.feed import FeedEvent, Notice, Originals, OutboxEvent, Poison
from cosmos_outbox.outbox.marker import Marker
from cosmos_outbox.outbox.parking import Parking
from cosmos_outbox.outbox.publisher import CloudEvents
from cosmos_outbox.outbox.relay import Relay
from cosmos_outbox.outbox.republish import Republishing, RepublishingProgress, Span, Window
from cosmos_outbox.servicebus.publisher import ServiceBusPublisher
from cosmos_outbox.servicebus.senders import Limits
from tests.support.any_document import any_document, drawn, nested
from tests.support.contacts import NOON
from tests.support.fake_parking_lot import FakeParkingLot
from tests.support.feed import EVENTS, contact_id, contact_key, event_document

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 11)), None]
"""None: another one in each run, which the output of a failure names."""
PAGES, CONTACTS_IN_PAGE = 5, 25
DOCUMENTS = ParkedDocuments(EVENTS)
MARKERS = MarkerDocuments(600)


class Topic:
    """Stands in for the senders: what is sent is encoded by the SDK's own codec."""

    def __init__(self) -> None:
        self.stored: list[tuple[str, str]] = []

    async def limits(self, *, batches: int) -> Limits:
        assert batches > 0
        return Limits(256 * 1024, 256 * 1024)

    async def renew(self) -> None:
        """Its limits stay."""

    async def take(self) -> "Topic":
        return self

    async def give_back(self, _sender: "Topic") -> None:
        """It serves all."""

    async def send(self, messages: Sequence[ServiceBusMessage]) -> None:
        batch = ServiceBusMessageBatch(10**9)
        for message in messages:
            batch.add_message(message)
        self.stored += [
            (str((message.application_properties or {})["cloudEvents_subject"]), str(message.message_id))
            for message in messages
        ]


class Stored:
    """The container of the feed: it holds what was delivered."""

    def __init__(self, items: Sequence[dict[str, Any]]) -> None:
        self.items = items

    async def read(
        self, item_id: str, partition_key: str, *, consistent: bool = False
    ) -> dict[str, Any] | None:
        f"{item_id}{partition_key}".encode()  # as the SDK does to make a URL of them
        place = item_id, partition_key
        return next(
            (item for item in self.items if (item.get("id"), item.get("partitionKey")) == place), None
        )

    async def exists(self, item_id: str, partition_key: str) -> bool:
        return await self.read(item_id, partition_key) is not None


class Lot(FakeParkingLot):
    """In memory; makes the items that the store would get, and as the store reads them."""

    async def park(self, marker: Any, events: Sequence[FeedEvent]) -> Any:
        behind, places = marker.with_parked(events)
        json.dumps(MARKERS.item(behind, "parked", NOON)).encode()
        made = [DOCUMENTS.event_item(e, marker, p, at=NOON) for e, p in zip(events, places, strict=True)]
        for item in (item for chunk in chunks(made) for item in chunk):
            read = json.loads(json.dumps(item))
            DOCUMENTS.feed_event(DOCUMENTS.event(read, marker))
            storable = DOCUMENTS.without_document(read)
            json.dumps(storable, ensure_ascii=False).encode()
            assert len(json.dumps(storable)) < 20_000
        return await super().park(marker, events)

    async def park_alone(self, poison: Any) -> bool:
        read = json.loads(json.dumps(DOCUMENTS.alone_item(poison, at=NOON)))
        json.dumps(DOCUMENTS.without_document(read), ensure_ascii=False).encode()
        return await super().park_alone(poison)


class History:
    def __init__(self, events: Sequence[FeedEvent]) -> None:
        self.events = events

    async def window(self, span: Span) -> Window:
        return Window(self.events, span.to)


def publisher(topic: Topic) -> ServiceBusPublisher:
    made = ServiceBusPublisher(
        cast(Any, None), "topic", service=CloudEvents("/test"), partitioned=False, senders=1
    )
    made._senders = cast(Any, topic)
    return made


def page(rng: random.Random) -> list[dict[str, Any]]:
    items = [event_document("healthy", sequence) for sequence in (1, 2, 3)]
    for number in range(CONTACTS_IN_PAGE):
        contact = f"c{number}"
        depth = rng.choice([120, 120, 900])
        items += [any_document(rng, contact, 1, depth=depth), event_document(contact, 2)]
    rng.shuffle(items)
    return items


def owner(event: FeedEvent) -> str | None:
    return event.aggregate.id if event.aggregate else None


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_document_costs_its_aggregate_alone_and_can_be_given_up(seed: int | None) -> None:
    rng = random.Random(drawn(seed))
    for _ in range(PAGES):
        items, topic, lot = page(rng), Topic(), Lot()
        originals = CosmosOriginals(cast(Any, Stored(items)), EVENTS)
        events = EVENTS.events(items)
        relay = Relay(publisher(topic), lot, originals)
        forwarded = await relay.forward(events)
        assert forwarded.sent + forwarded.parked == len(events)
        parked = {one.event.id for one in lot.parked.values()}
        assert {event.id for event in events} == {event_id for _, event_id in topic.stored} | parked
        ids = [event_document("healthy", sequence)["id"] for sequence in (1, 2, 3)]
        assert [event_id for session, event_id in topic.stored if session == contact_id("healthy")] == ids

        again = Republishing(History(events), lot, originals, publisher(topic), uuid4(), 60.0, 1.0)
        progress = RepublishingProgress()
        async for _ in again.publish(Span(0, 1), progress):
            pass
        assert progress.published >= 3

        await given_up(desk(lot, topic, originals), lot)
        assert not any(one.discarding is None and one.event.aggregate for one in lot.parked.values())


async def test_a_document_that_is_anothers_by_now_stops_its_aggregate_and_nothing_raises() -> None:
    """Somebody wrote it anew between the first look and the second."""
    delivered = [event_document(contact, sequence) for contact in "ab" for sequence in (1, 2)]
    changed = [delivered[0], delivered[1] | {"aggregateType": "order", "data": {}}, *delivered[2:]]
    events, topic, lot = EVENTS.events(delivered), Topic(), Lot()
    originals = CosmosOriginals(cast(Any, Stored(changed)), EVENTS)
    progress = RepublishingProgress()
    async for _ in Republishing(
        History(events), lot, originals, publisher(topic), uuid4(), 60.0, 1.0
    ).publish(Span(0, 1), progress):
        pass
    assert progress.published == 3
    assert list(progress.skipped) == [contact_key("a")]
    assert "belongs to another aggregate now" in progress.skipped[contact_key("a")]

    await lot.park(Marker(contact_key("a")).block(events[0], "refused", [], NOON), events[:2])
    with pytest.raises(StillUnsendable, match="belongs to another aggregate now"):
        await desk(lot, topic, originals).replay(contact_key("a"))
    [(left, _)] = await lot.waiting(contact_key("a"), 10)
    assert left.event_id == events[1].id
    await given_up(desk(lot, topic, originals), lot)
    assert await lot.list_blocked() == []


@pytest.mark.parametrize("paths", [("/partitionKey",), ("/tenant", "/owner/id"), ("/owner/tenant/id",)])
@pytest.mark.parametrize(
    "value", [None, "", "\ud800", "x" * 2049, 10**400, float("nan"), {"a": 1}, [1], ["a", "b"]]
)
async def test_an_event_under_a_key_that_is_none_is_poison_that_can_be_parked_and_given_up(
    paths: tuple[str, ...], value: Any
) -> None:
    """Whatever the paths of the container are."""
    of = PartitionKeyPaths(paths)
    broken = [value] * len(paths) if len(paths) > 1 else value
    stored = {
        name: each for name, each in event_document("a", 1).items() if name not in ("partitionKey", "digest")
    }
    item = stored | {"aggregateId": contact_id("a"), **of.fields(broken), "_lsn": 3}
    reader = EventReader(EVENTS.untyped, of)
    event = reader.event(item)
    assert event is not None
    [found] = await CosmosOriginals(cast(Any, Stored([])), reader).verify([event])
    assert isinstance(found, Poison)
    assert found.aggregate == contact_key("a")

    documents = ParkedDocuments(reader)
    [place] = Marker(contact_key("a")).with_parked([found])[1]
    parked = documents.event_item(found, Marker(contact_key("a")), place, at=NOON)
    for left in (parked, documents.without_document(parked)):
        json.dumps(documents.without_document(left), ensure_ascii=False, allow_nan=False).encode()
        notice = documents.notice_item(Notice(contact_key("a"), found.id, found.sequence, NOON), left)
        json.dumps(notice, ensure_ascii=False, allow_nan=False).encode()
        assert is_as_committed(notice["document"], of)
        assert isinstance(reader.event(notice["document"]), OutboxEvent)


@pytest.mark.parametrize(
    "make", [lambda: nested(200_000), lambda: 10**5_000], ids=["too deep", "too long a number"]
)
async def test_a_document_that_no_text_can_be_made_of_is_parked_without_its_content_and_stops_nobody(
    make: Callable[[], object],
) -> None:
    topic, lot = Topic(), Lot()
    items = [event_document("a", 1, odd=make()), event_document("a", 2), event_document("b", 1)]
    originals = CosmosOriginals(cast(Any, Stored(items)), EVENTS)
    forwarded = await Relay(publisher(topic), lot, originals).forward(EVENTS.events(items))
    assert (forwarded.sent, forwarded.parked) == (1, 2)
    assert [event_id for _, event_id in topic.stored] == [items[2]["id"]]
    [(first, event), _] = await lot.waiting(contact_key("a"), 10)
    [place] = Marker(contact_key("a")).with_parked([event])[1]
    kept = DOCUMENTS.event_item(event, lot.stored[contact_key("a")], place, at=NOON)["document"]
    assert kept == {"id": first.event_id, "partitionKey": contact_id("a")}


def desk(lot: FakeParkingLot, topic: Topic, originals: Originals) -> Parking:
    """An operator's, who does not wait for the time in which a relay may still be sending."""
    now = utc_now()

    async def pause(seconds: float) -> None:
        nonlocal now
        now += timedelta(seconds=seconds)

    return Parking(lot, publisher(topic), originals, clock=lambda: now, pause=pause)


async def given_up(parking: Parking, lot: FakeParkingLot) -> None:
    """An operator's last resort, for every aggregate that is parked."""
    for marker in await lot.list_blocked():
        for _ in range(10):
            try:
                if (await parking.replay(marker.aggregate)).done:
                    break
            except StillUnsendable:
                [(first, _)] = await lot.waiting(marker.aggregate, 1)
                await parking.discard(first.id, "it is poison")
        else:
            pytest.fail(f"{marker.aggregate} is still parked")

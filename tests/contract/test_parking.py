"""Parked events are kept in order and replayed in order, and no event overtakes the parked events of its contact."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient

from devstack.testing import Service
from infra.contacts.documents import CONTACTS
from infra.cosmos.container import Container, Write
from infra.cosmos.parked_documents import PARTITION, ParkedDocuments
from infra.cosmos.parking_lot import CosmosParkingLot
from outbox.aggregate import AggregateKey
from outbox.errors import (
    NotDelivered,
    NotParked,
    PreconditionFailed,
    StillUnsendable,
    UnknownContinuation,
)
from outbox.parking import Parking
from outbox.parking_lot import ParkedAggregate, ParkingLot
from outbox.relay import Relay
from tests.support.azure import PARKED, contacts_database, cosmos_connection
from tests.support.emulators import Gap
from tests.support.fakes import FakeParkingLot, FakePublisher
from tests.support.feed import EVENTS, contact_key, event_document, poison_document, read

A = contact_key("a")


@dataclass
class World:
    """A relay and an operator's desk over one parking lot and one topic."""

    lot: ParkingLot
    topic: FakePublisher

    @property
    def relay(self) -> Relay:
        return Relay(self.topic, self.lot)

    @property
    def parking(self) -> Parking:
        return Parking(self.lot, self.topic)

    async def feed(self, *items: dict[str, Any]) -> None:
        await self.relay.forward([read(item) for item in items])

    def sent(self, contact: str) -> list[str]:
        return self.topic.of(contact_key(contact))


def event(sequence: int, contact: str = "a", **data: Any) -> dict[str, Any]:
    return event_document(contact, sequence, **data)


def large(sequence: int) -> dict[str, Any]:
    return event(sequence, text="x" * 2000)


def ids(*sequences: int) -> list[str]:
    return [event(sequence)["id"] for sequence in sequences]


@pytest.fixture
async def cosmos_lot(cosmos_server: Service) -> AsyncIterator[CosmosParkingLot]:
    async with contacts_database(cosmos_server) as database:
        client = CosmosClient.from_connection_string(cosmos_connection(cosmos_server))
        container = Container(client, database.id, PARKED)
        documents = ParkedDocuments(EVENTS, CONTACTS.parked)
        yield CosmosParkingLot(container, "test", documents, discarded_ttl_seconds=60)
        await client.close()


@pytest.fixture(params=["fake", "devstack"])
async def world(request: pytest.FixtureRequest, cosmos_lot: CosmosParkingLot) -> World:
    return World(FakeParkingLot() if request.param == "fake" else cosmos_lot, FakePublisher(limit=1000))


async def test_a_contact_is_parked_listed_mended_and_replayed_in_order(world: World) -> None:
    await world.feed(event(1), large(2), event(3), event(1, "b"))
    await world.feed(event(4))
    assert world.sent("a") == ids(1)
    assert world.sent("b") == [event(1, "b")["id"]]

    listed = (await world.parking.page(10, None)).items
    assert sorted((one.sequence, one.aggregate) for one in listed) == [(2, A), (3, A), (4, A)]
    by_sequence = {one.sequence: one for one in listed}
    assert by_sequence[2].reason == "too large"
    assert ids(2)[0] in by_sequence[3].reason
    shown = await world.parking.show(by_sequence[2].id)
    assert shown.document["data"]["text"] == "x" * 2000

    world.topic.limit = 10_000
    result = await world.parking.replay(A)

    assert (result.replayed, result.done) == (3, True)
    assert world.sent("a") == ids(1, 2, 3, 4)
    assert (await world.parking.page(10, None)).items == []
    await world.feed(event(5))
    assert world.sent("a") == ids(1, 2, 3, 4, 5)


async def test_a_replay_stops_where_an_event_still_cannot_be_sent(world: World) -> None:
    await world.feed(large(1), event(2), large(3), event(4))
    with pytest.raises(StillUnsendable, match=ids(1)[0]):
        await world.parking.replay(A)
    assert world.sent("a") == []

    first = next(one for one in (await world.parking.page(10, None)).items if one.sequence == 1)
    await world.parking.discard(first.id, "not needed")
    with pytest.raises(StillUnsendable, match=ids(3)[0]):
        await world.parking.replay(A)
    assert world.sent("a") == ids(2)

    await world.feed(event(5))
    assert world.sent("a") == ids(2)
    world.topic.limit = 10_000
    assert (await world.parking.replay(A)).replayed == 3
    assert world.sent("a") == ids(2, 3, 4, 5)


async def test_discarding_the_only_parked_event_lets_the_contact_go_on(world: World) -> None:
    await world.feed(event(1), poison_document("a", lsn=2))
    [parked] = (await world.parking.page(10, None)).items
    assert (parked.aggregate, parked.action, parked.sequence) == (A, None, None)
    await world.parking.discard(parked.id, "made by hand")
    await world.feed(event(2, lsn=3))
    assert world.sent("a") == ids(1, 2)
    with pytest.raises(NotParked):
        await world.parking.replay(A)
    with pytest.raises(NotParked):
        await world.parking.show(parked.id)


async def test_poison_of_no_aggregate_blocks_nothing(world: World) -> None:
    await world.feed(poison_document(None, lsn=1), event(1))
    await world.feed(poison_document(None, lsn=1))
    [parked] = (await world.parking.page(10, None)).items
    assert (parked.event_id, parked.aggregate) == ("poison-1", None)
    assert world.sent("a") == ids(1)
    await world.parking.discard(parked.id, "rubbish")
    assert (await world.parking.page(10, None)).items == []


async def test_a_replay_sends_what_the_relay_parks_meanwhile(world: World) -> None:
    await world.feed(large(1))
    world.topic.limit = 10_000
    release, fed = world.lot.release, False

    async def release_late(parked: ParkedAggregate) -> bool:
        nonlocal fed
        if not fed:
            fed = True
            await world.feed(event(2))
        return await release(parked)

    world.lot.release = release_late  # type: ignore[method-assign]  # the relay runs right before the release
    assert (await world.parking.replay(A)).replayed == 2
    assert world.sent("a") == ids(1, 2)
    assert await world.lot.aggregate(A) is None


async def test_a_replay_that_died_after_sending_is_done_again_without_harm(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.feed(large(1), event(2))
    world.topic.limit = 10_000

    async def die(parked: Sequence[object]) -> None:
        raise ConnectionResetError

    monkeypatch.setattr(world.lot, "remove", die)
    with pytest.raises(ConnectionResetError):
        await world.parking.replay(A)
    monkeypatch.undo()
    await world.feed(event(3))
    assert (await world.parking.replay(A)).done
    assert world.sent("a") == ids(1, 2, 3)


async def test_a_relay_that_died_after_parking_parks_nothing_twice(world: World) -> None:
    batch = [event(1), large(2), event(3)]
    await world.feed(*batch)
    await world.feed(*batch)
    assert len((await world.parking.page(10, None)).items) == 2
    world.topic.limit = 10_000
    await world.parking.replay(A)
    assert world.sent("a") == ids(1, 2, 3)


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_two_operators_replay_at_once_and_the_order_holds(world: World) -> None:
    await world.feed(large(1), *(event(sequence) for sequence in range(2, 120)))
    world.topic.limit = 10_000
    outcomes = await asyncio.gather(world.parking.replay(A), world.parking.replay(A), return_exceptions=True)
    assert any(not isinstance(outcome, BaseException) and outcome.done for outcome in outcomes)
    assert world.sent("a") == ids(*range(1, 120))
    assert await world.lot.aggregate(A) is None


async def test_a_replay_while_the_broker_is_away_keeps_everything(world: World) -> None:
    await world.feed(large(1), event(2))
    world.topic.limit = 10_000
    world.topic.fail_for.add(A.id)
    with pytest.raises(NotDelivered):
        await world.parking.replay(A)
    assert len((await world.parking.page(10, None)).items) == 2


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_parking_needs_the_newest_version(world: World) -> None:
    first = ParkedAggregate(A, "x", "r", (1, 1), version="")
    await world.lot.park(first, [read(large(1))])
    with pytest.raises(PreconditionFailed):
        await world.lot.park(first, [read(event(2))])
    seen = await world.lot.aggregate(A)
    assert seen is not None
    await world.lot.park(seen, [read(event(2))])
    with pytest.raises(PreconditionFailed):
        await world.lot.park(seen, [read(event(3))])
    assert not await world.lot.release(seen)


async def test_an_id_or_aggregate_that_is_not_parked_is_not_found(world: World) -> None:
    for call in (world.parking.show("0" * 32), world.parking.discard("0" * 32, "r"), world.parking.replay(A)):
        with pytest.raises(NotParked):
            await call


async def test_a_list_of_parked_events_goes_page_by_page(world: World) -> None:
    await world.feed(large(1), *(event(sequence) for sequence in range(2, 8)))
    seen: list[int | None] = []
    token: str | None = None
    while True:
        page = await world.parking.page(3, token)
        assert len(page.items) <= 3
        seen += [one.sequence for one in page.items]
        token = page.continuation_token
        if token is None:
            break
    assert sorted(seen, key=str) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.known_gap(Gap.BATCH_LIMITS)
async def test_documents_too_large_for_one_transaction_are_parked_all_the_same(
    cosmos_lot: CosmosParkingLot,
) -> None:
    world = World(cosmos_lot, FakePublisher(limit=1000))
    heavy = [event(sequence, text="x" * 700_000) for sequence in range(1, 6)]
    await world.feed(*heavy)
    parked = [parked for parked, _ in await cosmos_lot.waiting(A, 10)]
    assert [len(one.document["data"]["text"]) for one in parked] == [700_000] * 5


@pytest.mark.known_gap(Gap.BATCH_LIMITS)
# aiohttp's advice for bodies over 1 MB; the SDK hands it bytes.
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_a_document_that_leaves_no_room_for_a_wrapping_is_parked_without_its_content(
    cosmos_lot: CosmosParkingLot,
) -> None:
    world = World(cosmos_lot, FakePublisher(limit=1000))
    await world.feed(event(1, text="x" * (2 * 1024 * 1024 - 700)), event(2))
    first, second = [parked for parked, _ in await cosmos_lot.waiting(A, 10)]
    assert "too large to be kept here" in first.reason
    assert first.document["id"] == ids(1)[0]
    assert second.document["data"]["sequence"] == 2


async def test_a_foreign_token_is_refused(cosmos_lot: CosmosParkingLot) -> None:
    with pytest.raises(UnknownContinuation):
        await cosmos_lot.page(10, "AAAA")


async def test_aggregates_of_two_types_and_one_id_are_parked_apart(world: World) -> None:
    order = AggregateKey("order", A.id)
    await world.feed(large(1), {**large(2), "aggregateType": "order"}, event(3))
    assert set(await world.lot.aggregates()) == {A, order}
    world.topic.limit = 10_000
    assert (await world.parking.replay(order)).replayed == 1
    assert set(await world.lot.aggregates()) == {A}
    assert (await world.parking.replay(A)).replayed == 2
    assert world.sent("a") == ids(2, 1, 3)


@pytest.mark.parametrize("odd", ["a/b?c#d\\e", "x" * 128, "ä ö", "a-b"])
async def test_an_aggregate_of_any_id_can_be_parked(world: World, odd: str) -> None:
    document = large(1)
    del document["data"]["contactId"]
    await world.feed({**document, "aggregateType": "my-type", "aggregateId": odd})
    key = AggregateKey("my-type", odd)
    assert await world.lot.aggregate(key) is not None
    world.topic.limit = 10_000
    assert (await world.parking.replay(key)).done


async def test_an_event_parked_before_documents_named_their_type_is_replayed(
    cosmos_lot: CosmosParkingLot,
) -> None:
    """As the version before stored a parked contact."""
    document = event_document("a", 2)
    marker = {
        "id": f"contact-{A.id}", "partitionKey": PARTITION, "type": "parkedContact", "contactId": A.id,
        "blockedBy": document["id"], "reason": "too large", "position": f"{2:020d}-{2:020d}",
    }  # fmt: skip
    waiting = {
        "id": "0" * 32, "partitionKey": PARTITION, "type": "parkedEvent", "eventId": document["id"],
        "contactId": A.id, "action": "Changed", "sequence": 2, "position": f"{2:020d}-{2:020d}",
        "reason": "too large", "parkedAt": "2026-03-01T12:00:00+00:00", "document": document,
    }  # fmt: skip
    await cosmos_lot._container.execute(PARTITION, [Write.create(marker), Write.create(waiting)])
    world = World(cosmos_lot, FakePublisher())
    await world.feed(event(3))
    assert world.sent("a") == []
    assert [one.aggregate for one in (await world.parking.page(10, None)).items] == [A, A]
    assert (await world.parking.replay(A)).replayed == 2
    assert world.sent("a") == ids(2, 3)


async def test_the_version_before_can_read_what_is_parked(cosmos_lot: CosmosParkingLot) -> None:
    """While old and new instances run side by side: the names that the version before goes by."""
    await World(cosmos_lot, FakePublisher(limit=1000)).feed(large(1), poison_document(None, lsn=1))
    items, _ = await cosmos_lot._container.page("SELECT * FROM c", {}, 10, None, partition_key=PARTITION)
    found = {(item["type"], item["contactId"]) for item in items}
    assert found == {("parkedContact", A.id), ("parkedEvent", A.id), ("parkedEvent", None)}

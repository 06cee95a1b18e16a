"""Parked events are kept in order and replayed in order, and no event overtakes the parked events of its contact."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.relay import parking_lot
from cosmos_outbox.cosmos.relay.parked_documents import (
    PARTITION,
    Change,
    ParkedDocuments,
    ParkedEvent,
    ParkedState,
)
from cosmos_outbox.cosmos.relay.parking import (
    EXPIRED,
    MAX_AGE_SECONDS,
    REPLAY_SECONDS,
    UPKEEP_SECONDS,
    Parking,
    Replayed,
)
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.relay.relay import READING_SECONDS, Relay
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import Item, Key
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.aggregate_block import AggregateBlock
from cosmos_outbox.outbox.errors import (
    BeingReplayed,
    NotDelivered,
    NotInTheWay,
    NotParked,
    PreconditionFailed,
    StillUnsendable,
    Unavailable,
    UnknownContinuation,
)
from cosmos_outbox.outbox.feed import ACTION, FeedEvent, OutboxEvent, SkipMarker
from cosmos_outbox.outbox.publisher import AggregateEvents, Outcome, Refused, Unknown
from devstack.testing import Service
from outbox_simulation.engine.bus_publisher import BusPublisher
from tests.support.azure import PARKED, contacts_database, cosmos_connection
from tests.support.contacts import NOON
from tests.support.emulators import Gap
from tests.support.feed import EVENTS, contact_key, event_document, poison_document, read
from tests.support.losses import Failing, Fate, Loss, ProcessDied
from tests.support.memory import committed

A = contact_key("a")


@dataclass
class World:
    """A relay and an operator's desk over one parking lot and one topic."""

    lot: CosmosParkingLot
    topic: BusPublisher

    now: datetime = field(default_factory=utc_now)

    @property
    def relay(self) -> Relay:
        return Relay(self.topic, self.lot, committed(self.lot), clock=self.clock)

    @property
    def parking(self) -> Parking:
        return Parking(self.lot, self.topic, committed(self.lot), clock=self.clock, pause=self.pause)

    def clock(self) -> datetime:
        return self.now

    async def pause(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    async def block(self, aggregate: AggregateKey = A) -> AggregateBlock | None:
        return (await self.lot.read_blocks([aggregate])).get(aggregate)

    async def is_blocked(self, aggregate: AggregateKey = A) -> bool:
        block = await self.block(aggregate)
        return block is not None and block.blocked

    async def listed(self, *, discarded: bool = False) -> list[ParkedEvent]:
        return list((await self.parking.page(100, None, discarded=discarded)).items)

    async def parked(self, sequence: int) -> ParkedEvent:
        return next(one for one in await self.listed() if one.sequence == sequence and not one.is_skip)

    async def feed(self, *items: dict[str, Any]) -> None:
        await self.relay.forward([read(item) for item in items])

    def sent(self, contact: str) -> list[str]:
        return self.topic.of(contact_key(contact))


def event(sequence: int, contact: str = "a", **data: Any) -> dict[str, Any]:
    return event_document(contact, sequence, **data)


def large(sequence: int, contact: str = "a", *, lsn: int | None = None) -> dict[str, Any]:
    return event_document(contact, sequence, lsn=lsn, text="x" * 2000)


def unsequenced(number: int) -> dict[str, Any]:
    """As the article's own sample stores an event."""
    item = event(number)
    del item["data"]["sequence"]
    return item


def skip_marker(sequence: int, contact: str = "a") -> str:
    return SkipMarker(contact_key(contact), event(sequence, contact)["id"], sequence, NOON).id


def ids(*sequences: int) -> list[str]:
    return [event(sequence)["id"] for sequence in sequences]


@pytest.fixture
async def cosmos_lot(cosmos_server: Service) -> AsyncIterator[CosmosParkingLot]:
    async with contacts_database(cosmos_server) as database:
        client = CosmosClient.from_connection_string(cosmos_connection(cosmos_server))
        container = Container(client, database.id, PARKED)
        documents = ParkedDocuments(EVENTS)
        yield CosmosParkingLot(container, "test", documents, ttl_seconds=60)
        await client.close()


@pytest.fixture
async def world(cosmos_lot: CosmosParkingLot) -> World:
    return World(cosmos_lot, BusPublisher(limit=1000))


async def test_a_contact_is_parked_listed_mended_and_replayed_in_order(world: World) -> None:
    await world.feed(event(1), large(2), event(3), event(1, "b"))
    await world.feed(event(4))
    assert world.sent("a") == ids(1)
    assert world.sent("b") == [event(1, "b")["id"]]

    listed = (await world.parking.page(10, None)).items
    assert sorted((one.sequence, one.aggregate) for one in listed) == [(2, A), (3, A), (4, A)]
    by_sequence = {one.sequence: one for one in listed}
    assert (by_sequence[2].reason, by_sequence[2].state) == ("too large", ParkedState.IN_THE_WAY)
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
    first = await world.parked(1)
    assert (first.state, first.attempts) == (ParkedState.IN_THE_WAY, 2)
    assert (await world.parked(2)).attempts == 0

    await world.parking.discard(first.id, "not needed")
    with pytest.raises(StillUnsendable, match=ids(3)[0]):
        await world.parking.replay(A)
    assert world.sent("a") == [skip_marker(1), *ids(2)]

    await world.feed(event(5))
    assert world.sent("a") == [skip_marker(1), *ids(2)]
    world.topic.limit = 10_000
    assert (await world.parking.replay(A)).replayed == 3
    assert world.sent("a") == [skip_marker(1), *ids(2, 3, 4, 5)]


async def test_a_discarded_event_leaves_a_skip_marker_and_stays_visible(world: World) -> None:
    await world.feed(event(1), poison_document("a", lsn=2))
    [parked] = await world.listed()
    assert (parked.aggregate, parked.action, parked.sequence) == (A, None, None)
    await world.parking.discard(parked.id, "made by hand")

    [placed] = await world.listed()
    assert (placed.is_skip, placed.action, placed.sequence) == (True, "EventDiscarded", None)
    shown = await world.parking.show(parked.id)
    assert shown.state is ParkedState.DISCARDED
    assert shown.discarding is not None
    assert shown.discarding.reason == "made by hand"
    assert [one.id for one in await world.listed(discarded=True)] == [parked.id]

    await world.feed(event(2, lsn=3))
    assert world.sent("a") == ids(1)
    assert (await world.parking.replay(A)).replayed == 2
    assert world.sent("a") == [ids(1)[0], placed.event_id, ids(2)[0]]
    with pytest.raises(NotParked):
        await world.parking.replay(A)


async def test_a_skip_marker_has_the_sequence_and_nothing_else_of_its_event(world: World) -> None:
    await world.feed(large(1))
    await world.parking.discard((await world.parked(1)).id, "r")
    [(_, placed)] = await world.lot.waiting(A, 10)
    assert isinstance(placed, OutboxEvent)
    assert placed.data == {
        "id": skip_marker(1), "action": "EventDiscarded", "sequence": 1, "createdAt": placed.data["createdAt"],
        "aggregateType": "contact", "aggregateId": A.id, "discardedEventId": ids(1)[0],
    }  # fmt: skip


@pytest.mark.parametrize("later", [0.0, 1.1 * READING_SECONDS - 0.5])
async def test_a_repeatable_discard_waits_for_relays_that_read_before_the_block(
    world: World, later: float
) -> None:
    await world.feed(large(1), event(2))
    first = await world.parked(1)
    began = world.now
    world.now += timedelta(seconds=later)
    await world.parking.discard(first.id, "r")
    assert (world.now - began).total_seconds() == pytest.approx(1.1 * READING_SECONDS, abs=0.01)
    await world.parking.discard(first.id, "another reason")
    assert [one.is_skip for one in await world.listed()].count(True) == 1
    assert [one.discarding.reason for one in await world.listed(discarded=True) if one.discarding] == ["r"]


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_a_gone_or_discarded_event_is_not_discarded_at_the_newest_version(
    cosmos_lot: CosmosParkingLot,
) -> None:
    world = World(cosmos_lot, BusPublisher(limit=1000))
    await world.feed(large(1), event(2))
    first = await world.parked(1)
    skip = SkipMarker(A, first.event_id, 1, world.now)
    block = (await world.lot.read_blocks([A]))[A]
    with pytest.raises(PreconditionFailed):
        await world.lot.discard(block, replace(first, id="gone"), skip, "r")
    await world.feed(event(3))
    with pytest.raises(PreconditionFailed):
        await world.lot.discard(block, first, skip, "r")
    await world.parking.discard(first.id, "r")
    block = (await world.lot.read_blocks([A]))[A]
    with pytest.raises(PreconditionFailed):
        await world.lot.discard(block, first, replace(skip, sequence=7), "another reason")
    assert [one.discarding.reason for one in await world.listed(discarded=True) if one.discarding] == ["r"]


async def test_only_the_event_in_the_way_can_be_discarded(world: World) -> None:
    await world.feed(large(1), event(2))
    second = await world.parked(2)
    with pytest.raises(NotInTheWay, match=f"waits behind event {ids(1)[0]}"):
        await world.parking.discard(second.id, "r")
    await world.parking.discard((await world.parked(1)).id, "r")
    with pytest.raises(NotInTheWay, match="being replayed"):
        await world.parking.discard(second.id, "r")
    assert len(await world.listed()) == 2


async def test_a_redelivered_page_undoes_no_discard_and_parks_no_replayed_event(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    page = [event(1), large(2), event(3)]
    await world.feed(*page)
    await world.parking.discard((await world.parked(2)).id, "r")
    world.topic.limit = 10_000  # the topic would take the discarded event now
    await world.feed(*page)
    assert [(one.sequence, one.is_skip) for one in await world.listed()] == [(3, False), (2, True)]
    await world.parking.replay(A)
    caplog.clear()
    await world.feed(*page)
    assert await world.listed() == []
    assert f"event {ids(2)[0]} of contact {A.id} was discarded by an operator" in caplog.text
    assert world.sent("a") == [ids(1)[0], skip_marker(2), ids(3)[0]]


async def test_a_replayed_event_redelivered_and_refused_then_blocks_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.feed(large(1), event(2))
    world.topic.limit = 10_000
    await world.parking.replay(A)
    world.topic.limit = 1000
    await world.feed(large(1), event(2), event(3))
    assert not await world.is_blocked()
    assert world.sent("a") == ids(1, 2, 3)
    assert "possibly missing" in caplog.text


async def test_below_the_block_an_event_is_sent_and_one_without_sequence_parked(world: World) -> None:
    """As after a failover or a restore, which put the feed's numbers back."""
    await world.feed(event(1, lsn=100), event(2, lsn=101), large(3, lsn=102))
    world.topic.sent.clear()
    assert (await world.relay.forward([read(event(1, lsn=5)), read(event(2, lsn=6))])).sent == 2
    await world.feed(event(4, lsn=7), poison_document("a", lsn=1))
    assert world.sent("a") == ids(1, 2)
    assert [one.event_id for one, _ in await world.lot.waiting(A, 10)] == [ids(3)[0], "poison-1", ids(4)[0]]


async def test_events_without_a_sequence_are_parked_and_replayed_in_feed_order(world: World) -> None:
    first, second, third, fourth = (unsequenced(number) for number in (1, 2, 3, 4))
    second["data"]["text"] = "x" * 2000
    await world.feed(first, third, second)
    await world.feed(fourth)
    await world.feed(first, second, third)
    assert world.sent("a") == [first["id"]]
    assert len(await world.listed()) == 3
    world.topic.limit = 10_000
    assert (await world.parking.replay(A)).replayed == 3
    world.topic.limit = 1000
    await world.feed(first, second, third, fourth)
    assert world.sent("a") == [one["id"] for one in (first, second, third, fourth)]
    assert not await world.is_blocked()


async def test_poison_of_no_aggregate_blocks_nothing(world: World) -> None:
    await world.feed(poison_document(None, lsn=1), event(1))
    await world.feed(poison_document(None, lsn=1))
    [parked] = (await world.parking.page(10, None)).items
    assert (parked.event_id, parked.aggregate) == ("poison-1", None)
    assert world.sent("a") == ids(1)
    await world.parking.discard(parked.id, "rubbish")
    assert (await world.parking.page(10, None)).items == []


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_a_replay_sends_what_the_relay_parks_during_it(world: World) -> None:
    await world.feed(large(1))
    world.topic.limit = 10_000
    settle, fed = world.lot.settle, False

    async def settle_late(
        block: AggregateBlock, delivered: Sequence[ParkedEvent], change: Change
    ) -> AggregateBlock:
        nonlocal fed
        if not fed:
            fed = True
            await world.feed(event(2))
        return await settle(block, delivered, change)

    world.lot.settle = settle_late  # type: ignore[method-assign]  # the relay runs right before the removal
    assert (await world.parking.replay(A)).replayed == 2
    assert world.sent("a") == ids(1, 2)
    assert not await world.is_blocked()


async def test_a_replay_that_has_no_time_left_says_so_and_lets_another_one_go_on(world: World) -> None:
    await world.feed(large(1), *(event(sequence) for sequence in range(2, 61)))
    world.topic.limit = 10_000
    seconds = itertools.count(step=REPLAY_SECONDS - 1)  # begun at 0; asked before each look at what waits
    hurried = Parking(
        world.lot, world.topic, committed(world.lot), clock=world.clock, timer=lambda: next(seconds)
    )
    first = await hurried.replay(A)
    assert not first.done
    assert world.sent("a") == ids(*range(1, first.replayed + 1))
    assert 0 < first.replayed < 60
    assert await world.is_blocked()
    assert await world.parking.replay(A) == Replayed(60 - first.replayed, done=True)
    assert world.sent("a") == ids(*range(1, 61))


async def test_the_upkeep_repeats_a_replay_that_died_after_sending(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.feed(large(1), event(2))
    world.topic.limit = 10_000

    async def die(*_: object) -> AggregateBlock:
        raise ConnectionResetError

    monkeypatch.setattr(world.lot, "settle", die)
    with pytest.raises(ConnectionResetError):
        await world.parking.replay(A)
    monkeypatch.undo()
    await world.feed(event(3))
    with pytest.raises(BeingReplayed):
        await world.parking.replay(A)
    await world.parking.upkeep()
    assert await world.is_blocked()
    world.now += timedelta(seconds=2 * READING_SECONDS)
    await world.parking.upkeep()
    assert not await world.is_blocked()
    assert world.sent("a") == ids(1, 2, 3)


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_a_replay_whose_claim_was_taken_over_leaves_the_new_claim_alone(world: World) -> None:
    await world.feed(large(1), event(2))
    world.topic.limit = 10_000
    settle = world.lot.settle

    async def too_late(
        block: AggregateBlock, delivered: Sequence[ParkedEvent], change: Change
    ) -> AggregateBlock:
        world.lot.settle = settle  # type: ignore[method-assign]
        world.now += timedelta(seconds=2 * READING_SECONDS)
        newest = await world.block()
        assert newest is not None
        await world.lot.store(newest.claimed("another", world.now + timedelta(seconds=READING_SECONDS)))
        return await settle(block, delivered, change)

    world.lot.settle = too_late  # type: ignore[method-assign]  # another replay begins right before the removal
    with pytest.raises(BeingReplayed):
        await world.parking.replay(A)
    block = await world.block()
    assert block is not None
    assert (block.replay, block.is_replayed(world.now)) == ("another", True)


class NoSkipMarkers(BusPublisher):
    """A broker that takes no skip marker."""

    def take(self, group: AggregateEvents) -> Outcome:
        actions = [event.action for event in group.events]
        if ACTION not in actions:
            return super().take(group)
        before = actions.index(ACTION)
        super().take(replace(group, events=group.events[:before]))
        return Refused(before, "no skip markers")


async def test_a_skip_marker_that_cannot_be_sent_is_dropped_and_blocks_nothing(world: World) -> None:
    world.topic = NoSkipMarkers(limit=1000)
    await world.feed(event(1), large(2), event(3))
    await world.parking.discard((await world.parked(2)).id, "r")
    await world.parking.upkeep()
    assert world.sent("a") == ids(1, 3)
    assert not await world.is_blocked()
    assert await world.listed() == []


async def test_the_upkeep_replays_after_a_discard_and_only_then(world: World) -> None:
    await world.feed(large(1), event(2), large(1, "b"), event(2, "b"))
    [broken] = [one for one in await world.listed() if (one.aggregate, one.sequence) == (A, 1)]
    await world.parking.discard(broken.id, "r")
    await world.parking.upkeep()
    assert world.sent("a") == [skip_marker(1), *ids(2)]
    assert await world.is_blocked(contact_key("b"))
    assert world.sent("b") == []
    [refused] = [one for one in await world.listed() if one.state is ParkedState.IN_THE_WAY]
    assert (refused.aggregate, refused.attempts) == (contact_key("b"), 1)


async def test_an_upkeep_that_has_no_time_left_leaves_the_rest_to_the_next_one(world: World) -> None:
    await world.feed(large(1), large(1, "b"))
    for one in await world.listed():
        await world.parking.discard(one.id, "r")
    publish, seconds = world.topic.publish, 0.0

    async def slowly(page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        nonlocal seconds
        seconds += UPKEEP_SECONDS
        return await publish(page, until)

    world.topic.publish = slowly  # type: ignore[method-assign]
    hurried = Parking(world.lot, world.topic, committed(world.lot), clock=world.clock, timer=lambda: seconds)
    await hurried.upkeep()
    assert len(await world.lot.list_blocked()) == 1
    await hurried.upkeep()
    assert await world.lot.list_blocked() == []


class Hanging(BusPublisher):
    """A broker that gives no answer for some aggregates; the others' events take no time."""

    def __init__(self, hangs: set[str]) -> None:
        super().__init__()
        self.hangs = hangs
        self.seconds = 0.0
        self.asked: list[str] = []

    def timer(self) -> float:
        return self.seconds

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        [group] = page
        self.asked.append(group.aggregate.id)
        if group.aggregate.id in self.hangs:
            self.seconds += min(20.0, until - asyncio.get_running_loop().time())
            return [Unknown(0, "the broker does not answer")]
        return await super().publish(page, until)


async def all_but_hanging_replayed(world: World, hanging: int, healthy: int) -> tuple[int, Hanging]:
    """So many upkeeps it takes, each by a process that knows nothing of the one before."""
    names = [f"h{number}" for number in range(hanging)] + [f"g{number}" for number in range(healthy)]
    for name in names:
        await world.feed(large(1, name))
    for one in await world.listed():
        await world.parking.discard(one.id, "r")
    world.topic = topic = Hanging({contact_key(name).id for name in names[:hanging]})
    for upkeep in itertools.count(1):
        await Parking(world.lot, topic, committed(world.lot), clock=world.clock, timer=topic.timer).upkeep()
        world.now += timedelta(minutes=3)
        if len(await world.lot.list_blocked()) == hanging:
            return upkeep, topic
        assert upkeep < 200, "some parked aggregates are never replayed"
    raise AssertionError


async def test_however_many_replays_get_no_answer_no_aggregate_waits_for_ever(world: World) -> None:
    """More of them than one upkeep has time for, and they are the first of the list."""
    _, topic = await all_but_hanging_replayed(world, hanging=6, healthy=2)
    assert {owner for owner, _ in topic.sent} == {contact_key(f"g{number}").id for number in range(2)}


async def test_a_document_that_cannot_be_given_up_keeps_no_other_from_it(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await world.feed(*(poison_document(None, lsn=lsn) for lsn in (1, 2, 3)))
    world.now += timedelta(seconds=MAX_AGE_SECONDS + 60)
    refused = next(one for one in await world.listed() if one.event_id == "poison-1")
    discard_alone = world.lot.discard_alone

    async def not_that_one(parked: ParkedEvent, reason: str) -> None:
        if parked.id == refused.id:
            raise Unavailable("the store refuses it")
        await discard_alone(parked, reason)

    monkeypatch.setattr(world.lot, "discard_alone", not_that_one)
    await world.parking.upkeep()
    assert [one.event_id for one in await world.listed()] == ["poison-1"]
    assert "poison-1" in caplog.text


async def test_what_is_parked_for_too_long_is_discarded_and_the_rest_is_sent(world: World) -> None:
    await world.feed(large(1), event(2), poison_document(None, lsn=9))
    world.now += timedelta(seconds=MAX_AGE_SECONDS - 60)
    await world.parking.upkeep()
    assert len(await world.listed()) == 3
    world.now += timedelta(seconds=120)
    await world.parking.upkeep()
    assert world.sent("a") == [skip_marker(1), *ids(2)]
    assert await world.listed() == []
    given_up = [one.discarding for one in await world.listed(discarded=True)]
    assert [one.reason for one in given_up if one] == [EXPIRED, EXPIRED]


async def test_a_blocked_events_age_counts_from_the_end_of_its_block(cosmos_lot: CosmosParkingLot) -> None:
    world = World(cosmos_lot, BusPublisher(limit=1000))
    cosmos_lot._clock = world.clock
    await world.feed(large(1))
    world.now += timedelta(seconds=MAX_AGE_SECONDS - 60)
    await world.lot.park((await world.lot.read_blocks([A]))[A], [read(large(2))])
    await world.parking.discard((await world.parked(1)).id, "r")
    await world.parking.upkeep()
    assert (await world.parked(2)).state is ParkedState.IN_THE_WAY
    world.now += timedelta(seconds=120)
    await world.parking.upkeep()
    assert (await world.parked(2)).state is ParkedState.IN_THE_WAY


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_two_operators_replay_at_once_and_the_order_holds(world: World) -> None:
    await world.feed(large(1), *(event(sequence) for sequence in range(2, 120)))
    world.topic.limit = 10_000
    outcomes = await asyncio.gather(world.parking.replay(A), world.parking.replay(A), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) in (
        ["BeingReplayed", "Replayed"],
        ["NotParked", "Replayed"],
    )
    assert world.sent("a") == ids(*range(1, 120))
    assert not await world.is_blocked()


async def test_a_replay_while_the_broker_is_away_keeps_everything(world: World) -> None:
    await world.feed(large(1), event(2))
    world.topic.limit = 10_000
    world.topic.fail_for.add(A.id)
    with pytest.raises(NotDelivered):
        await world.parking.replay(A)
    assert len((await world.parking.page(10, None)).items) == 2
    world.topic.fail_for.clear()
    assert await world.parking.replay(A) == Replayed(2, done=True), "the claim was given back"


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_what_is_parked_anew_is_reported_and_what_was_before_is_not(world: World) -> None:
    await world.feed(large(1))
    for parked, new in (((2, 3), (2, 3)), ((3, 4), (4,))):
        block = await world.block()
        assert block is not None
        assert {*await world.lot.park(block, [read(event(each)) for each in parked])} == {*ids(*new)}


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_parking_needs_the_newest_version(world: World) -> None:
    first = AggregateBlock(A).blocked_by(read(large(1)), "too large", [], NOON)
    await world.lot.park(first, [read(large(1))])
    with pytest.raises(PreconditionFailed):
        await world.lot.park(first, [read(event(2))])
    seen = await world.block()
    assert seen is not None
    await world.lot.park(seen, [read(event(2))])
    with pytest.raises(PreconditionFailed):
        await world.lot.park(seen, [read(event(3))])
    with pytest.raises(PreconditionFailed):
        await world.lot.store(seen)
    newest = await world.block()
    assert newest is not None
    assert newest.waiting == 2


async def test_an_id_or_aggregate_that_is_not_parked_is_not_found(world: World) -> None:
    for call in (world.parking.show("0" * 32), world.parking.discard("0" * 32, "r"), world.parking.replay(A)):
        with pytest.raises(NotParked):
            await call


@pytest.mark.known_gap(Gap.PAGE_SIZE)
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
    world = World(cosmos_lot, BusPublisher(limit=1000))
    heavy = [event(sequence, text="x" * 700_000) for sequence in range(1, 6)]
    await world.feed(*heavy)
    parked = [parked for parked, _ in await cosmos_lot.waiting(A, 10)]
    assert [len(one.document["data"]["text"]) for one in parked] == [700_000] * 5


@pytest.mark.known_gap(Gap.BATCH_LIMITS)
# aiohttp's advice for bodies over 1 MB; the SDK hands it bytes.
@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_a_document_too_large_to_wrap_is_parked_without_its_content(
    cosmos_lot: CosmosParkingLot,
) -> None:
    world = World(cosmos_lot, BusPublisher(limit=1000))
    await world.feed(event(1, text="x" * (2 * 1024 * 1024 - 700)), event(2))
    first, second = [parked for parked, _ in await cosmos_lot.waiting(A, 10)]
    assert "does not take the document here" in first.reason
    assert first.document["id"] == ids(1)[0]
    assert second.document["data"]["sequence"] == 2


class Refusing(Container):
    """Does not take what has a document in it, or nothing at all."""

    takes_the_rest = True

    async def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        documents = [write.item["document"] for write in writes if "document" in write.item]
        if documents and (not self.takes_the_rest or any("data" in document for document in documents)):
            raise StoreFailed(Failure(Kind.INVALID, "400"))
        return await super().execute(partition_key, writes)


async def test_a_document_the_store_refuses_is_parked_without_its_content(cosmos_server: Service) -> None:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_connection(cosmos_server)) as client,
    ):
        container = Refusing(client, database.id, PARKED)
        documents = ParkedDocuments(EVENTS)
        lot = CosmosParkingLot(container, "test", documents, ttl_seconds=60)
        world = World(lot, BusPublisher(limit=1000))
        await world.feed(large(1), event(2), event(1, "b"), poison_document(None, lsn=1))
        assert world.sent("b") == [event(1, "b")["id"]]
        assert sorted(str(one.sequence) for one in await world.listed()) == ["1", "2", "None"]

        container.takes_the_rest = False
        with pytest.raises(NotDelivered, match="could not be parked: the store refuses a request"):
            await world.feed(large(1, "c"), event(2, "b"))
        assert world.sent("b") == [event(1, "b")["id"], event(2, "b")["id"]]


class Noting(Container):
    """Notes the fields of what is read by queries."""

    fields: frozenset[str] = frozenset()

    async def page(
        self,
        query: str,
        parameters: Mapping[str, Any],
        size: int,
        continuation: str | None,
        *,
        partition_key: Key | None = None,
        session_token: str | None = None,
    ) -> tuple[list[Item], str | None]:
        page = await super().page(
            query, parameters, size, continuation, partition_key=partition_key, session_token=session_token
        )
        self.fields = self.fields.union(*page[0])
        return page


async def test_what_lists_or_counts_parked_events_reads_no_document(cosmos_server: Service) -> None:
    """An event may have megabytes, and a block thousands of ids."""
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_connection(cosmos_server)) as client,
    ):
        container = Noting(client, database.id, PARKED)
        lot = CosmosParkingLot(container, "test", ParkedDocuments(EVENTS), ttl_seconds=60)
        await World(lot, BusPublisher(limit=1000)).feed(
            large(1), event(2), event(3), poison_document(None, lsn=1)
        )
        namesake = read({**event(1), "aggregateType": "order", "id": "another"})
        assert namesake.aggregate == AggregateKey("order", A.id)
        await lot.park(
            AggregateBlock(namesake.aggregate).blocked_by(namesake, "refused", [], NOON), [namesake]
        )
        block = await lot.store((await lot.read_blocks([A]))[A].claimed("replay", NOON))
        [first, second, _] = [parked for parked, _ in await lot.waiting(A, 10)]
        container.fields = frozenset()

        assert len((await lot.page(100, None)).items) == 5
        assert {each.aggregate for each in await lot.list_blocked()} == {A, namesake.aggregate}
        assert [each.sequence for each in await lot.list_waiting(A, 2)] == [1, 2]
        assert len(await lot.alone_since_before(utc_now() + timedelta(hours=1))) == 1
        block = await lot.settle(block, [first], lambda newest: newest)
        await container.execute(PARTITION, [Write.delete(second.id)])
        recounted = await lot.recount(block)
        assert (recounted.blocked, recounted.waiting) == (True, 1)
        assert {"eventId", "waiting"} <= container.fields
        assert container.fields.isdisjoint({"document", "discarded", "passed"})


class Picky(Failing):
    """Does not take some documents, as Cosmos DB does not take one that is nested too deep; and loses one write."""

    refused: Kind = Kind.INVALID

    async def execute(self, partition_key: Key, writes: Sequence[Write]) -> list[str]:
        documents = [write.item["document"] for write in writes if "document" in write.item]
        if any(document.get("data", {}).get("text") == "odd" for document in documents):
            raise StoreFailed(Failure(self.refused, "refused"))
        return await super().execute(partition_key, writes)


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
@pytest.mark.parametrize(
    ("loss", "refused"),
    [
        (None, Kind.TOO_LARGE),
        (Loss.NO_ANSWER, Kind.INVALID),
        *(
            pytest.param(each, Kind.INVALID, marks=pytest.mark.long)
            for each in (Loss.NOT_WRITTEN, Loss.REPEATED, Loss.DIED_AFTER)
        ),
    ],
)
async def test_a_refused_document_is_parked_without_content_and_no_other_is(
    cosmos_server: Service, loss: Loss | None, refused: Kind
) -> None:
    """Whichever write of the parking is lost besides, each event is parked once, and counted once."""
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_connection(cosmos_server)) as client,
    ):
        struck, write = True, 0
        while struck:
            write += 1
            fate = Fate(loss or Loss.NOT_WRITTEN, write if loss else 0)
            container = Picky(client, database.id, PARKED)
            container.refused, container.fate = refused, fate
            documents = ParkedDocuments(EVENTS)
            lot = CosmosParkingLot(container, "test", documents, ttl_seconds=60)
            world, name = World(lot, BusPublisher(limit=1000)), f"w{write}"
            odd = {3, 6}
            page = [large(1, name), *(event(n, name, text="odd" if n in odd else "") for n in range(2, 8))]
            for _ in range(4):
                with suppress(NotDelivered, ProcessDied, BaseExceptionGroup):
                    await world.feed(*page)
                    break
            struck = loss is not None and fate.struck
            fate.write = 0

            block = await world.block(contact_key(name))
            assert block is not None
            assert block.waiting == 7
            parked = [one for one, _ in await lot.waiting(contact_key(name), 100)]
            assert [one.document["id"] for one in parked] == [event(n, name)["id"] for n in range(1, 8)]
            assert {n for n, one in enumerate(parked, 1) if "data" not in one.document} == odd
            assert {n for n, one in enumerate(parked, 1) if "does not take" in one.reason} == odd


@pytest.mark.parametrize("few_blocks", [2, 10])
async def test_the_blocks_of_a_large_page_are_found_whether_few_or_many(
    cosmos_lot: CosmosParkingLot, monkeypatch: pytest.MonkeyPatch, few_blocks: int
) -> None:
    monkeypatch.setattr(parking_lot, "FEW_BLOCKS", few_blocks)
    world = World(cosmos_lot, BusPublisher(limit=1000))
    names = [f"c{number}" for number in range(25)]
    await world.feed(*(large(1, name) for name in names[:4]))
    await world.feed(*(event(2, name) for name in names))
    assert [name for name in names if world.sent(name)] == names[4:]
    assert len(await world.listed()) == 8


async def test_each_parked_event_has_the_reason_why_it_is_parked(cosmos_lot: CosmosParkingLot) -> None:
    world = World(cosmos_lot, BusPublisher(limit=1000))
    await world.feed(large(1), event(2))
    behind = f"waits behind event {ids(1)[0]}"
    assert {one.sequence: one.reason for one in await world.listed()} == {1: "too large", 2: behind}
    await world.parking.discard((await world.parked(1)).id, "r")
    await world.parking.upkeep()
    assert [one.reason for one in await world.listed(discarded=True)] == ["too large"]
    await world.feed(large(1, "b"), poison_document("b", 7))
    [broken] = [one for one in await world.listed() if one.event_id == "poison-7"]
    assert "waits" not in broken.reason, "of what nobody can read, its own fault is named"


async def test_an_operator_sees_what_a_lagging_replica_does_not_know(cosmos_server: Service) -> None:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_connection(cosmos_server)) as client,
    ):
        documents = ParkedDocuments(EVENTS)
        lot = CosmosParkingLot(Container(client, database.id, PARKED), "test", documents, ttl_seconds=60)
        world = World(lot, BusPublisher(limit=1000))
        await world.feed(large(1))
        there = await world.parked(1)
        lagging = Failing(client, database.id, PARKED)
        lagging.fate = Fate(Loss.NO_ANSWER, write=0)
        elsewhere = CosmosParkingLot(lagging, "test", documents, ttl_seconds=60)
        found = await elsewhere.get(there.id)
        assert (found and found.event_id, await elsewhere.get("nobody")) == (there.event_id, None)


@pytest.mark.known_gap(Gap.PAGE_SIZE)
@pytest.mark.parametrize(
    ("kind", "error"), [(Kind.INVALID, UnknownContinuation), (Kind.PASSING, Unavailable)]
)
async def test_a_token_is_at_fault_only_where_the_store_says_so(
    cosmos_lot: CosmosParkingLot, monkeypatch: pytest.MonkeyPatch, kind: Kind, error: type[Exception]
) -> None:
    world = World(cosmos_lot, BusPublisher(limit=1000))
    await world.feed(large(1), event(2))
    token = (await world.parking.page(1, None)).continuation_token

    async def fails(*_: object, **__: object) -> None:
        raise StoreFailed(Failure(kind, "on purpose"))

    monkeypatch.setattr(Container, "page", fails)
    with pytest.raises(error):
        await world.parking.page(1, token)


async def test_a_foreign_token_is_refused(cosmos_lot: CosmosParkingLot) -> None:
    with pytest.raises(UnknownContinuation):
        await cosmos_lot.page(10, "AAAA")


async def test_aggregates_of_two_types_and_one_id_are_parked_apart(world: World) -> None:
    order = AggregateKey("order", A.id)
    await world.feed(large(1), {**large(2), "aggregateType": "order"}, event(3))
    assert {block.aggregate for block in await world.lot.list_blocked()} == {A, order}
    world.topic.limit = 10_000
    assert (await world.parking.replay(order)).replayed == 1
    assert [block.aggregate for block in await world.lot.list_blocked()] == [A]
    assert (await world.parking.replay(A)).replayed == 2
    assert world.sent("a") == ids(2, 1, 3)


async def test_what_waits_is_counted_anew_for_one_of_two_types_with_one_id(world: World) -> None:
    order = AggregateKey("order", A.id)
    await world.feed(large(1), event(2))
    blocked = AggregateBlock(order).blocked_by(read(large(3)), "too large", [], world.now)
    await world.lot.store(replace(blocked, waiting=3))
    seconds = itertools.count(step=1)
    hurried = Parking(
        world.lot, world.topic, committed(world.lot), clock=world.clock, timer=lambda: next(seconds)
    )
    assert await hurried.replay(order) == Replayed(0, done=True)
    assert [block.aggregate for block in await world.lot.list_blocked()] == [A]


async def test_an_aggregate_of_any_id_can_be_parked(world: World) -> None:
    for odd in ("a/b?c#d\\e", "x" * 128, "ä ö", "a-b"):
        document = large(1)
        del document["data"]["contactId"]
        await world.feed({**document, "aggregateType": "my-type", "aggregateId": odd})
        key = AggregateKey("my-type", odd)
        assert await world.is_blocked(key)
        world.topic.limit = 10_000
        assert (await world.parking.replay(key)).done
        world.topic.limit = 1000


async def test_a_replay_sends_nothing_when_its_claim_is_about_to_run_out(world: World) -> None:
    await world.feed(large(1), event(2))
    world.topic.limit = 10_000
    waiting = world.lot.waiting

    async def slowly(aggregate: AggregateKey, limit: int) -> Sequence[tuple[ParkedEvent, FeedEvent]]:
        world.now += timedelta(seconds=READING_SECONDS + 26)
        return await waiting(aggregate, limit)

    world.lot.waiting = slowly  # type: ignore[method-assign]  # a store that takes its time
    with pytest.raises(NotDelivered, match="in time"):
        await world.parking.replay(A)
    assert world.sent("a") == []
    world.lot.waiting = waiting  # type: ignore[method-assign]  # it is quick again
    assert await world.parking.replay(A) == Replayed(2, done=True), "the claim was given back"

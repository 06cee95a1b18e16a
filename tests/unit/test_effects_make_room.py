"""An effect that hangs holds up the others of its session for seconds, and is not cut off; in virtual time."""

import asyncio
import gc
import logging
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

import pytest

from cosmos_outbox.inbox.effect import CALL, EffectItem, RunningEffect
from cosmos_outbox.inbox.effects import MOST_LEFT, EffectInbox
from cosmos_outbox.inbox.errors import EffectAway, EffectNotDone, StoreAway
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.receiver import HOLD_SECONDS, PATIENT_SECONDS, WAIT_SECONDS, Receiver
from cosmos_outbox.inbox.retrier import Retrier
from cosmos_outbox.inbox.set_aside import RecordState
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.testing.simulation.loop import Loop
from cosmos_outbox.wiring.effects import look_for_nobody
from examples.orders.service import service as orders
from tests.support.effects import RULES, FakeEvents, FakeItems
from tests.support.inbox import NOON, FakeSetAside, delivery, event, read

SICK, WELL = AggregateKey("thing", "sick"), AggregateKey("thing", "well")


def mailed(key: AggregateKey, sequence: int) -> Event:
    return event(sequence, key=key, action="Mailed")


@dataclass
class World:
    """One session of a subscriber with effects; those of the sick aggregates wait until ``goes_on``."""

    loop: Loop = field(default_factory=Loop)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)
    began: list[tuple[str, int | None, float]] = field(default_factory=list)
    ended: list[tuple[str, int | None, float]] = field(default_factory=list)
    records: FakeSetAside = field(default_factory=FakeSetAside)
    items: FakeItems = field(default_factory=FakeItems)
    source: FakeEvents = field(default_factory=FakeEvents)
    away_until: float = 0.0
    takes: float = 0.0
    """How many seconds an effect of a sick aggregate takes beside."""

    fails: bool = False
    """The effects of a sick aggregate, after they have waited."""

    hot: bool = False
    """The store is throttled where the sick aggregate's item is, and nowhere else."""

    def __post_init__(self) -> None:
        def clock() -> datetime:
            return NOON + timedelta(seconds=self.loop.time())

        self.inbox = EffectInbox(
            self.items, self.source, self.effect, RULES, clock, self.loop.time, asyncio.sleep
        )
        self.receiver = Receiver(
            read,
            self.handle,
            self.records,
            clock,
            self.loop.time,
            check=partial(look_for_nobody, self.items, FakeEvents()),
            longest=PATIENT_SECONDS,
        )
        self.retrier = Retrier(
            read, self.inbox.handle, self.records, timedelta(days=1), clock, asked=self.inbox
        )

    async def handle(self, received: Event) -> None:
        if self.hot and received.aggregate == SICK:
            raise StoreAway("the store is throttled")
        await self.inbox.handle(received)

    async def effect(self, received: Event) -> None:
        if self.loop.time() < self.away_until:
            raise EffectAway("the mail service is away")
        here = received.aggregate.id, received.sequence
        self.began.append((*here, round(self.loop.time())))
        if received.aggregate != WELL:
            await asyncio.sleep(self.takes)
            await self.goes_on.wait()
            if self.fails:
                raise EffectNotDone("no such address")
        self.ended.append((*here, round(self.loop.time())))

    async def receive(self, received: Event, number: int) -> None:
        await self.receiver.receive(delivery(received, number))

    @property
    def states(self) -> list[tuple[str, int | None, RecordState]]:
        return [
            (each.aggregate.id, each.sequence, each.state)
            for each in self.records.records.values()
            if each.aggregate
        ]


def test_an_effect_that_hangs_makes_room_and_runs_once() -> None:
    world = World()

    async def session() -> None:
        for number, sequence in enumerate((1, 2)):
            await world.receive(mailed(SICK, sequence), 2 * number)
            await world.receive(mailed(WELL, sequence), 2 * number + 1)
        assert world.ended == [("well", 1, 5), ("well", 2, 5)]
        assert world.states == [("sick", 1, RecordState.WAITING), ("sick", 2, RecordState.WAITING)]
        await world.retrier.run(seconds=600)  # it is still running: nothing is begun twice
        assert [each[:2] for each in world.began] == [("sick", 1), ("well", 1), ("well", 2)]
        world.goes_on.set()
        await world.inbox.join()
        await world.retrier.run(seconds=600)

    world.loop.run(session())
    assert [each[:2] for each in world.began if each[0] == "sick"] == [("sick", 1), ("sick", 2)]
    assert [each[:2] for each in world.ended if each[0] == "sick"] == [("sick", 1), ("sick", 2)]
    assert {state for _, _, state in world.states} == {RecordState.APPLIED}


def test_an_effect_that_fails_when_nobody_waits_for_it_any_more_is_told_in_our_words_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "cosmos_outbox")
    world = World(fails=True)

    async def session() -> None:
        await world.receive(mailed(SICK, 1), 1)
        world.goes_on.set()
        await world.inbox.join()
        gc.collect()
        assert "failed: no such address. It is tried again" in caplog.text
        assert "never retrieved" not in caplog.text
        world.fails = False
        await world.retrier.run(seconds=600)

    world.loop.run(session())
    assert [each[:2] for each in world.ended] == [("sick", 1)]
    ended = [each.getMessage() for each in caplog.records if "an effect ended" in each.getMessage()]
    assert ended == ["an effect ended: no such address"], "and nothing of what was done"


def test_lost_events_whose_effects_are_slow_make_room_between_two_of_them() -> None:
    world = World(takes=3.0)
    world.goes_on.set()

    async def session() -> None:
        for sequence in range(1, 5):
            await world.source.put(mailed(SICK, sequence))
        await world.receive(mailed(SICK, 5), 1)
        await world.receive(mailed(WELL, 1), 2)
        assert world.ended == [("sick", 1, 3), ("sick", 2, 6), ("well", 1, 6)]
        assert world.states == [("sick", 5, RecordState.WAITING)]
        for _ in range(3):
            await world.retrier.run(seconds=600)

    world.loop.run(session())
    assert [each[:2] for each in world.ended if each[0] == "sick"] == [
        ("sick", place) for place in range(1, 6)
    ]
    assert world.states == [("sick", 5, RecordState.APPLIED)]


def test_a_service_that_says_that_it_is_away_hits_everybody_and_makes_no_room() -> None:
    world = World(away_until=12.0)

    async def session() -> None:
        await world.receive(mailed(WELL, 1), 1)

    world.loop.run(session())
    assert [each[:2] for each in world.ended] == [("well", 1)]
    assert world.states == []


def test_where_many_hang_it_is_no_sickness_of_one_and_they_are_waited_for() -> None:
    world = World()

    async def session() -> None:
        world.loop.call_later(25.0, world.goes_on.set)
        keys = [AggregateKey("thing", f"sick-{number}") for number in range(MOST_LEFT + 4)]
        await asyncio.gather(*(world.receive(mailed(key, 1), number) for number, key in enumerate(keys)))

    world.loop.run(session())
    assert len(world.states) == MOST_LEFT
    assert len(world.ended) == MOST_LEFT + 4


def test_a_start_whose_process_died_makes_room_too_and_the_timer_goes_on_with_it() -> None:
    world = World()
    running = RunningEffect(1, mailed(SICK, 1).id, "a dead process", NOON)

    async def session() -> None:
        await world.items.write(SICK, EffectItem(0, 1, NOON, running=running))
        await world.receive(mailed(SICK, 1), 1)
        assert round(world.loop.time()) == HOLD_SECONDS
        assert world.states == [("sick", 1, RecordState.WAITING)]
        world.goes_on.set()
        await asyncio.sleep(CALL.total_seconds())
        await world.retrier.run(seconds=600)

    world.loop.run(session())
    assert world.states == [("sick", 1, RecordState.APPLIED)]
    assert [each[:2] for each in world.ended] == [("sick", 1)]


def test_while_the_store_is_away_nothing_is_set_aside() -> None:
    world = World()
    world.items.faults.at = dict.fromkeys(range(1_000), (StoreAway, False))

    async def session() -> None:
        with pytest.raises(StoreAway):
            await world.receive(mailed(WELL, 1), 1)

    world.loop.run(session())
    assert world.loop.time() >= WAIT_SECONDS
    assert world.states == []


def test_an_aggregate_whose_part_of_the_store_is_throttled_makes_room() -> None:
    world = World(hot=True)

    async def session() -> None:
        await world.receive(mailed(SICK, 1), 1)
        await world.receive(mailed(WELL, 1), 2)
        assert world.ended == [("well", 1, HOLD_SECONDS)]
        assert world.states == [("sick", 1, RecordState.WAITING)]
        world.hot = False
        world.goes_on.set()
        await world.retrier.run(seconds=600)

    world.loop.run(session())
    assert [each[:2] for each in world.ended] == [("well", 1), ("sick", 1)]


def test_a_services_effect_is_received_in_this_way() -> None:
    wired = orders.wire(
        {"COSMOS": "AccountEndpoint=http://x/;AccountKey=eA==;", "SERVICEBUS": "Endpoint=sb://x/;A=b"}
    )
    [receiver] = [each.subscriber.receiver for each in wired.subscriptions.values() if each.effects]
    assert receiver.check is not None
    assert receiver.longest == PATIENT_SECONDS

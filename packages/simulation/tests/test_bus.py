"""A broker in memory keeps what Service Bus keeps, and the deployed code stands what befalls it."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from uuid import uuid4

import pytest

from cosmos_outbox.inbox.deliveries import Collected
from cosmos_outbox.inbox.errors import StoreAway
from cosmos_outbox.inbox.set_aside import Delivery
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import Sources, using
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import Accepted, AggregateEvents, Outcome, Refused, Unknown
from cosmos_outbox.telemetry.work import Work
from outbox_simulation.engine.befallen import EPOCH
from outbox_simulation.engine.befalls import CALM, Befalls
from outbox_simulation.engine.bus import Bus
from outbox_simulation.engine.bus_client import queues
from outbox_simulation.engine.bus_publisher import NEVER, BusPublisher
from outbox_simulation.engine.bus_queue import MAX_DELIVERIES, Rules
from outbox_simulation.engine.instance import SimulatedInstance
from outbox_simulation.engine.loop import Loop
from outbox_simulation.engine.trace import RunTrace

SUBSCRIPTION = "directory"
SEEDS = 12


def event(aggregate: str, sequence: int) -> OutboxEvent:
    return OutboxEvent(
        id=f"{aggregate}-{sequence}", aggregate=AggregateKey("contact", aggregate), action="Changed",
        sequence=sequence, created_at=EPOCH, data={"sequence": sequence},
    )  # fmt: skip


def group(aggregate: str, *sequences: int) -> AggregateEvents:
    return AggregateEvents(AggregateKey("contact", aggregate), [event(aggregate, each) for each in sequences])


@dataclass
class World:
    """One run: a broker, and what a subscriber's processes were given."""

    loop: Loop
    bus: Bus
    trace: RunTrace
    random: Random
    received: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """By session, the first time of each."""
    deliveries: int = 0
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def publisher(self) -> BusPublisher:
        return BusPublisher(self.bus)

    async def publish(
        self, *page: AggregateEvents, publisher: BusPublisher | None = None
    ) -> Sequence[Outcome]:
        return await (publisher or self.publisher).publish(page, self.loop.time() + 60)

    async def receive(self, delivery: Delivery) -> None:
        self.deliveries += 1
        session = delivery.message_id.rpartition("-")[0]
        if delivery.message_id not in self.received[session]:
            self.received[session].append(delivery.message_id)

    def serve(
        self, name: str, receive: Callable[[Delivery], Awaitable[None]] | None = None
    ) -> tuple[SimulatedInstance, asyncio.Task[None]]:
        """A process of the subscriber."""
        instance = SimulatedInstance(name, self.loop.outside())
        held = queues(self.bus, SUBSCRIPTION).sessions
        return instance, self.loop.begin(
            instance, held.serve(receive or self.receive, self.stop, Work(), slots=4)
        )

    async def until(self, condition: Callable[[], bool], within: float = 3600) -> None:
        end = self.loop.time() + within
        while not condition():
            assert self.loop.time() < end, "it does not come"
            await asyncio.sleep(1)


def run(
    story: Callable[[World], Awaitable[None]],
    seed: int = 0,
    befalls: Befalls | None = CALM,
    rules: Rules | None = None,
) -> World:
    """``befalls`` None: drawn by the seed."""
    random = Random(seed)

    def now() -> datetime:
        return EPOCH + timedelta(seconds=loop.time())

    def monotonic() -> float:
        return loop.time()

    with using(Sources(now, monotonic, uuid4, random)):
        loop = Loop(random)
        trace = RunTrace(loop.time)
        drawn = Befalls.drawn(random) if befalls is None else befalls
        bus = Bus(SUBSCRIPTION, random=random, befalls=drawn, rules=rules or Rules(), note=trace.note)
        world = World(loop, bus, trace, random)

        async def main() -> None:
            await story(world)

        loop.run(main())
    trace.end()
    return world


def test_an_id_is_dropped_within_its_window_and_taken_after_it() -> None:
    async def story(world: World) -> None:
        for pause in (0, 5.0, 4.9, 0.2):
            await asyncio.sleep(pause)
            assert await world.publish(group("a", 1)) == [Accepted()]

    world = run(story, rules=Rules(duplicate_window_seconds=10))
    assert [taken.at for taken in world.bus.taken] == [0.0, pytest.approx(10.1)]
    assert len(world.bus.queues[SUBSCRIPTION]) == 2


def test_a_subscriber_gets_a_session_in_order_and_nothing_is_left() -> None:
    async def story(world: World) -> None:
        world.serve("one")
        world.serve("two")
        for number in range(1, 6):
            await world.publish(*(group(name, number) for name in "abc"))
        await world.until(lambda: not len(world.bus.queues[SUBSCRIPTION]))

    world = run(story)
    assert world.received == {name: [f"{name}-{number}" for number in range(1, 6)] for name in "abc"}
    assert world.deliveries == 15


def test_a_session_of_a_dead_process_comes_free_when_its_lock_is_over() -> None:
    at: list[float] = []

    async def story(world: World) -> None:
        async def hang(_: Delivery) -> None:
            at.append(world.loop.time())
            await asyncio.sleep(3600)

        async def take(delivery: Delivery) -> None:
            at.append(world.loop.time())
            await world.receive(delivery)

        dead, _ = world.serve("dead", hang)
        await world.publish(group("a", 1))
        await world.until(lambda: bool(at))
        await asyncio.sleep(100)  # it is renewed for as long as its holder lives
        world.loop.crash(dead)
        world.serve("other", take)
        await world.until(lambda: not len(world.bus.queues[SUBSCRIPTION]))

    world = run(story)
    assert world.received["a"] == ["a-1"]
    assert 140 < at[1] - at[0] < 162


def test_a_message_that_is_never_done_becomes_a_dead_letter_and_is_collected() -> None:
    kept: list[tuple[str, str]] = []

    async def story(world: World) -> None:
        async def away(delivery: Delivery) -> None:
            world.deliveries += 1
            raise StoreAway("away")

        async def keep(delivery: Delivery, reason: str) -> None:
            kept.append((delivery.message_id, reason))

        world.serve("one", away)
        await world.publish(group("a", 1))
        queue = world.bus.queues[SUBSCRIPTION]
        await world.until(lambda: bool(queue.dead))
        assert await queues(world.bus, SUBSCRIPTION).dead_letters.collect(keep, seconds=15) == Collected(
            1, emptied=True
        )
        assert not len(queue)

    assert run(story).deliveries == 10
    assert kept == [("a-1", f"dead letter: {MAX_DELIVERIES}")]


def test_what_was_sent_arrives_although_its_sender_is_gone() -> None:
    async def story(world: World) -> None:
        sender = SimulatedInstance("relay", world.loop.outside())
        sending = world.loop.begin(sender, world.publish(group("a", 1)))
        await asyncio.sleep(0.001)  # it is on its way, which takes longer with this seed
        world.loop.crash(sender)
        await asyncio.sleep(10)
        assert not sending.done()

    world = run(story, befalls=Befalls(longest_way_seconds=3.0))
    assert [taken.sent.message.id for taken in world.bus.taken] == ["a-1"]


@pytest.mark.parametrize(
    ("befalls", "taken"),
    [
        (Befalls(busy=1.0), []),
        (Befalls(quota=1.0), []),
        (Befalls(lost_before=1.0), []),
        (Befalls(lost_after=1.0), ["a-1"]),
        (Befalls(outage=1.0), []),
    ],
)
def test_a_send_that_fails_is_unknown_whether_it_arrived_or_not(befalls: Befalls, taken: list[str]) -> None:
    outcomes: list[Outcome] = []

    async def story(world: World) -> None:
        outcomes.extend(await world.publish(group("a", 1), group("b", 1)))

    world = run(story, befalls=befalls)
    assert [type(outcome) for outcome in outcomes] == [Unknown, Unknown]
    assert [each.sent.message.id for each in world.bus.taken][:1] == taken


def test_one_event_is_refused_and_none_of_its_aggregate_after_it() -> None:
    outcomes: list[Outcome] = []

    async def story(world: World) -> None:
        outcomes.extend(await world.publish(group("a", 1, 2, 3)))

    world = run(story, befalls=Befalls(refuse_one=1.0))
    [outcome] = outcomes
    assert isinstance(outcome, Refused)
    assert outcome.reason == NEVER
    assert [taken.sent.message.id for taken in world.bus.taken] == [
        f"a-{number}" for number in range(1, 1 + outcome.accepted)
    ]


def test_a_publisher_whose_mixes_are_refused_mixes_no_more() -> None:
    async def story(world: World) -> None:
        publisher = world.publisher
        while publisher.guarantees.mixes_aggregates:
            assert await world.publish(group("a", 1), group("b", 1), publisher=publisher) == [Accepted()] * 2

    assert {taken.sent.session for taken in run(story, befalls=Befalls(refuse_mix=1.0)).bus.taken} == {
        "a",
        "b",
    }


def test_what_an_operator_takes_away_no_subscriber_gets() -> None:
    async def story(world: World) -> None:
        await world.publish(group("a", 1, 2, 3))
        [gone] = world.bus.take_away(SUBSCRIPTION)
        world.serve("one")
        await world.until(lambda: not len(world.bus.queues[SUBSCRIPTION]))
        assert world.received["a"] == [one for one in ("a-1", "a-2", "a-3") if one != gone.sent.message.id]

    run(story)


async def published_whatever_befalls(world: World) -> None:
    """As a relay does: again from the first that is not known to be accepted; what is refused ends its aggregate."""
    for number in range(1, 8):
        left = dict.fromkeys("abcde", (number, number + 100))
        while left:
            page = [group(name, *numbers) for name, numbers in left.items()]
            for sent, outcome in zip(page, await world.publish(*page), strict=True):
                if isinstance(outcome, Accepted | Refused):
                    left.pop(sent.aggregate.id, None)
            await asyncio.sleep(world.random.uniform(0, 5))


async def everything_befalls(world: World) -> None:
    """Two processes, of which one is replaced now and then."""
    world.serve("lasting")
    mortal, _ = world.serve("mortal 0")
    publishing = asyncio.create_task(published_whatever_befalls(world))
    for life in range(1, 6):
        await asyncio.sleep(world.random.uniform(1, 60))
        world.loop.crash(mortal)
        mortal, _ = world.serve(f"mortal {life}")
    await publishing
    queue = world.bus.queues[SUBSCRIPTION]
    await world.until(lambda: len(queue) == len(queue.dead))


def test_whatever_befalls_it_each_message_arrives_in_the_order_of_the_topic_or_is_a_dead_letter() -> None:
    troubles: set[str] = set()
    for seed in range(SEEDS):
        world = run(everything_befalls, seed, befalls=None)
        dead = {held.taken.sent.message.id for held in world.bus.queues[SUBSCRIPTION].dead.values()}
        for name in "abcde":
            taken = list(
                dict.fromkeys(each.sent.message.id for each in world.bus.taken if each.sent.session == name)
            )
            assert [one for one in world.received[name] if one not in dead] == [
                one for one in taken if one not in dead
            ], f"seed {seed}"
        troubles |= {step.what for step in world.trace.steps}
    assert troubles >= {"bus away", "bus drops", "bus refuses", "send failed", "connection cut", "lock over"}


def test_a_seed_has_one_trace() -> None:
    digests = [run(everything_befalls, 5, befalls=None).trace.digest() for _ in range(2)]
    assert digests[0] == digests[1]
    assert digests[0] != run(everything_befalls, 6, befalls=None).trace.digest()

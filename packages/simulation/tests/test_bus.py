"""A broker in memory keeps what Service Bus keeps, and the deployed code stands its faults."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from uuid import uuid4

import pytest

from cosmos_outbox.inbox.message import Delivery
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import Sources, using
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import Accepted, AggregateEvents, Outcome, Refused
from cosmos_outbox.telemetry.liveness import SlotHealth
from outbox_simulation.engine.bus import Bus
from outbox_simulation.engine.bus_client import queues
from outbox_simulation.engine.bus_publisher import BusPublisher
from outbox_simulation.engine.bus_queue import Rules
from outbox_simulation.engine.fault_injection import EPOCH
from outbox_simulation.engine.fault_plan import CALM, FaultRates
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
            instance, held.serve(receive or self.receive, self.stop, SlotHealth(), slots=4)
        )

    async def until(self, condition: Callable[[], bool], within: float = 3600) -> None:
        end = self.loop.time() + within
        while not condition():
            assert self.loop.time() < end, "it does not come"
            await asyncio.sleep(1)


def run(
    story: Callable[[World], Awaitable[None]],
    seed: int = 0,
    rates: FaultRates | None = CALM,
    rules: Rules | None = None,
) -> World:
    """``rates`` None: drawn by the seed."""
    random = Random(seed)

    def now() -> datetime:
        return EPOCH + timedelta(seconds=loop.time())

    def monotonic() -> float:
        return loop.time()

    with using(Sources(now, monotonic, uuid4, random)):
        loop = Loop(random)
        trace = RunTrace(loop.time)
        drawn = FaultRates.drawn(random) if rates is None else rates
        bus = Bus(SUBSCRIPTION, random=random, rates=drawn, rules=rules or Rules(), note=trace.note)
        world = World(loop, bus, trace, random)

        async def main() -> None:
            await story(world)

        loop.run(main())
    trace.end()
    return world


async def published_under_faults(world: World) -> None:
    """As a relay does: again from the first that is not known to be accepted; what is refused ends its aggregate."""
    for number in range(1, 8):
        left = dict.fromkeys("abcde", (number, number + 100))
        while left:
            page = [group(name, *numbers) for name, numbers in left.items()]
            for sent, outcome in zip(page, await world.publish(*page), strict=True):
                if isinstance(outcome, Accepted | Refused):
                    left.pop(sent.aggregate.id, None)
            await asyncio.sleep(world.random.uniform(0, 5))


async def all_faults(world: World) -> None:
    """Two processes, of which one is replaced now and then."""
    world.serve("lasting")
    mortal, _ = world.serve("mortal 0")
    publishing = asyncio.create_task(published_under_faults(world))
    for life in range(1, 6):
        await asyncio.sleep(world.random.uniform(1, 60))
        world.loop.crash(mortal)
        mortal, _ = world.serve(f"mortal {life}")
    await publishing
    queue = world.bus.queues[SUBSCRIPTION]
    await world.until(lambda: len(queue) == len(queue.dead))


@pytest.mark.long
def test_under_faults_messages_arrive_in_topic_order_or_are_dead_letters() -> None:
    troubles: set[str] = set()
    for seed in range(SEEDS):
        world = run(all_faults, seed, rates=None)
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

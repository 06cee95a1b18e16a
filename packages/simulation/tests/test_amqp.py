"""The deployed code, with the real SDK of Service Bus, against devstack's broker in memory and in virtual time."""

import asyncio
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest

from cosmos_outbox.inbox.deliveries import Collected
from cosmos_outbox.inbox.set_aside import Delivery
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import Sources, using
from cosmos_outbox.outbox.cloud_events import CloudEvents
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import Accepted, AggregateEvents, Outcome
from cosmos_outbox.servicebus.client import servicebus_client
from cosmos_outbox.servicebus.dead_letters import DeadLetters
from cosmos_outbox.servicebus.publisher import ServiceBusPublisher
from cosmos_outbox.servicebus.sessions import Sessions
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.telemetry.work import Work
from devstack.servicebus.in_memory import Fault, ServiceBusInMemory, in_memory
from devstack.settings import SERVICEBUS_CONNECTION
from outbox_simulation.engine import sdk_clock_servicebus
from outbox_simulation.engine.amqp import QUIET, AmqpNetwork, Lines
from outbox_simulation.engine.instance import SimulatedInstance
from outbox_simulation.engine.loop import Loop
from outbox_simulation.engine.trace import RunTrace
from tests.support.paths import ROOT

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
TOPIC, SUBSCRIPTION = "events", "directory"
PATH = f"{TOPIC}/subscriptions/{SUBSCRIPTION}"
_RULES = {"RequiresSession": True, "LockDuration": "PT30S", "MaxDeliveryCount": 10}
_WINDOW = {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": "PT10M"}
_TOPIC = {
    "Name": TOPIC,
    "Properties": _WINDOW,
    "Subscriptions": [{"Name": SUBSCRIPTION, "Properties": _RULES}],
}
CONFIG = {"UserConfig": {"Namespaces": [{"Name": "simulated", "Topics": [_TOPIC]}]}}
CONNECTION = Connection(SERVICEBUS_CONNECTION.format("broker.invalid"))
FAULTS = (
    "fail-before-commit",
    "drop-after-commit",
    "throttle",
    "full",
    "refuse-mixed",
    "slow",
    "disconnect",
    "detach",
)


@dataclass
class World:
    """One run: a broker, the way to it, and what a subscriber's processes were given."""

    loop: Loop
    random: Random
    network: AmqpNetwork
    trace: RunTrace
    broker: ServiceBusInMemory
    received: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """By session, the first time of each."""

    def process(
        self, name: str, work: Callable[["World"], Awaitable[None]]
    ) -> tuple[SimulatedInstance, "asyncio.Task[None]"]:
        instance = SimulatedInstance(name, self.loop.outside())

        async def run_it() -> None:
            await work(self)

        return instance, self.loop.begin(instance, run_it())

    async def subscriber(self) -> None:
        async with servicebus_client(CONNECTION, None, retries=0) as client:
            sessions = Sessions(client, TOPIC, SUBSCRIPTION)
            await sessions.serve(self.receive, asyncio.Event(), Work(), slots=3)

    async def receive(self, delivery: Delivery) -> None:
        session = delivery.message_id.rpartition("-")[0]
        self.trace.note("received", session, delivery.message_id)
        if delivery.message_id not in self.received[session]:
            self.received[session].append(delivery.message_id)

    async def until(self, condition: Callable[[], bool], within: float = 3600) -> None:
        end = self.loop.time() + within
        while not condition():
            assert self.loop.time() < end, "it does not come"
            await asyncio.sleep(1)


def group(aggregate: str, *sequences: int) -> AggregateEvents:
    events = [
        OutboxEvent(
            id=f"{aggregate}-{sequence}", aggregate=AggregateKey("contact", aggregate), action="Changed",
            sequence=sequence, created_at=EPOCH, data={"sequence": sequence},
        )
        for sequence in sequences
    ]  # fmt: skip
    return AggregateEvents(events[0].aggregate, events)


def run(
    story: Callable[[World], Awaitable[None]],
    seed: int = 0,
    *,
    lines: Lines | None = QUIET,
    in_order: bool = False,
) -> World:
    """``lines`` None: drawn by the seed. ``in_order``: first in, first out."""
    sdk_clock_servicebus.install()
    random = Random(seed)
    loop: Loop

    def now() -> datetime:
        return EPOCH + timedelta(seconds=loop.time())

    def new_id() -> UUID:
        return UUID(int=random.getrandbits(128), version=4)

    def monotonic() -> float:
        return loop.time()

    with using(Sources(now, monotonic, new_id, random)):
        network = AmqpNetwork(random, Lines.drawn(random) if lines is None else lines)
        loop = Loop(None if in_order else random, network=network.connect)
        trace = RunTrace(loop.time)
        network.note = trace.note

        async def main() -> World:
            with in_memory(clock=lambda: now().timestamp(), chance=random, config=CONFIG) as broker:
                network.serve = broker.connection
                world = World(loop, random, network, trace, broker)
                await story(world)
                return world

        servicebus_client(CONNECTION, None)  # it reads the trusted certificates, once in a process
        world = loop.run(main())
    trace.end()
    return world


async def published(
    world: World, *page: AggregateEvents, publisher: ServiceBusPublisher
) -> Sequence[Outcome]:
    return await publisher.publish(page, world.loop.time() + 60)


def relay(numbers: range) -> Callable[[World], Awaitable[None]]:
    """A process that publishes, again from the first that is not known to be accepted."""

    async def work(world: World) -> None:
        async with servicebus_client(CONNECTION, None) as client:
            publisher = ServiceBusPublisher(
                client, TOPIC, service=CloudEvents("/test"), partitioned=False, senders=2
            )
            for number in numbers:
                left = dict.fromkeys("abcd", number)
                while left:
                    page = [group(name, each) for name, each in left.items()]
                    for sent, outcome in zip(
                        page, await published(world, *page, publisher=publisher), strict=True
                    ):
                        world.trace.note("told", sent.aggregate.id, repr(outcome))
                        if isinstance(outcome, Accepted):
                            del left[sent.aggregate.id]
                    await asyncio.sleep(world.random.uniform(0, 3))
            await publisher.close()

    return work


ORDER = {name: [f"{name}-{number}" for number in range(1, 7)] for name in "abcd"}


async def quiet(world: World) -> None:
    world.process("subscriber", World.subscriber)
    _, sending = world.process("relay", relay(range(1, 7)))
    await sending
    await world.until(lambda: not world.broker.messages(PATH))


async def everything_befalls(world: World) -> None:
    """Faults of the broker and of the lines; a subscriber that dies now and then, some of them without a word."""
    random = world.random
    world.process("lasting", World.subscriber)
    mortal, _ = world.process("mortal 0", World.subscriber)
    _, sending = world.process("relay", relay(range(1, 7)))
    for life in range(1, 5):
        await asyncio.sleep(random.uniform(1, 15))
        kind: Any = random.choice(FAULTS)
        world.broker.happen(Fault(kind=kind, count=random.randint(1, 3), seconds=random.uniform(0, 5)))
        world.trace.note("fault", kind)
        if random.random() < 1 / 3:
            world.network.go_away(random.uniform(0, 20))
        world.loop.crash(mortal)
        world.network.end_of(mortal, told=random.random() < 1 / 2)
        mortal, _ = world.process(f"mortal {life}", World.subscriber)
    await sending
    await world.until(lambda: not world.broker.messages(PATH))


@pytest.mark.parametrize("in_order", [True, False])
def test_what_is_published_is_received_in_order_and_nothing_is_left(in_order: bool) -> None:
    world = run(quiet, in_order=in_order)
    assert world.received == ORDER
    assert world.loop.time() < 60
    assert world.loop.complaints == []


def test_whatever_befalls_the_lines_each_message_is_received_in_order() -> None:
    """Each of these seeds has all of it."""
    told: set[str] = set()
    for seed in (4, 8, 9):
        world = run(everything_befalls, seed, lines=None)
        assert world.received == ORDER, f"seed {seed}"
        told |= {step.what for step in world.trace.steps}
    assert told >= {"refused", "connection cut", "connection dead", "broker away", "fault"}


def test_a_dead_letter_is_collected_over_the_wire() -> None:
    kept: list[str] = []

    async def story(world: World) -> None:
        async def keep(delivery: Delivery, reason: str) -> None:
            kept.append(f"{delivery.message_id}: {reason}")

        async def hang(world: World) -> None:
            async with servicebus_client(CONNECTION, None, retries=0) as client:
                await Sessions(client, TOPIC, SUBSCRIPTION).serve(stuck, asyncio.Event(), Work(), slots=1)

        async def stuck(_: Delivery) -> None:
            await asyncio.sleep(3600)

        _, sending = world.process("relay", relay(range(1, 2)))
        await sending
        for life in range(100):
            if world.broker.messages(PATH) and not kept:
                dying, _ = world.process(f"life {life}", hang)
                await asyncio.sleep(10)
                world.loop.crash(dying)
                world.network.end_of(dying, told=False)
                await asyncio.sleep(40)
                async with servicebus_client(CONNECTION, None) as client:
                    found = await DeadLetters(client, TOPIC, SUBSCRIPTION).collect(keep, seconds=15)
                assert found == Collected(len(kept), emptied=True)

    run(story)
    assert kept
    assert {told.partition(": ")[2] for told in kept} == {"dead letter: MaxDeliveryCountExceeded"}


def digest(seed: int) -> str:
    """What one process says of a run; for another one to say the same."""
    world = run(everything_befalls, seed, lines=None)
    return json.dumps([world.trace.digest(), world.loop.steps, len(world.trace.steps)])


def test_two_processes_with_two_hash_seeds_see_the_same_run() -> None:
    program = "import logging; logging.disable(); from simulated import test_amqp as t; print(t.digest(3))"
    told = []
    for hash_seed in ("11", "22"):
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )  # fmt: skip
        told.append(done.stdout)
    assert told[0] == told[1]
    assert json.loads(told[0])[2] > 50

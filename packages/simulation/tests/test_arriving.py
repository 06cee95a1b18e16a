"""What waits in a subscription is applied, by the deployed code in virtual time: a sick aggregate, another number of
sessions, a lock that is lost."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from cosmos_outbox.inbox.entry import After, Found
from cosmos_outbox.inbox.message import Delivery, Event, MessageReader
from cosmos_outbox.inbox.read_model import HealReason, StateInbox
from cosmos_outbox.inbox.receiver import Receiver
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import Accepted, AggregateEvents
from cosmos_outbox.telemetry.liveness import SlotHealth
from outbox_simulation.engine.bus_client import queues
from outbox_simulation.engine.bus_publisher import BusPublisher
from outbox_simulation.engine.fault_injection import EPOCH
from outbox_simulation.engine.instance import SimulatedInstance
from test_bus import SUBSCRIPTION, World, run
from tests.support.inbox import FakeEntries, FakeSetAside, FakeSource

State = tuple[int, ...]
SESSIONS = 32
A_ROUND_TRIP = 0.02


def project(state: State, event: Event) -> After[State]:
    return After((*state, event.sequence or 0))


@dataclass
class Subscriber:
    """A read model of contacts, and how each of its events was applied."""

    world: World
    hangs: AggregateKey | None = None
    entries: FakeEntries[State] = field(default_factory=FakeEntries)
    source: FakeSource[State] = field(default_factory=FakeSource)
    records: FakeSetAside = field(default_factory=FakeSetAside)
    applied: list[tuple[float, AggregateKey, int | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.inbox = StateInbox(
            self.entries, self.source, project, first=lambda event: (1,), tombstones=timedelta(days=10)
        )

    async def handle(self, event: Event) -> None:
        await asyncio.sleep(A_ROUND_TRIP)
        if event.aggregate == self.hangs:
            await asyncio.Event().wait()
        await self.inbox.handle(event)
        self.applied.append((self.world.loop.time(), event.aggregate, event.sequence))

    def serve(self, name: str) -> SimulatedInstance:
        instance = SimulatedInstance(name, self.world.loop.outside())
        receiver = Receiver(MessageReader("contact").read, self.handle, self.records, check=self.inbox.check)
        sessions = queues(self.world.bus, SUBSCRIPTION).sessions
        serving = sessions.serve(receiver.receive, self.world.stop, SlotHealth(), slots=SESSIONS)
        self.world.loop.begin(instance, serving)
        return instance

    async def publish(self, names: list[str], *sequences: int, sessions: int | None = SESSIONS) -> None:
        """Publish the events of contacts, which their source shows then."""
        publisher = BusPublisher(self.world.bus, sessions=sessions)
        page = [AggregateEvents(key_of(name), [event_of(name, each) for each in sequences]) for name in names]
        assert await self.world.publish(*page, publisher=publisher) == [Accepted()] * len(names)
        for name in names:
            for each in sequences:
                self.source.change(key_of(name), Found(each, tuple(range(1, each + 1))))

    async def all_done(self) -> None:
        await self.world.until(lambda: not len(self.world.bus.queues[SUBSCRIPTION]))


def key_of(name: str) -> AggregateKey:
    return AggregateKey("contact", name)


def event_of(name: str, sequence: int) -> OutboxEvent:
    data = {"id": f"{name}-{sequence}", "contactId": name, "action": "Changed", "sequence": sequence}
    return OutboxEvent(
        id=f"{name}-{sequence}", aggregate=key_of(name), action="Changed", sequence=sequence, created_at=EPOCH,
        data={**data, "createdAt": EPOCH.isoformat()},
    )  # fmt: skip


NAMES = [str(number) for number in range(1_200)]


def seconds_for_all_others(hangs: str | None) -> float:
    """From the first event that is applied to the last."""
    found: list[Subscriber] = []

    async def story(world: World) -> None:
        found.append(subscriber := Subscriber(world, None if hangs is None else key_of(hangs)))
        await subscriber.publish(NAMES, 1)
        subscriber.serve("worker")
        await subscriber.all_done()

    run(story)
    [subscriber] = found
    others = {key_of(name) for name in NAMES if name != hangs}
    assert {key for _, key, _ in subscriber.applied} == others
    assert len(subscriber.applied) == len(others)
    waiting = [each.aggregate for each in subscriber.records.records.values()]
    assert waiting == ([] if hangs is None else [key_of(hangs)])
    return subscriber.applied[-1][0] - subscriber.applied[0][0]


@pytest.mark.long
def test_a_hanging_aggregate_delays_its_session_by_seconds_only() -> None:
    healthy, sick = seconds_for_all_others(None), seconds_for_all_others("7")
    assert sick <= 2 * healthy + 5


@pytest.mark.parametrize("drained", [True, False])
@pytest.mark.parametrize("to", [8, None])
def test_a_changed_session_number_loses_nothing_and_drained_heals_nothing(
    drained: bool, to: int | None
) -> None:
    found: list[Subscriber] = []
    names = NAMES[:40]

    async def story(world: World) -> None:
        found.append(subscriber := Subscriber(world))
        for name in ("one", "two"):
            subscriber.serve(name)
        await subscriber.publish(names, 1, 2, 3, 4, 5)
        if drained:
            await subscriber.all_done()
        await subscriber.publish(names, 6, 7, 8, 9, 10, sessions=to)
        await subscriber.all_done()

    run(story)
    [subscriber] = found
    for name in names:
        entry = subscriber.entries.of(key_of(name))
        assert entry is not None
        assert (entry.last_sequence, entry.state) == (10, tuple(range(1, 11)))
    healed = subscriber.inbox.counts[HealReason.GAP]
    assert healed == 0 if drained else healed > 0, "an event that overtakes is seen as a gap"
    if drained:
        for name in names:
            assert [each for _, key, each in subscriber.applied if key == key_of(name)] == list(range(1, 11))


def test_a_receiver_that_lost_its_lock_does_no_more_in_that_session() -> None:
    """It is paused with a message in its hands for longer than the lock lives."""
    handed: list[tuple[str, str]] = []

    async def story(world: World) -> None:
        def receiving(name: str, seconds: float) -> SimulatedInstance:
            async def receive(delivery: Delivery) -> None:
                handed.append((name, delivery.message_id))
                await asyncio.sleep(seconds)

            return world.serve(name, receive)[0]

        slow = receiving("slow", 5.0)
        await Subscriber(world).publish(["a"], 1, 2, 3, sessions=1)
        await world.until(lambda: bool(handed))
        world.loop.pause(slow, 100.0)
        receiving("quick", 0.0)
        await world.until(lambda: not len(world.bus.queues[SUBSCRIPTION]))
        await asyncio.sleep(200)

    world = run(story)
    assert handed == [("slow", "a-1"), ("quick", "a-1"), ("quick", "a-2"), ("quick", "a-3")]
    assert [step.what for step in world.trace.steps].count("completed") == 3

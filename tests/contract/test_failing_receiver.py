"""An aggregate at which its receiver keeps failing is tried again in order, for ever, and holds up no other."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random

import pytest

from cosmos_outbox.cosmos.relay import parking
from cosmos_outbox.cosmos.relay.pages import VerifiedPage
from cosmos_outbox.cosmos.relay.parked_documents import ParkedState
from cosmos_outbox.cosmos.relay.parking import LONGEST_TRY_AGAIN_SECONDS
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.relay.relay import Relay
from cosmos_outbox.kernel.clock import sources, using
from cosmos_outbox.outbox.aggregate_block import AggregateBlock, Refusal
from cosmos_outbox.outbox.errors import NotDelivered
from cosmos_outbox.outbox.feed import by_aggregate
from cosmos_outbox.outbox.publisher import (
    Accepted,
    AggregateEvents,
    CloudEvents,
    Failing,
    Guarantees,
    Outcome,
    Unknown,
)
from cosmos_outbox.settings.transports import Webhook
from cosmos_outbox.webhook import publisher as webhook_publisher
from cosmos_outbox.webhook.answers import ATTEMPTS, Meaning
from cosmos_outbox.webhook.publisher import Signed, WebhookPublisher
from outbox_simulation.engine.bus_publisher import BusPublisher
from tests.contract.test_parking import World, event, ids, skip_marker
from tests.support.feed import contact_key, read
from tests.support.memory import committed, memory_lot
from tests.support.publishing import event as outbox_event
from tests.support.receiver import OK, SECRET, Got, Receiver, receiving, says
from tests.support.virtual_time import in_virtual_time


@dataclass
class Faulty:
    """A receiver that fails at some events, by their ids; ``away``: it cannot be reached at all."""

    fails_at: set[str] = field(default_factory=set)
    away: bool = False
    tried: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    guarantees = Guarantees(
        ordered=False, deduplicates=False, mixes_aggregates=False, largest_message_bytes=None
    )

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        return [self._take(group) for group in page]

    def _take(self, group: AggregateEvents) -> Outcome:
        for accepted, each in enumerate(group.events):
            self.tried.append(each.id)
            if self.away:
                return Unknown(accepted, "cannot be reached")
            if each.id in self.fails_at:
                return Failing(accepted, "the receiver answers 500")
            self.taken.append(each.id)
        return Accepted()


@pytest.fixture
def world(lot: CosmosParkingLot) -> World:
    return World(lot, BusPublisher())


@pytest.fixture
def faulty(world: World) -> Faulty:
    one = Faulty({event(1)["id"]})
    world.topic = one  # type: ignore[assignment]  # the relay and the desk see a publisher alone
    return one


async def tried_after(world: World, faulty: Faulty, seconds: float) -> bool:
    """Whether the event in the way was tried by the upkeep after so long."""
    world.now += timedelta(seconds=seconds)
    before = len(faulty.tried)
    await world.parking.upkeep()
    return len(faulty.tried) > before


async def test_others_go_on_and_what_comes_later_waits_in_order(world: World, faulty: Faulty) -> None:
    await world.feed(event(1), event(2), event(1, "b"))
    await world.feed(event(3), event(2, "b"))

    assert faulty.taken == [event(1, "b")["id"], event(2, "b")["id"]]
    assert [one.event_id for one in await world.listed()] == ids(1, 2, 3)
    faulty.fails_at.clear()
    assert await tried_after(world, faulty, 80)
    assert faulty.taken[2:] == ids(1, 2, 3)
    assert not await world.is_blocked()


async def test_a_receiver_that_is_away_in_between_makes_the_pauses_grow_too(
    world: World, faulty: Faulty
) -> None:
    await world.feed(event(1))
    faulty.away = True
    assert await tried_after(world, faulty, 80)
    assert not await tried_after(world, faulty, 80)
    assert await tried_after(world, faulty, 80)
    faulty.away, faulty.fails_at = False, set()
    assert await tried_after(world, faulty, LONGEST_TRY_AGAIN_SECONDS * 1.3)
    assert faulty.taken == ids(1)


async def test_it_gets_on_by_what_is_taken_and_waits_at_the_next_failure(
    world: World, faulty: Faulty
) -> None:
    await world.feed(event(1), event(2), event(3))
    faulty.fails_at = {event(3)["id"]}
    assert await tried_after(world, faulty, 80)
    assert faulty.taken == ids(1, 2)
    assert [(one.event_id, one.attempts) for one in await world.listed()] == [(ids(3)[0], 1)]


async def test_an_operator_gives_it_up_and_its_skip_marker_is_sent_at_once(
    world: World, faulty: Faulty
) -> None:
    await world.feed(event(1), event(2))
    in_the_way = await world.parked(1)
    assert in_the_way.state is ParkedState.IN_THE_WAY
    await world.parking.discard(in_the_way.id, "the receiver never will")
    await world.parking.upkeep()
    assert faulty.taken == [skip_marker(1), *ids(2)]


async def test_a_skip_marker_at_which_it_fails_is_kept(world: World, faulty: Faulty) -> None:
    await world.feed(event(1), event(2))
    await world.parking.discard((await world.parked(1)).id, "the receiver never will")
    faulty.fails_at = {skip_marker(1)}
    await world.parking.upkeep()
    assert faulty.taken == []
    faulty.fails_at.clear()
    await world.parking.upkeep()
    assert faulty.taken == [skip_marker(1), *ids(2)]


async def test_everything_that_fails_alike_waits_in_the_feed(world: World, faulty: Faulty) -> None:
    """The receiver is down: all would be copied to the parking lot otherwise."""
    faulty.fails_at = {event(1, contact)["id"] for contact in "abcd"}
    with pytest.raises(Exception, match="alike"):
        await world.feed(*(event(1, contact) for contact in "abcd"))
    assert await world.listed() == []


@pytest.fixture
async def receiver(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Receiver]:
    monkeypatch.setattr(webhook_publisher, "FIRST_PAUSE_SECONDS", 0.01)
    async with receiving() as one:
        yield one


async def test_over_a_real_receiver(world: World, receiver: Receiver) -> None:
    broken = True
    receiver.answer = lambda got: says(500) if broken and got.id == ids(1)[0] else OK
    publisher = WebhookPublisher(receiver.target(), service=CloudEvents("/test"))
    world.topic = publisher  # type: ignore[assignment]  # the relay and the desk see a publisher alone
    await world.feed(event(1), event(2), event(1, "b"))
    assert await world.is_blocked()
    broken = False
    world.now += timedelta(seconds=80)
    await world.parking.upkeep()
    assert receiver.ids()[-2:] == ids(1, 2)
    assert not await world.is_blocked()
    await publisher.close()


async def test_an_answer_slower_than_an_aggregates_share_is_waited_for(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off, the event would come to the receiver again and again, and wait in the parking lot for ever."""
    monkeypatch.setattr(parking, "SHARE_SECONDS", 0.2)
    receiver.answer = lambda got: says(500) if got.id == ids(1)[0] else OK
    publisher = WebhookPublisher(receiver.target(request_seconds=5), service=CloudEvents("/test"))
    world.topic = publisher  # type: ignore[assignment]  # the relay and the desk see a publisher alone
    await world.feed(event(1), event(1, "b"))
    asked = len(receiver.got)
    receiver.answer = lambda _: slow
    world.now += timedelta(seconds=80)
    await world.parking.upkeep()
    assert receiver.ids()[asked:] == ids(1)
    assert not await world.is_blocked()
    await publisher.close()


async def slow(got: Got, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(0.6)
    await OK(got, writer)


class Silent(WebhookPublisher):
    """Its receiver takes ten seconds to give no answer about some events, and takes the others."""

    def __init__(self, concurrency: int) -> None:
        target = Webhook("https://x.invalid/", [SECRET], request_seconds=10, concurrency=concurrency)
        super().__init__(target, service=CloudEvents("/test"))
        self.asked: list[str] = []

    async def _ask(self, request: Signed, limit: asyncio.Timeout) -> webhook_publisher._Answer:
        self.asked.append(request.id)
        if request.id.startswith("bad"):
            await asyncio.Event().wait()
        return webhook_publisher._Answer(Meaning.ACCEPTED, "")


def forwarded(
    many: int, *others: str, attempts: int, concurrency: int = 4, seconds: float = 25
) -> tuple[Sequence[str], int, int]:
    """What was asked, how many wait in the parking lot, and after how many attempts, each so many seconds long."""
    names = [*(f"bad{each}" for each in range(many)), *others]
    page = [outbox_event(name, 1) for name in names]
    publisher = Silent(concurrency)

    async def story() -> tuple[int, int]:
        async with memory_lot(CosmosParkingLot) as lot:
            relay = Relay(publisher, lot, committed(lot), reading_seconds=seconds)
            needed = 0
            while needed < attempts:
                needed += 1
                with suppress(NotDelivered):
                    await relay.forward_committed(VerifiedPage(page, by_aggregate(page)))
                    break
            return len(await lot.list_blocked()), needed

    return publisher.asked, *in_virtual_time(story())


@pytest.mark.parametrize("many", [2, 12])
def test_however_many_hang_the_others_do_not_wait_for_them(many: int) -> None:
    """As the aggregates of one tenant do, all before the others in the page: each attempt asked them first."""
    good = {"good0-1", "good1-1", "good2-1"}
    asked, parked, attempts = forwarded(many, "good0", "good1", "good2", attempts=12)
    assert attempts < 12, "nobody has to come, and nobody waits for minutes"
    assert parked == many
    assert {each for each in asked if asked.count(each) == 1} == good
    assert good <= {*asked[: 2 * many + 3]}


def test_a_receiver_at_which_all_hang_is_waited_for() -> None:
    """A page has time for one or two tries: one event has all of its own before the others have theirs."""
    asked, parked, _ = forwarded(3, attempts=20, concurrency=1, seconds=15)
    assert max(map(asked.count, asked)) > ATTEMPTS
    assert parked == 0


@dataclass
class Hanging(Faulty):
    """At some events it takes ten seconds, by the upkeep's clock, until the request is given up."""

    seconds: float = 0.0

    def _take(self, group: AggregateEvents) -> Outcome:
        outcome = super()._take(group)
        if isinstance(outcome, Failing):
            self.seconds += 10.0
        return outcome


@pytest.mark.long
async def test_a_short_failure_does_not_wait_behind_many_that_hang(
    lot: CosmosParkingLot,
) -> None:
    """An upkeep has time for four of them, which were tried nine times and hang each time."""
    hanging = Hanging({event(1, f"old{number}")["id"] for number in range(40)})
    world = World(lot, hanging)  # type: ignore[arg-type]  # a publisher alone is seen
    for number in range(40):
        old = read(event(1, f"old{number}"))
        blocked = AggregateBlock(contact_key(f"old{number}")).blocked_by(old, "500", [], world.now)
        tried = Refusal(old.id, "500", 9, world.now, passing=True)
        await lot.park(replace(blocked, refusal=tried), [old])
    took = []
    for seed in range(8):
        name = f"new{seed}"
        with using(replace(sources(), random=Random(seed))):
            hanging.fails_at.add(event(1, name)["id"])
            await world.feed(event(seed + 1, "good"), event(1, name))
            hanging.fails_at.remove(event(1, name)["id"])
            took.append(0)
            while await world.is_blocked(contact_key(name)):
                world.now += timedelta(hours=2)
                await replace(world.parking, timer=lambda: hanging.seconds).upkeep()
                took[-1] += 1
                assert took[-1] < 40, "it never has its turn"
    assert sum(took) / len(took) < 3, "14 on the average, when all had the same chance"

"""A broker that refuses everything alike parks nobody at first; poison parks its aggregate, and ends in any case."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from cosmos_outbox.cosmos.relay.pages import PATIENCE_SECONDS, ForwardResult
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.relay.relay import Relay
from cosmos_outbox.kernel.clock import SYSTEM, using
from cosmos_outbox.outbox.errors import NotDelivered
from cosmos_outbox.outbox.feed import FeedEvent
from cosmos_outbox.outbox.publisher import AggregateEvents, Failing, Outcome, Refused, Unknown
from outbox_simulation.engine.bus_publisher import BusPublisher
from tests.support.feed import contact_id, contact_key, event_document, poison_document, read
from tests.support.memory import committed

NEVER = "a value is outside the limits"


@dataclass
class Refusing(BusPublisher):
    """Answers for some aggregates that it never takes their events, or that it cannot be reached."""

    reasons: dict[str, str] = field(default_factory=dict)
    never: type[Refused | Failing] = Refused
    refuses_all: bool = False
    late: set[str] = field(default_factory=set)
    """The aggregates for which a page has no time left."""

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        return [self._outcome(group) for group in page]

    def _outcome(self, group: AggregateEvents) -> Outcome:
        if group.aggregate.id in self.late:
            return Unknown(0, "the receiver did not take the events in time")
        reason = NEVER if self.refuses_all else self.reasons.get(group.aggregate.id)
        return self.take(group) if reason is None else self.never(0, reason)

    def refuse(self, *contacts: str, reason: str = NEVER) -> None:
        self.reasons |= {contact_id(contact): reason for contact in contacts}


@dataclass
class Bench:
    lot: CosmosParkingLot
    publisher: Refusing = field(default_factory=Refusing)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.relay = Relay(self.publisher, self.lot, committed(self.lot))

    async def forward(self, *contacts: str) -> ForwardResult:
        with using(replace(SYSTEM, monotonic=lambda: self.now)):
            return await self.relay.forward([event(contact) for contact in contacts])

    async def waits(self, *contacts: str) -> None:
        with pytest.raises(NotDelivered, match=f"refuses the events of several aggregates alike .* {NEVER}"):
            await self.forward(*contacts)

    async def parked(self) -> set[str]:
        blocked = {block.aggregate for block in await self.lot.list_blocked()}
        return {contact for contact in "abcdefgh" if contact_key(contact) in blocked}


@pytest.fixture
def bench(lot: CosmosParkingLot) -> Bench:
    return Bench(lot)


def event(contact: str, sequence: int = 1) -> FeedEvent:
    return read(event_document(contact, sequence))


@pytest.mark.parametrize("never", [Refused, Failing])
async def test_a_page_refused_as_a_whole_waits_unparked_until_patience_ends(
    bench: Bench, never: type[Refused | Failing]
) -> None:
    """Or one at which a broker fails that does not say whether it took others in between."""
    bench.publisher.never = never
    bench.publisher.refuses_all = True
    while bench.now < PATIENCE_SECONDS:
        await bench.waits("a", "b", "c")
        bench.now += 60
    assert await bench.parked() == set()
    bench.publisher.refuses_all = False
    assert (await bench.forward("a", "b", "c")).sent == 3


async def test_poison_of_one_partition_is_parked_while_another_delivers(bench: Bench) -> None:
    """Partition 1 holds two poisoned aggregates; partition 2 has an event accepted between its attempts."""
    bench.publisher.refuse("a", "b")
    await bench.waits("a", "b")
    bench.now += 1
    assert (await bench.forward("c")).sent == 1
    bench.now += 1
    assert (await bench.forward("a", "b")).parked == 2


async def test_a_broker_that_breaks_after_an_acceptance_parks_nobody(bench: Bench) -> None:
    assert (await bench.forward("a")).sent == 1
    bench.now += 1
    bench.publisher.refuses_all = True
    await bench.waits("b", "c")
    assert await bench.parked() == set()


async def test_what_fails_before_others_had_as_many_tries_waits(bench: Bench) -> None:
    """At a receiver at which all hang, and a page that has no time for all."""
    bench.publisher.never = Failing
    bench.publisher.refuse("a", "b")
    bench.publisher.late = {contact_id("b")}
    while bench.now < PATIENCE_SECONDS:
        await bench.waits("a", "b")
        assert await bench.parked() == set()
        bench.now += 60
    with pytest.raises(NotDelivered, match="in time"):
        await bench.forward("a", "b")
    assert await bench.parked() == {"a"}, "poison ends, though nothing else is sent"


async def test_what_fails_alone_is_parked_once_others_are_accepted(bench: Bench) -> None:
    bench.publisher.never = Failing
    bench.publisher.refuse("a")
    bench.publisher.late = {contact_id("b")}
    await bench.waits("a", "b")
    bench.publisher.late.clear()
    assert await bench.forward("a", "b") == ForwardResult(sent=1, parked=1)


async def test_a_page_of_poison_alone_ends_one_aggregate_at_a_time(bench: Bench) -> None:
    bench.publisher.refuse("a", "b", "c")
    parked = []
    for _ in range(100):
        try:
            forwarded = await bench.forward("a", "b", "c")
        except NotDelivered:
            parked.append((bench.now, len(await bench.parked())))
            bench.now += 60
        else:
            break
    assert forwarded.parked == 3
    assert parked[9:12] == [(540, 0), (600, 1), (660, 1)]
    assert bench.now <= 3 * PATIENCE_SECONDS + 120


async def test_refusals_for_different_reasons_are_of_the_documents(bench: Bench) -> None:
    bench.publisher.refuse("a")
    bench.publisher.refuse("b", reason="the message is larger than the topic takes")
    assert (await bench.forward("a", "b")).parked == 2


async def test_what_an_event_itself_shows_is_never_the_brokers_fault(bench: Bench) -> None:
    large = [read(event_document(contact, 1, text="x" * 300_000)) for contact in "abc"]
    broken = [read(poison_document(contact, lsn=1)) for contact in "de"]
    assert (await bench.relay.forward([*large, *broken])).parked == 5

"""Parking survives the loss of any one write or its answer, with or without the process, on replicas that lag.

Every write of one story is lost in turn: relay, operator and upkeep do what they would do then, and the story has to
end as it would have ended without the loss.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.relay.parked_documents import ParkedDocuments
from cosmos_outbox.cosmos.relay.parking import Parking
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.relay.relay import Relay
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.aggregate_block import AggregateBlock
from cosmos_outbox.outbox.errors import NotInTheWay, NotParked, OutboxError
from cosmos_outbox.outbox.feed import SkipMarker
from devstack.testing import Service
from outbox_simulation.engine.bus_publisher import BusPublisher
from tests.support.azure import PARKED, contacts_database, cosmos_connection
from tests.support.contacts import NOON
from tests.support.emulators import Gap
from tests.support.feed import EVENTS, contact_key, event_document, read
from tests.support.losses import EACH_LOSS, Failing, Fate, Loss, ProcessDied
from tests.support.memory import committed

_ATTEMPTS = 6
_LATER = timedelta(minutes=5)
"""Longer than a claim or a reading of the blocks lives."""


@dataclass
class Story:
    """One contact's events, from the feed to the topic, over a store that fails once."""

    contact: str
    make: Callable[[], CosmosParkingLot]
    topic: BusPublisher
    now: datetime = field(default_factory=utc_now)
    lot: CosmosParkingLot = field(init=False)

    def __post_init__(self) -> None:
        self.lot = self.make()

    @property
    def key(self) -> AggregateKey:
        return contact_key(self.contact)

    @property
    def parking(self) -> Parking:
        return Parking(self.lot, self.topic, committed(self.lot), clock=lambda: self.now, pause=self.pause)

    async def pause(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def event(self, sequence: int, **data: Any) -> dict[str, Any]:
        return event_document(self.contact, sequence, **data)

    def large(self, sequence: int) -> dict[str, Any]:
        return self.event(sequence, text="x" * 2000)

    async def play(self) -> None:
        page = [self.event(1), self.large(2), self.event(3)]
        await self.until_done(lambda: self.feed(page))
        await self.until_done(lambda: self.feed([self.event(4)]))
        await self.until_done(self.discard)
        await self.until_done(lambda: self.feed([self.event(5)]))
        await self.until_done(self.replay)
        await self.until_done(lambda: self.feed(page))
        await self.until_done(lambda: self.feed([self.event(6)]))
        await self.until_done(self.parking.upkeep)

    async def until_done(self, step: Callable[[], Awaitable[None]]) -> None:
        """The host brings a page again, an operator repeats a call, and a new process knows no session."""
        for _ in range(_ATTEMPTS):
            done = False
            try:
                await step()
                done = True
            except* ProcessDied:
                self.lot = self.make()
            except* OutboxError:
                pass
            if done:
                return
            self.now += _LATER
        raise AssertionError("never done")

    async def feed(self, items: Sequence[dict[str, Any]]) -> None:
        relay = Relay(self.topic, self.lot, committed(self.lot), clock=lambda: self.now)
        await relay.forward([read(item) for item in items])

    async def discard(self) -> None:
        await self.lot.read_blocks([])  # an operator who sees an old list looks again
        found = [one for one in await self.listed() if one.sequence == 2 and not one.is_skip]
        for one in found:
            with suppress(NotInTheWay):
                await self.parking.discard(one.id, "r")

    async def replay(self) -> None:
        with suppress(NotParked):
            assert (await self.parking.replay(self.key)).done

    async def listed(self) -> list[Any]:
        return [one for one in (await self.lot.page(100, None)).items if one.aggregate == self.key]


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_what_a_lost_answer_has_removed_is_not_counted_again(cosmos_server: Service) -> None:
    """Of four parked events two are removed, and the SDK repeats that write: two wait all the same."""
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_connection(cosmos_server)) as client,
    ):
        container = Failing(client, database.id, PARKED)
        container.fate = Fate(Loss.REPEATED, 0)
        lot, key = (
            CosmosParkingLot(container, "t", ParkedDocuments(EVENTS), ttl_seconds=600),
            contact_key("a"),
        )
        events = [read(event_document("a", sequence)) for sequence in (1, 2, 3, 4)]
        await lot.park(AggregateBlock(key).blocked_by(events[0], "refused", [], NOON), events)
        block = await lot.store((await lot.read_blocks([key]))[key].claimed("replay", NOON))
        delivered = [parked for parked, _ in await lot.waiting(key, 2)]
        container.fate = Fate(Loss.REPEATED, 1)
        after = await lot.settle(block, delivered, lambda newest: newest)
        assert (after.blocked, after.waiting) == (True, 2)
        assert [parked.sequence for parked, _ in await lot.waiting(key, 9)] == [3, 4]


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
@pytest.mark.parametrize("loss", EACH_LOSS)
async def test_whatever_write_is_lost_the_contacts_events_arrive_once_in_order(
    cosmos_server: Service, loss: Loss
) -> None:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_connection(cosmos_server)) as client,
    ):
        documents, topic = ParkedDocuments(EVENTS), BusPublisher(limit=1000)
        struck = True
        write = 0
        while struck:
            write += 1
            fate = Fate(loss, write)

            def make(fate: Fate = fate) -> CosmosParkingLot:
                container = Failing(client, database.id, PARKED)
                container.fate = fate
                return CosmosParkingLot(container, "t", documents, ttl_seconds=600)

            story = Story(f"{loss.name}-{write}", make, topic)
            await story.play()
            struck = fate.struck
            fate.write = 0

            expected = [story.event(sequence)["id"] for sequence in (1, 2, 3, 4, 5, 6)]
            expected[1] = SkipMarker(story.key, expected[1], 2, story.now).id
            assert topic.of(story.key) == expected, f"write {write}"
            block = (await story.lot.read_blocks([story.key]))[story.key]
            assert (block.blocked, block.waiting) == (False, 0), f"write {write}"
            assert await story.listed() == [], f"write {write}"
        assert write > 12, "so many writes has the story at least"

"""A discarding that loses a race is decided anew, a few times; the upkeep leaves alone what others have to do."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from cosmos_outbox.cosmos.maintenance.event_list import Span, Window
from cosmos_outbox.cosmos.relay.parked_documents import ParkedEvent, ParkedState
from cosmos_outbox.cosmos.relay.parking import MAX_AGE_SECONDS, Parking
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import SYSTEM, using
from cosmos_outbox.operations.republish import Republishing, RepublishingProgress
from cosmos_outbox.outbox.aggregate_block import AggregateBlock
from cosmos_outbox.outbox.errors import ConcurrentChange, PreconditionFailed
from cosmos_outbox.outbox.feed import FeedEvent, SkipMarker
from outbox_simulation.engine.bus_publisher import BusPublisher
from tests.support.contacts import NOON
from tests.support.feed import contact_key, event_document, read
from tests.support.memory import committed, memory_lot

CONTACT = contact_key("a")
MONTH = timedelta(seconds=MAX_AGE_SECONDS)


class _Contended(CosmosParkingLot):
    """Others change the block, so many times, before a discarding can."""

    races: int = 0

    async def discard(
        self, block: AggregateBlock, event: ParkedEvent, skip_marker: SkipMarker, reason: str
    ) -> None:
        if self.races:
            self.races -= 1
            await self.store((await self.read_blocks([block.aggregate]))[block.aggregate])
            raise PreconditionFailed("others were faster")
        await super().discard(block, event, skip_marker, reason)


async def _parked(lot: CosmosParkingLot) -> ParkedEvent:
    refused = read(event_document("a", 1))
    await lot.park(AggregateBlock(CONTACT).blocked_by(refused, "refused", [], NOON), [refused])
    [(event, _)] = await lot.waiting(CONTACT, 1)
    return event


def _parking(lot: CosmosParkingLot, topic: BusPublisher | None = None) -> Parking:
    return Parking(lot, topic or BusPublisher(), committed(lot), clock=lambda: NOON + timedelta(hours=1))


async def test_a_discarding_that_lost_a_race_is_decided_anew() -> None:
    async with memory_lot(_Contended) as lot:
        event = await _parked(lot)
        lot.races = 4

        await _parking(lot).discard(event.id, "it will never be right")

        given_up = await lot.get(event.id)
    assert given_up is not None
    assert given_up.state is ParkedState.DISCARDED


async def test_a_discarding_that_loses_every_race_says_so_and_changes_nothing() -> None:
    async with memory_lot(_Contended) as lot:
        event = await _parked(lot)
        lot.races = 20

        with pytest.raises(ConcurrentChange, match="discard the event again"):
            await _parking(lot).discard(event.id, "it will never be right")

        assert lot.races == 15
        left = await lot.get(event.id)
    assert left is not None
    assert left.state is ParkedState.IN_THE_WAY


class _Slow(CosmosParkingLot):
    """Its answers take time."""

    seconds: float = 0.0
    passed: float = 0.0

    async def waiting(self, aggregate: AggregateKey, limit: int) -> Sequence[tuple[ParkedEvent, FeedEvent]]:
        self.passed += self.seconds
        return await super().waiting(aggregate, limit)

    async def read_blocks(
        self, aggregates: Collection[AggregateKey]
    ) -> Mapping[AggregateKey, AggregateBlock]:
        self.passed += self.seconds
        return await super().read_blocks(aggregates)


async def test_a_replay_sends_no_longer_than_its_claim_lasts() -> None:
    """The claim lasts for 90 s, of which the reading of what waits takes 80."""
    topic = BusPublisher()
    async with memory_lot(_Slow) as lot:
        await _parked(lot)
        lot.seconds = 80.0
        with using(replace(SYSTEM, monotonic=lambda: 0.0)):
            parking = Parking(lot, topic, committed(lot), clock=lambda: NOON + timedelta(seconds=lot.passed))
            await parking.replay(CONTACT)
    assert topic.until == 5.0, "5 s before the claim runs out, since clocks differ"


async def test_a_republishing_counts_its_reading_from_the_beginning() -> None:
    """Rule ``fresh-reading``: the reading of the blocks takes 40 s, and may be used for 60."""
    topic, event = BusPublisher(), read(event_document("a", 1))

    async def one_event(span: Span) -> Window:
        return Window([event], span.to)

    async with memory_lot(_Slow) as lot:
        lot.seconds = 40.0
        with using(replace(SYSTEM, monotonic=lambda: lot.passed)):
            work = Republishing(
                one_event, lot, committed(lot), topic, UUID(int=1), 60.0, patience_seconds=0.0
            )
            progress = RepublishingProgress()
            assert [_ async for _ in work.publish(Span(0, 1), progress)] == [1]
    assert (progress.published, topic.until) == (1, 60.0)


class _OldList(CosmosParkingLot):
    """Its list of what is parked is as it was some time ago."""

    listed: Sequence[AggregateBlock] = ()

    async def list_blocked(self) -> Sequence[AggregateBlock]:
        return self.listed


@pytest.mark.parametrize("found", ["nothing", "a replay", "a replay of what is too old"])
async def test_a_second_concurrent_upkeep_sends_and_logs_nothing(
    found: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic, now = BusPublisher(), NOON + MONTH + timedelta(hours=1)
    async with memory_lot(_OldList) as lot:
        with using(replace(SYSTEM, now=lambda: NOON)):
            await _parked(lot)
        seen = (await lot.read_blocks([CONTACT]))[CONTACT]
        lot.listed = [seen if found == "a replay of what is too old" else seen.claimed("dead", NOON)]
        await lot.store(seen.unblocked() if found == "nothing" else seen.claimed("other", now + MONTH))

        await Parking(lot, topic, committed(lot), clock=lambda: now).upkeep()

    assert topic.sent == []
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


async def _left_alone(lot: CosmosParkingLot, now: datetime) -> bool:
    before, topic = await lot.read_blocks([CONTACT]), BusPublisher()
    await Parking(lot, topic, committed(lot), clock=lambda: now).upkeep()
    return topic.sent == [] and await lot.read_blocks([CONTACT]) == before


async def test_an_event_waiting_for_an_operator_is_left_alone_by_the_upkeep(lot: CosmosParkingLot) -> None:
    """An event of a lower sequence that came later, after a failover say, has its place before the one in the way."""
    refused = read(event_document("a", 2))
    await lot.park(AggregateBlock(CONTACT).blocked_by(refused, "refused", [], NOON), [refused])
    await lot.park((await lot.read_blocks([CONTACT]))[CONTACT], [read(event_document("a", 1))])

    assert await _left_alone(lot, NOON + MONTH - timedelta(hours=1))


async def test_an_event_is_not_tried_for_the_age_of_the_one_that_was_in_its_way(
    lot: CosmosParkingLot,
) -> None:
    with using(replace(SYSTEM, now=lambda: NOON + MONTH)):
        await _parked(lot)

    assert await _left_alone(lot, NOON + MONTH + timedelta(hours=1))

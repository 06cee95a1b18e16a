"""A page of the feed ends in time, and operators learn when it does not."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence

import pytest

from cosmos_outbox.cosmos.relay import forwarding
from cosmos_outbox.cosmos.relay.forwarding import Forwarding, Instance, RelayFailures
from cosmos_outbox.cosmos.relay.originals import CosmosOriginals
from cosmos_outbox.cosmos.relay.pages import VerifiedPage
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.relay.relay import Relay
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.loops import CallEnded
from cosmos_outbox.outbox.aggregate_block import AggregateBlock
from cosmos_outbox.outbox.errors import FailureReason, NotDelivered
from cosmos_outbox.outbox.feed import FeedEvent
from cosmos_outbox.outbox.publisher import AggregateEvents, Outcome, Unknown
from outbox_simulation.engine.bus_publisher import BusPublisher
from tests.support.feed import EVENTS, event_document, read
from tests.support.memory import committed, memory_lot
from tests.support.telemetry import recording


class NeverRead(CosmosOriginals):
    """A store that begins an answer and does not end it."""

    async def verify(self, _events: Sequence[FeedEvent]) -> list[FeedEvent]:
        await asyncio.Event().wait()
        raise AssertionError("cut off")


class NothingKept(RelayFailures):
    """Without a store."""

    def __init__(self) -> None:
        super().__init__(None, "relay-failures", 1000)  # type: ignore[arg-type]  # nothing is written
        self.kept: list[tuple[FailureReason, str]] = []

    async def note(self, reason: FailureReason, detail: str) -> None:
        self.kept.append((reason, detail))


class NeverAsked(CosmosParkingLot):
    async def read_blocks(
        self, _aggregates: Collection[AggregateKey]
    ) -> Mapping[AggregateKey, AggregateBlock]:
        await asyncio.Event().wait()
        raise AssertionError("cut off")


@pytest.mark.parametrize(
    ("half", "reason"), [("read", "was not compared with what was committed"), ("send", "was not forwarded")]
)
async def test_a_page_that_takes_too_long_is_logged_once_a_minute(
    half: str, reason: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also outside Functions, where no host logs what a function raises."""
    monkeypatch.setattr(forwarding, "FORWARD_SECONDS", 0.01)

    async def attempt(work: Forwarding) -> None:
        if half == "read":
            await work.compare([event_document("a", 1)])
        else:
            events = EVENTS.events([event_document("a", 1)])
            await work.forward_committed(VerifiedPage(events, {events[0].aggregate: events}))

    async with memory_lot(NeverAsked) as lot:
        never = NeverRead(lot._container, EVENTS)
        relay = Relay(BusPublisher(), lot, never)
        work = Forwarding(relay, EVENTS, Instance({}), NothingKept())
        for _ in range(2):
            with pytest.raises(NotDelivered, match="is tried again"):
                await attempt(work)
    reported = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert reported == [f"events wait: a page of the feed {reason} within 0 s, and is tried again"]


class Away(BusPublisher):
    """A broker that takes nothing, for a reason of that kind."""

    why = FailureReason.BROKER_AWAY

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        return [Unknown(0, "the topic is full", self.why) for _ in page]


@pytest.mark.parametrize(
    "why", [FailureReason.BROKER_AWAY, FailureReason.BROKER_THROTTLES, FailureReason.BROKER_REFUSES]
)
async def test_a_round_that_the_broker_holds_up_is_counted_and_kept_by_its_kind(
    why: FailureReason, lot: CosmosParkingLot
) -> None:
    away = Away()
    away.why = why
    kept = NothingKept()
    relay = Relay(away, lot, committed(lot))
    work = Forwarding(relay, EVENTS, Instance({}), kept)
    with recording() as recorded:
        for _ in range(2):
            with pytest.raises(NotDelivered, match="the topic is full"):
                await work.forward([dict(read(event_document("a", 1)).document)])
        assert recorded.points("outbox.relay.failed_rounds") == [({"outbox.reason": why.value}, 2)]
    assert [reason for reason, _ in kept.kept] == [why, why]
    assert "the topic is full" in kept.kept[0][1]


async def test_a_call_that_is_cancelled_elsewhere_is_a_failed_round(lot: CosmosParkingLot) -> None:
    class Cancelled(BusPublisher):
        async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
            raise asyncio.CancelledError

    kept = NothingKept()
    relay = Relay(Cancelled(), lot, committed(lot))
    with pytest.raises(CallEnded):
        await Forwarding(relay, EVENTS, Instance({}), kept).forward(
            [dict(read(event_document("a", 1)).document)]
        )
    assert kept.kept == [(FailureReason.BUG, "CallEnded")]

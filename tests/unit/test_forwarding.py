"""A page of the feed ends in time, and whoever runs the relay is told when it does not."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence

import pytest

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations import forwarding
from cosmos_outbox.operations.forwarding import Forwarding
from cosmos_outbox.operations.instance import Instance
from cosmos_outbox.outbox.errors import NotDelivered
from cosmos_outbox.outbox.feed import FeedEvent
from cosmos_outbox.outbox.marker import Marker
from cosmos_outbox.outbox.page import Committed
from cosmos_outbox.outbox.relay import Relay
from cosmos_outbox.outbox.ttl_guard import TtlGuard
from cosmos_outbox.testing.simulation.bus_publisher import BusPublisher
from tests.support.contacts import NOON
from tests.support.fake_parking_lot import FakeParkingLot
from tests.support.feed import EVENTS, event_document


class NeverRead:
    """A store that begins an answer and does not end it."""

    async def verify(self, _events: Sequence[FeedEvent]) -> list[FeedEvent]:
        await asyncio.Event().wait()
        raise AssertionError("cut off")

    def forget(self, _events: Sequence[FeedEvent]) -> None:
        """Nothing was kept."""


class NeverAsked(FakeParkingLot):
    async def markers(self, _aggregates: Collection[AggregateKey]) -> Mapping[AggregateKey, Marker]:
        await asyncio.Event().wait()
        raise AssertionError("cut off")


@pytest.mark.parametrize(
    ("half", "reason"), [("read", "was not compared with what was committed"), ("send", "was not forwarded")]
)
async def test_a_page_that_takes_too_long_is_told_to_an_operator_once_a_minute(
    half: str, reason: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also outside Functions, where no host logs what a function raises."""
    monkeypatch.setattr(forwarding, "FORWARD_SECONDS", 0.01)
    relay = Relay(BusPublisher(), NeverAsked(), NeverRead(), guard=TtlGuard(clock=lambda: NOON))
    work = Forwarding(relay, EVENTS, Instance({}))

    async def attempt() -> None:
        if half == "read":
            await work.compare([event_document("a", 1)])
        else:
            events = EVENTS.events([event_document("a", 1)])
            await work.forward_committed(Committed(events, {events[0].aggregate: events}))

    for _ in range(2):
        with pytest.raises(NotDelivered, match="is tried again"):
            await attempt()
    told = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert told == [f"events wait: a page of the feed {reason} within 0 s, and is tried again"]

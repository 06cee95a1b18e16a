"""A page of the feed ends in time, and whoever runs the relay is told when it does not."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pytest

from infra import wiring
from infra.settings import load
from infra.wire_names import WireNames
from infra.wiring import Outbox, wire_outbox
from outbox.aggregate import AggregateKey
from outbox.errors import NotDelivered
from outbox.feed import FeedEvent
from outbox.marker import Marker
from outbox.page import Committed
from outbox.relay import Relay
from outbox.ttl_guard import TtlGuard
from tests.support.fake_parking_lot import FakeParkingLot
from tests.support.fake_publisher import FakePublisher
from tests.support.feed import EVENTS, event_document

SETTINGS = load(
    {
        "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=AA==;",
        "SERVICEBUS": "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=AA==",
    }
)


class NeverRead:
    """A store that begins an answer and does not end it."""

    async def verified(self, _events: Sequence[FeedEvent]) -> list[FeedEvent]:
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
    monkeypatch.setattr(wiring, "FORWARD_SECONDS", 0.01)
    relay = Relay(FakePublisher(), NeverAsked(), NeverRead(), guard=TtlGuard(clock=lambda: 1_772_366_400))
    outbox = replace(wire_outbox(SETTINGS, WireNames("/contacts")), relay=relay)

    async def attempt(outbox: Outbox) -> None:
        if half == "read":
            await outbox.committed([event_document("a", 1)])
        else:
            events = EVENTS.events([event_document("a", 1)])
            await outbox.forward_committed(Committed(events, {events[0].aggregate: events}))

    async with outbox.resources:
        for _ in range(2):
            with pytest.raises(NotDelivered, match="is tried again"):
                await attempt(outbox)
    told = [record.message for record in caplog.records if record.levelno == logging.ERROR]
    assert told == [f"events wait: a page of the feed {reason} within 0 s, and is tried again"]

"""A discarding that loses a race is decided anew, a few times; then the operator is told to ask again."""

from dataclasses import dataclass
from datetime import timedelta

import pytest

from cosmos_outbox.outbox.errors import ConcurrentChange, PreconditionFailed
from cosmos_outbox.outbox.marker import Marker
from cosmos_outbox.outbox.notice import Notice
from cosmos_outbox.outbox.parking import Parking
from cosmos_outbox.outbox.parking_lot import ParkedEvent, ParkedState
from cosmos_outbox.testing.simulation.bus_publisher import BusPublisher
from tests.support.contacts import NOON
from tests.support.fake_parking_lot import FakeParkingLot
from tests.support.feed import contact_key, event_document, read

CONTACT = contact_key("a")


@dataclass
class _Contended(FakeParkingLot):
    """Others change the marker, so many times, before a discarding can."""

    races: int = 0

    async def discard(self, marker: Marker, event: ParkedEvent, notice: Notice, reason: str) -> None:
        if self.races:
            self.races -= 1
            await self.store(self.stored[marker.aggregate])
            raise PreconditionFailed("others were faster")
        await super().discard(marker, event, notice, reason)


async def _parked(lot: FakeParkingLot) -> ParkedEvent:
    refused = read(event_document("a", 1))
    await lot.park(Marker(CONTACT).block(refused, "refused", [], NOON), [refused])
    [(event, _)] = await lot.waiting(CONTACT, 1)
    return event


def _parking(lot: FakeParkingLot) -> Parking:
    return Parking(lot, BusPublisher(), clock=lambda: NOON + timedelta(hours=1))


async def test_a_discarding_that_lost_a_race_is_decided_anew() -> None:
    lot = _Contended(races=4)
    event = await _parked(lot)

    await _parking(lot).discard(event.id, "it will never be right")

    given_up = await lot.get(event.id)
    assert given_up is not None
    assert given_up.state is ParkedState.DISCARDED


async def test_a_discarding_that_loses_every_race_says_so_and_changes_nothing() -> None:
    lot = _Contended(races=20)
    event = await _parked(lot)

    with pytest.raises(ConcurrentChange, match="discard the event again"):
        await _parking(lot).discard(event.id, "it will never be right")

    assert lot.races == 15
    left = await lot.get(event.id)
    assert left is not None
    assert left.state is ParkedState.IN_THE_WAY

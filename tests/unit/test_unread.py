"""An event whose original cannot be read just now has the place, fate and lifetime of the one that was delivered."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cosmos_outbox.outbox.feed import Unread, in_order
from cosmos_outbox.outbox.marker import Fate, Marker
from cosmos_outbox.outbox.ttl_guard import TtlGuard
from tests.support.contacts import NOON
from tests.support.feed import contact_key, event_document, read
from tests.support.publishing import event


def unread(delivered: object) -> Unread:
    return Unread(delivered, "the store is away")  # type: ignore[arg-type]  # each test delivers one that can be sent


def test_it_has_its_place_by_its_sequence_among_those_of_its_transaction() -> None:
    first, second, third = (replace(event("a", sequence), lsn=5) for sequence in (1, 2, 3))
    assert in_order([third, unread(second), first]) == [first, unread(second), third]


def test_up_to_the_transaction_of_an_erasing_it_is_erased() -> None:
    erased = Marker(contact_key("a"), erased={"p": 7})
    old, new = (unread(replace(event("a", 9), lsn=lsn, partition="p")) for lsn in (7, 8))
    assert (erased.fate(old), erased.fate(new)) == (Fate.ERASED, Fate.SEND)


def test_where_it_was_discarded_it_is_dropped() -> None:
    discarded = event("a", 2)
    marker = Marker(contact_key("a"), discarded={discarded.id: NOON})
    assert marker.fate(unread(discarded)) is Fate.DROP


def test_half_of_its_lifetime_is_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    delivered = unread(read(event_document("a", 1)))
    TtlGuard(clock=lambda: NOON + timedelta(seconds=501)).watch([delivered])
    assert "of its TTL" in caplog.text

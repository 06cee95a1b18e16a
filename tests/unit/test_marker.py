"""A marker counts how often the broker refused the event in the way, and of no other."""

from datetime import timedelta

from outbox.marker import Marker
from tests.support.contacts import NOON
from tests.support.feed import contact_key
from tests.support.publishing import event

BLOCKED = Marker(contact_key("a")).block(event("a", 2), "too large", [event("a", 1)], NOON)


def attempts(marker: Marker) -> int:
    assert marker.refusal is not None
    return marker.refusal.attempts


def test_each_refusal_of_the_same_event_counts() -> None:
    again = BLOCKED.refused(BLOCKED.in_the_way or "", "still too large", NOON)

    assert attempts(BLOCKED) == 1
    assert attempts(again) == 2
    assert attempts(again.refused(event("a", 2).id, "still too large", NOON)) == 3


def test_the_next_event_that_is_refused_begins_at_one() -> None:
    assert attempts(BLOCKED.refused(event("a", 3).id, "too large as well", NOON)) == 1


def test_an_event_that_a_replay_meets_first_begins_at_one() -> None:
    assert attempts(Marker(contact_key("a"), blocked_since=NOON).refused("b", "too large", NOON)) == 1


def test_a_replay_has_its_time_and_no_more() -> None:
    replayed = BLOCKED.claimed("r", NOON)

    assert replayed.is_replayed(NOON - timedelta(microseconds=1))
    assert not replayed.is_replayed(NOON)

"""Which session an aggregate's events are in: the same for every process, and derived from its id."""

from collections import Counter
from uuid import UUID

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.servicebus.message import session_of

KEYS = [AggregateKey("order", str(UUID(int=number))) for number in range(3200)]


def test_a_bucket_is_the_same_for_good() -> None:
    """Written down once: events of an aggregate that wait in the topic are in the session that they were sent in."""
    assert session_of(AggregateKey("contact", "a"), 32) == "32-13"
    assert session_of(AggregateKey("contact", "a"), 1000) == "1000-093"
    assert session_of(AggregateKey("contact", "a"), 1) == "1-0"


def test_aggregates_are_spread_over_all_buckets() -> None:
    found = Counter(session_of(key, 32) for key in KEYS)
    assert set(found) == {f"32-{bucket:02d}" for bucket in range(32)}
    assert max(found.values()) < 2 * len(KEYS) / 32


def test_the_type_is_part_of_what_is_hashed() -> None:
    others = [AggregateKey("invoice", key.id) for key in KEYS]
    same = sum(session_of(one, 32) == session_of(other, 32) for one, other in zip(KEYS, others, strict=True))
    assert same < len(KEYS) / 8
    assert session_of(AggregateKey("a", "bc"), 1000) != session_of(AggregateKey("ab", "c"), 1000)


def test_a_change_of_the_number_shows_in_every_session() -> None:
    assert {session_of(key, 32) for key in KEYS}.isdisjoint({session_of(key, 31) for key in KEYS})


def test_every_id_that_an_aggregate_can_have_has_a_bucket() -> None:
    for name in ("\ud800", "ü" * 128, '"', ""):
        assert session_of(AggregateKey("order", name), 32).startswith("32-")

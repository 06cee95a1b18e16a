"""A block counts how often the broker refused the event in the way, and of no other, and is found under its id."""

from dataclasses import replace
from datetime import timedelta

from cosmos_outbox.cosmos.relay.parked_documents import block_id, block_item, block_of
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.aggregate_block import AggregateBlock, BlockDecision
from cosmos_outbox.outbox.feed import Unread, in_order
from tests.support.contacts import NOON
from tests.support.feed import contact_key
from tests.support.publishing import event

BLOCKED = AggregateBlock(contact_key("a")).blocked_by(event("a", 2), "too large", [event("a", 1)], NOON)


def attempts(block: AggregateBlock) -> int:
    assert block.refusal is not None
    return block.refusal.attempts


def test_each_refusal_of_the_same_event_counts() -> None:
    again = BLOCKED.refused(BLOCKED.in_the_way or "", "still too large", NOON, passing=False)

    assert attempts(BLOCKED) == 1
    assert attempts(again) == 2
    assert attempts(again.refused(event("a", 2).id, "still too large", NOON, passing=False)) == 3


def test_the_next_event_that_is_refused_begins_at_one() -> None:
    assert attempts(BLOCKED.refused(event("a", 3).id, "too large as well", NOON, passing=False)) == 1


def test_an_event_that_a_replay_meets_first_begins_at_one() -> None:
    assert (
        attempts(
            AggregateBlock(contact_key("a"), blocked_since=NOON).refused(
                "b", "too large", NOON, passing=False
            )
        )
        == 1
    )


def test_of_an_aggregate_without_a_block_nothing_is_parked_or_accepted() -> None:
    unknown = AggregateBlock(contact_key("a"))
    assert (unknown.blocked, unknown.waiting, unknown.accepted) == (False, 0, 0)


def test_an_event_without_a_sequence_stays_before_the_first_that_has_one() -> None:
    unsequenced = replace(event("a", 9), sequence=None)
    _, places = AggregateBlock(contact_key("a")).with_parked([unsequenced, event("a", 1)])
    assert places == sorted(places)


def test_a_replay_has_its_time_and_no_more() -> None:
    replayed = BLOCKED.claimed("r", NOON)

    assert replayed.is_replayed(NOON - timedelta(microseconds=1))
    assert not replayed.is_replayed(NOON)


def test_a_block_is_found_under_its_id_whatever_version_has_stored_it() -> None:
    assert block_id(AggregateKey("contact", "a-1.b_2")) == "contact-a-1.b_2"
    odd = [block_id(AggregateKey(*key)) for key in (("contact", "a/1"), ("con-tact", "a"), ("contact", ""))]
    assert odd == [
        "aggregate.8c3efe35ae4ce6598c46c9983d7145f1",
        "aggregate.020a5b6f045b41ae81c69c9738f47227",
        "aggregate.5311f7b654aa59ebafd1c62a28a095b3",
    ]


def test_only_what_is_tried_by_itself_waits_longer_after_a_replay_in_vain() -> None:
    passing = AggregateBlock(contact_key("a")).blocked_by(
        event("a", 2), "its receiver fails", [], NOON, passing=True
    )
    later = NOON + timedelta(hours=1)
    again = passing.claimed("replay", later).backed_off(later)
    assert (attempts(again), again.refusal and again.refusal.at, again.replay) == (2, later, None)
    refused = BLOCKED.claimed("replay", later).backed_off(later)
    assert (refused.refusal, refused.replay) == (BLOCKED.refusal, None)
    assert BLOCKED.unblocked().claimed("replay", later).backed_off(later).refusal is None


def test_an_unblocked_aggregate_keeps_only_the_record_of_what_was_done() -> None:
    known = AggregateBlock(
        contact_key("a"), version="7", accepted=5, tail=8, discarded={"d": NOON}, passed={"p": NOON}
    )  # fmt: skip
    for blocked in (known.blocked_by(event("a", 9), "too large", [], NOON), known):
        assert blocked.unblocked() == known
        assert blocked.claimed("replay", NOON).unblocked() == known


def test_a_block_is_read_as_it_was_stored() -> None:
    for block in (
        BLOCKED,
        BLOCKED.unblocked(),
        BLOCKED.claimed("replay", NOON),
        AggregateBlock(contact_key("b")),
    ):
        item = {**block_item(block, NOON, 600), "_etag": "7"}
        assert block_of(item) == replace(block, version="7")


def test_only_a_free_block_expires_and_its_type_says_that_it_is_free() -> None:
    """A blocked one that expired would let later events overtake; the list of what is parked goes by the type."""
    blocked, free = (block_item(block, NOON, 600) for block in (BLOCKED, BLOCKED.unblocked()))
    assert (blocked["type"], blocked.get("ttl")) == ("parkedAggregate", None)
    assert (free["type"], free.get("ttl")) == ("freedAggregate", 600)


def test_ids_are_kept_as_long_as_events_are() -> None:
    """An event that was discarded, or accepted without a sequence, may be delivered again until it expires."""
    times = {str(age): NOON - timedelta(seconds=age) for age in (0, 599, 601)}
    for block in (
        replace(BLOCKED, discarded=times, passed=times),
        AggregateBlock(contact_key("b"), passed=times),
    ):
        read = block_of({**block_item(block, NOON, 600), "_etag": "7"})
        kept = {"0": NOON, "599": NOON - timedelta(seconds=599)}
        assert (read.discarded, read.passed) == (kept if block.discarded else {}, kept)


def test_of_more_ids_than_a_block_has_room_for_the_oldest_are_forgotten() -> None:
    times = {f"{age:04}": NOON - timedelta(seconds=age) for age in range(5_002)}
    item = block_item(replace(BLOCKED, passed=times), NOON, 864_000)
    assert {*times} - {*item["passed"]} == {"5000", "5001"}


def unread(delivered: object) -> Unread:
    return Unread.of(delivered, "the store is away")  # type: ignore[arg-type]  # each test delivers one that can be sent


def test_it_has_its_place_by_its_sequence_among_those_of_its_transaction() -> None:
    first, second, third = (replace(event("a", sequence), lsn=5) for sequence in (1, 2, 3))
    assert in_order([third, unread(second), first]) == [first, unread(second), third]


def test_where_it_was_discarded_it_is_dropped() -> None:
    discarded = event("a", 2)
    block = AggregateBlock(contact_key("a"), discarded={discarded.id: NOON})
    assert block.decide(unread(discarded)) is BlockDecision.DROP

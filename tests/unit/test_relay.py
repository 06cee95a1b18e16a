"""Each contact's events are sent by sequence; a failure that may pass is raised, an unsendable event is parked."""

import asyncio
import json
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pytest

from cosmos_outbox.cosmos.relay.pages import ForwardResult, SentCache, VerifiedPage
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.relay.relay import Relay
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.aggregate_block import AggregateBlock
from cosmos_outbox.outbox.errors import NotDelivered, PreconditionFailed, Unavailable
from cosmos_outbox.outbox.feed import FeedEvent, OutboxEvent, Poison, Unread, by_aggregate, in_order
from cosmos_outbox.outbox.publisher import AggregateEvents, Failing, Guarantees, Outcome, Refused, Unknown
from outbox_simulation.engine.bus_publisher import BusPublisher
from tests.support.any_document import nested
from tests.support.contacts import NOON
from tests.support.feed import contact_id, contact_key, event_document, poison_document, read
from tests.support.memory import committed, memory_lot


def event(contact: str, sequence: int) -> OutboxEvent:
    found = read(event_document(contact, sequence))
    assert isinstance(found, OutboxEvent)
    return found


def large(contact: str, sequence: int) -> OutboxEvent:
    found = read(event_document(contact, sequence, text="x" * 300_000))
    assert isinstance(found, OutboxEvent)
    return found


def relay(publisher: BusPublisher, lot: CosmosParkingLot) -> Relay:
    return Relay(publisher, lot, committed(lot))


async def forward(relay: Relay, *events: FeedEvent) -> ForwardResult:
    """As the comparison with what was committed has found them."""
    return await relay.forward_committed(VerifiedPage(events, by_aggregate(events)))


def sent_of(publisher: BusPublisher, contact: str) -> list[str]:
    return publisher.of(contact_key(contact))


def ids(contact: str, *sequences: int) -> list[str]:
    return [event(contact, sequence).id for sequence in sequences]


async def test_each_contacts_events_are_sent_by_sequence_in_any_feed_order(lot: CosmosParkingLot) -> None:
    events = [event(contact, sequence) for contact in "abc" for sequence in (1, 2, 3, 10, 11)]
    random.Random(7).shuffle(events)
    publisher = BusPublisher()

    result = await relay(publisher, lot).forward(events)

    assert (result.sent, result.parked) == (15, 0)
    for contact in "abc":
        assert sent_of(publisher, contact) == ids(contact, 1, 2, 3, 10, 11)


async def test_a_waiting_contact_delays_no_other_and_the_batch_is_not_done(lot: CosmosParkingLot) -> None:
    publisher = BusPublisher(fail_for={contact_id("b")})
    events = [event("a", 1), event("b", 1), event("c", 1)]
    with pytest.raises(NotDelivered, match="1 of 3 aggregates wait: the broker is away"):
        await relay(publisher, lot).forward(events)
    assert (sent_of(publisher, "a"), sent_of(publisher, "b"), sent_of(publisher, "c")) == (
        ids("a", 1),
        [],
        ids("c", 1),
    )

    publisher.fail_for.clear()
    await relay(publisher, lot).forward(events)
    assert [sent_of(publisher, contact) for contact in "abc"] == [ids("a", 1), ids("b", 1), ids("c", 1)]


async def test_events_behind_a_new_block_are_parked_wherever_the_feed_has_them(lot: CosmosParkingLot) -> None:
    """A document that was rewritten has a greater LSN than its successors."""
    publisher = BusPublisher()
    rewritten = read(event_document("a", 1, lsn=9, text="x" * 300_000))
    result = await relay(publisher, lot).forward([rewritten, event("a", 2)])
    assert (result.sent, result.parked) == (0, 2)


async def test_an_event_with_an_unreadable_original_is_not_parked_as_delivered(lot: CosmosParkingLot) -> None:
    """Behind a refused event, behind an older block, or first: it waits, and so does its contact's rest."""
    publisher = BusPublisher()
    unread = Unread.of(event("a", 3), "the store is away")
    with pytest.raises(NotDelivered, match="the store is away"):
        await forward(relay(publisher, lot), event("a", 1), large("a", 2), unread)
    with pytest.raises(NotDelivered, match="the store is away"):
        await forward(relay(publisher, lot), unread, event("a", 4))
    assert await lot.waiting(contact_key("a"), 10) == []

    await relay(publisher, lot).forward([event("a", 1), large("a", 2)])
    with pytest.raises(NotDelivered, match="the store is away"):
        await forward(relay(publisher, lot), unread, event("b", 1))
    assert [one.sequence for one, _ in await lot.waiting(contact_key("a"), 10)] == [2]
    assert sent_of(publisher, "a") == ids("a", 1)
    assert sent_of(publisher, "b") == ids("b", 1)


async def test_a_contact_released_while_the_relay_was_parking_behind_it_is_sent() -> None:
    class Released(CosmosParkingLot):
        async def park(self, block: AggregateBlock, events: Sequence[FeedEvent]) -> Collection[str]:
            await self.store(block.unblocked())
            return await super().park(block, events)

    publisher = BusPublisher()
    async with memory_lot(Released) as lot:
        await lot.store(
            replace(AggregateBlock(contact_key("a")).blocked_by(event("a", 2), "r", [], NOON), waiting=1)
        )
        result = await relay(publisher, lot).forward([event("a", 3)])
        assert (result.sent, result.parked) == (1, 0)
        assert sent_of(publisher, "a") == ids("a", 3)
        assert (await lot.page(10, None)).items == []


async def test_an_aggregate_under_constant_change_waits_and_delays_no_other() -> None:
    class Contended(CosmosParkingLot):
        async def park(self, block: AggregateBlock, events: Sequence[FeedEvent]) -> Collection[str]:
            raise PreconditionFailed("others")

    publisher = BusPublisher()
    async with memory_lot(Contended) as lot:
        with pytest.raises(NotDelivered, match="operators or other instances keep parking"):
            await relay(publisher, lot).forward([large("a", 1), event("b", 1)])
    assert sent_of(publisher, "b") == ids("b", 1)


@pytest.mark.parametrize(
    ("passing", "level", "reported"),
    [(True, "WARNING", "It is tried again by itself"), (False, "ERROR", "Remove the reason and replay")],
)
async def test_an_operator_sees_whether_a_parked_event_needs_somebody(
    caplog: pytest.LogCaptureFixture, passing: bool, level: str, reported: str, lot: CosmosParkingLot
) -> None:
    class Stopping(BusPublisher):
        async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
            return [Failing(0, "500") if passing else Refused(0, "too large")]

    assert (await relay(Stopping(), lot).forward([event("a", 1), event("a", 2)])).parked == 2
    [found] = [record for record in caplog.records if record.getMessage().startswith("parked")]
    assert (found.levelname, reported in found.getMessage()) == (level, True)


async def test_more_events_than_races_may_be_refused_that_the_broker_has_already(
    caplog: pytest.LogCaptureFixture,
    lot: CosmosParkingLot,
) -> None:
    publisher = BusPublisher()
    await lot.store(AggregateBlock(contact_key("a"), accepted=9))
    result = await relay(publisher, lot).forward(
        [*(large("a", number) for number in range(1, 10)), event("a", 10)]
    )
    assert (result.sent, result.parked, result.dropped) == (1, 0, 9)
    assert sent_of(publisher, "a") == ids("a", 10)


async def test_accepted_events_of_a_waiting_page_are_not_sent_again(lot: CosmosParkingLot) -> None:
    publisher = Offered(fail_for={contact_id("b")})
    waiting = relay(publisher, lot)
    events = [event("a", 1), event("b", 1), event("a", 2)]
    for _ in range(3):
        with pytest.raises(NotDelivered):
            await waiting.forward(events)
    assert publisher.offered.count(contact_id("a")) == 1
    publisher.fail_for.clear()
    assert (await waiting.forward(events)).sent == 3
    await waiting.forward(events)
    assert publisher.offered.count(contact_id("a")) == 2, "a page that is done is not remembered"


class Offered(BusPublisher):
    """Notes whose events are offered."""

    offered: list[str]

    def __init__(self, fail_for: set[str]) -> None:
        super().__init__(fail_for=fail_for)
        self.offered = []

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        self.offered += [group.aggregate.id for group in page]
        return await super().publish(page, until)


def test_events_of_two_aggregates_with_one_id_are_two() -> None:
    """An event's id is unique within its aggregate."""
    first = event("a", 1)
    namesake, accepted = replace(event("b", 1), id=first.id), SentCache()
    accepted.add([first])
    assert accepted.without([first, namesake]) == [namesake]


async def test_nothing_is_sent_on_a_reading_of_the_blocks_that_is_too_old() -> None:
    loop = asyncio.get_running_loop()

    class SlowToRead(CosmosParkingLot):
        async def read_blocks(
            self, aggregates: Collection[AggregateKey]
        ) -> Mapping[AggregateKey, AggregateBlock]:
            found = await super().read_blocks(aggregates)
            await asyncio.sleep(0.05)
            return found

    publisher = BusPublisher()
    async with memory_lot(SlowToRead) as lot:
        hasty = replace(relay(publisher, lot), reading_seconds=0.03)
        with pytest.raises(NotDelivered, match="too late"):
            await hasty.forward([event("a", 1)])
        assert publisher.sent == []
        assert publisher.until < loop.time(), "counted from before the reading"


async def test_events_accepted_before_the_time_was_over_are_not_sent_again(lot: CosmosParkingLot) -> None:
    class OneAtATime(BusPublisher):
        async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
            [group] = page
            outcomes = await super().publish([replace(group, events=group.events[:1])], until)
            return outcomes if len(group.events) == 1 else [Unknown(1, "the time is over")]

    publisher = OneAtATime()
    slow, events = relay(publisher, lot), [event("a", sequence) for sequence in (1, 2, 3)]
    for _ in range(2):
        with pytest.raises(NotDelivered, match="the time is over"):
            await slow.forward(events)
    assert (await slow.forward(events)).sent == 3
    assert sent_of(publisher, "a") == ids("a", 1, 2, 3)


async def test_a_lot_that_is_away_makes_events_wait() -> None:
    class Away(CosmosParkingLot):
        async def read_blocks(
            self, aggregates: Collection[AggregateKey]
        ) -> Mapping[AggregateKey, AggregateBlock]:
            raise Unavailable("away")

    class NoRoom(CosmosParkingLot):
        async def park(self, block: AggregateBlock, events: Sequence[FeedEvent]) -> Collection[str]:
            raise Unavailable("away")

    publisher = BusPublisher()
    async with memory_lot(Away) as away:
        with pytest.raises(NotDelivered, match="away"):
            await relay(publisher, away).forward([event("a", 1)])
    assert publisher.sent == []
    async with memory_lot(NoRoom) as full:
        with pytest.raises(NotDelivered, match="could not be parked"):
            await relay(publisher, full).forward([large("a", 1), event("b", 1)])
    assert sent_of(publisher, "b") == ids("b", 1)


async def test_an_ownerless_document_waits_until_it_can_be_read_or_parked(lot: CosmosParkingLot) -> None:
    class NoRoom(CosmosParkingLot):
        async def park_alone(self, event: Poison) -> bool:
            raise Unavailable("away")

    poison, publisher = read(poison_document(None, lsn=1)), BusPublisher()
    assert isinstance(poison, Poison)
    async with memory_lot(NoRoom) as full:
        with pytest.raises(NotDelivered, match="could not be parked"):
            await relay(publisher, full).forward([poison, event("a", 1)])
    with pytest.raises(NotDelivered, match="its original cannot be read"):
        await forward(relay(publisher, lot), Unread.of(poison, "its original cannot be read"), event("a", 2))
    assert (await lot.page(10, None)).items == []
    assert sent_of(publisher, "a") == ids("a", 1, 2)


async def test_an_empty_batch_is_done_without_looking(lot: CosmosParkingLot) -> None:
    assert await relay(BusPublisher(), lot).forward([]) == ForwardResult(sent=0, parked=0, dropped=0)


async def test_a_bug_is_not_mistaken_for_a_broker_that_is_away(lot: CosmosParkingLot) -> None:
    class Broken(BusPublisher):
        async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await relay(Broken(), lot).forward([event("a", 1), event("b", 1)])


async def test_an_event_over_the_publishers_limit_is_parked_unsent(lot: CosmosParkingLot) -> None:
    declared = Guarantees(ordered=True, deduplicates=True, mixes_aggregates=True, largest_message_bytes=1000)
    publisher = BusPublisher(limit=10**9, guarantees=declared)
    events = [event("a", 1), read(event_document("a", 2, text="x" * 1000)), event("a", 3)]
    result = await relay(publisher, lot).forward(events)
    assert (result.sent, result.parked) == (1, 2)
    assert sent_of(publisher, "a") == ids("a", 1)


async def test_an_event_of_the_publishers_limit_is_sent_and_one_byte_more_parked(
    lot: CosmosParkingLot,
) -> None:
    words = read(event_document("a", 1, text="Ærlig talt: 100 €"))
    assert isinstance(words, OutboxEvent)
    size = len(json.dumps(dict(words.data), ensure_ascii=False, separators=(",", ":")).encode())
    for limit, expected in ((size, (1, 0)), (size - 1, (0, 1))):
        declared = Guarantees(
            ordered=True, deduplicates=True, mixes_aggregates=True, largest_message_bytes=limit
        )
        result = await relay(BusPublisher(guarantees=declared), lot).forward([words])
        assert (result.sent, result.parked) == expected


def test_poison_has_its_place_by_the_feed_and_events_by_their_sequence() -> None:
    rewritten = read(event_document("a", 1, lsn=9))
    same_transaction = [read(event_document("a", sequence, lsn=5)) for sequence in (3, 2)]
    poison = read(poison_document("a", lsn=5))
    late = read(poison_document("a", lsn=99))
    ordered = in_order([late, *same_transaction, poison, rewritten, read(event_document("a", 4, lsn=6))])
    assert [one.sequence or one.id for one in ordered] == ["poison-5", 1, 2, 3, 4, "poison-99"]


def test_events_without_a_sequence_of_one_transaction_keep_their_times() -> None:
    """The feed orders transactions, and nothing inside one."""
    first, second, third = (
        replace(event("a", number), sequence=None, lsn=5, created_at=NOON.replace(minute=number))
        for number in (1, 2, 3)
    )
    earlier, later = replace(event("a", 7), lsn=5), replace(event("a", 8), lsn=6)
    unread = Unread.of(replace(first, lsn=6), "the store is away")

    assert in_order([later, third, earlier, second, first]) == [first, second, third, earlier, later]
    assert in_order([third, unread, earlier]) == [third, earlier, unread]
    assert in_order([third, second, first]) == [first, second, third]


async def test_an_event_that_has_no_form_in_json_is_parked_and_holds_up_no_other(
    lot: CosmosParkingLot,
) -> None:
    declared = Guarantees(ordered=True, deduplicates=True, mixes_aggregates=True, largest_message_bytes=1000)
    publisher = BusPublisher(guarantees=declared)
    deep, other = replace(event("a", 1), data={"deep": nested(200_000)}), event("b", 1)
    result = await relay(publisher, lot).forward([deep, other])
    assert (result.sent, result.parked) == (1, 1)
    refusal = (await lot.read_blocks([deep.aggregate]))[deep.aggregate].refusal
    assert refusal is not None
    assert refusal.reason == "the event's data has no form in JSON (RecursionError)"

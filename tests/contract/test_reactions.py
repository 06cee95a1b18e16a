"""A message changes its heap once, whatever write or answer is lost, whichever process handles or repeats it.

``tests/models/reactions.py`` searches every order of such failures; here the real adapters are shown to keep its rules.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar, Self
from uuid import uuid4

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.inbox.reaction_decision import (
    InOrder,
    ReactionOutcome,
    ReactionRecord,
    SeenTarget,
    TargetRef,
)
from cosmos_outbox.cosmos.inbox.reactions import CosmosReactions, ReactionInbox
from cosmos_outbox.cosmos.inbox.records import CosmosSetAside
from cosmos_outbox.cosmos.store.container import Container, StoreFailed, Write
from cosmos_outbox.cosmos.store.errors import Failure, Kind
from cosmos_outbox.cosmos.store.partition_key import Key
from cosmos_outbox.inbox.errors import (
    AlreadyProcessed,
    ConcurrentUpdate,
    InboxError,
    NotApplied,
    OutOfOrder,
    ReactionRefused,
    StoreUnavailable,
    Unstorable,
)
from cosmos_outbox.inbox.message import Delivery, Event
from cosmos_outbox.inbox.receiver import LONGEST_CALL_SECONDS, MARGIN, Receiver
from cosmos_outbox.inbox.retrier import Retrier
from cosmos_outbox.inbox.set_aside import Record, RecordState
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import SYSTEM, using
from cosmos_outbox.kernel.loops import CallEnded
from cosmos_outbox.outbox.aggregate import Origin
from devstack.testing import Service
from tests.support.azure import CONTACTS, SET_ASIDE, contacts_database
from tests.support.emulators import Gap
from tests.support.losses import EACH_LOSS, Fate, Loss, ProcessDied
from tests.support.reactions import LIVES, CutOff, Heap, Heaps, message_for, no_loss, put_mark
from tests.support.telemetry import recording

pytestmark = pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)


@pytest.fixture
async def heaps(cosmos_server: Service) -> AsyncIterator[Heaps]:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        yield Heaps(client, (database.id, CONTACTS))


class Meets(CosmosReactions[Heap]):
    """A store at which something happens between a read and a write."""

    @classmethod
    def over(cls, reactions: CosmosReactions[Heap]) -> Self:
        return cls(**vars(reactions))


@pytest.mark.parametrize("loss", EACH_LOSS)
@pytest.mark.parametrize(
    "order",
    [
        InOrder.EACH,
        *(pytest.param(each, marks=pytest.mark.long) for each in InOrder if each is not InOrder.EACH),
    ],
)
async def test_whatever_write_is_lost_each_message_is_applied_once(
    heaps: Heaps, loss: Loss, order: InOrder
) -> None:
    heaps.order, write = order, 0
    while write == 0 or heaps.fate.struck:
        write += 1
        heaps.fate = no_loss()
        name = await heaps.made()
        first, second = message_for(name, "a", 1), message_for(name, "b", 2)
        heaps.fate = Fate(loss, write)
        await heaps.until_done(first)
        await heaps.until_done(second)
        await heaps.change(name, lambda heap: heap.put("other", SYSTEM.now()))
        await heaps.until_done(first)  # published again, or brought again
        await heaps.until_done(second)
        assert await heaps.marks(name) == ["a", "b", "other"], f"write {write}"
        records = await heaps.documents(name, "reactionRecord")
        assert [each["data"]["outcome"] for each in records] == ["applied", "applied"]
    assert write > 2


async def test_a_process_that_dies_at_any_await_applies_it_once(heaps: Heaps) -> None:
    at, died = 0, True
    while died:
        name = await heaps.made()
        message = message_for(name, "a")
        try:
            await CutOff(heaps.instance().handle(message), at)
        except ProcessDied:
            await heaps.until_done(message)
        else:
            died = False
        assert await heaps.marks(name) == ["a"], f"await {at}"
        at += 1
    assert at > 5


async def test_instances_at_once_apply_each_message_once(heaps: Heaps) -> None:
    name = await heaps.made()
    messages = [message_for(name, mark, None) for mark in "abc"]

    async def apply(message: Event) -> None:
        for _ in range(20):
            try:
                await heaps.instance().handle(message)
            except ConcurrentUpdate:
                continue
            return

    await asyncio.gather(*(apply(each) for each in messages * 3))
    assert sorted(await heaps.marks(name)) == ["a", "b", "c"]


async def test_record_heap_and_events_with_their_cause_are_stored_together(heaps: Heaps) -> None:
    name = await heaps.made()
    message = message_for(name, "a")
    committed: list[Any] = []
    with heaps.on_commit.listening(committed.append):
        await heaps.instance().handle(message)
    [record] = await heaps.documents(name, "reactionRecord")
    assert record["ttl"] == LIVES.total_seconds()
    assert (record["data"]["outcome"], record["data"]["sequence"]) == ("applied", 2)
    made, marked = sorted(
        await heaps.documents(name, "domainEvent"), key=lambda each: each["data"]["sequence"]
    )
    assert "causationId" not in made["data"]
    assert (marked["data"]["causationId"], marked["data"]["correlationId"]) == (message.id, "request-7")
    assert committed == [name]


async def test_a_target_is_made_once_and_a_deleted_one_is_not_made_again(heaps: Heaps) -> None:
    name = str(uuid4())
    message = message_for(name, "a", makes=True)
    await asyncio.gather(*(heaps.until_done(message) for _ in range(3)))
    assert await heaps.marks(name) == ["a"]
    await heaps.change(name, Heap.delete)
    await heaps.until_done(message)
    with pytest.raises(ReactionRefused, match="deleted"):
        await heaps.until_done(message_for(name, "b", 2, makes=True))
    assert len(await heaps.documents(name, "reactionRecord")) == 2
    await heaps.until_done(message)


async def test_a_no_is_recorded_and_stays(heaps: Heaps) -> None:
    """refusal_recorded: another writer, and it comes again."""
    name = await heaps.made()
    await heaps.change(name, Heap.close)
    message = message_for(name, "a")
    for _ in range(2):
        with pytest.raises(ReactionRefused, match="the heap is closed"):
            await heaps.until_done(message)
        await heaps.change(name, lambda heap: heap.close(closed=False))
    assert await heaps.marks(name) == []


async def test_another_message_with_the_same_id_is_reported(
    heaps: Heaps, caplog: pytest.LogCaptureFixture
) -> None:
    name = await heaps.made()
    message = message_for(name, "a")
    await heaps.until_done(message)
    other = replace(message, data={**message.data, "mark": "b"})
    for ask in (heaps.until_done, heaps.instance().apply):
        with pytest.raises(ReactionRefused, match="another event with this id"):
            await ask(other)
    await heaps.instance().give_up(other, "it is not ours")
    assert await heaps.marks(name) == ["a"]
    assert "another event with this id was applied" in caplog.text


async def test_a_change_that_no_transaction_holds_is_refused_and_recorded(heaps: Heaps) -> None:
    name = await heaps.made()
    with pytest.raises(ReactionRefused, match="100 documents"):
        await heaps.until_done(message_for(name, "a", times=99))
    with pytest.raises(ReactionRefused, match="2097152 bytes"):
        await heaps.until_done(message_for(name, "a" * 1_200_000, 2))
    await heaps.until_done(message_for(name, "b", 3, times=98))
    assert len(await heaps.marks(name)) == 98
    outcomes = [each["data"]["outcome"] for each in await heaps.documents(name, "reactionRecord")]
    assert sorted(outcomes) == ["applied", "refused", "refused"]


async def test_a_message_for_several_targets_has_an_outcome_at_each(heaps: Heaps) -> None:
    """complete_after_all: a refusal, a bug or a crash at one stops no other."""
    closed, first, second = await heaps.made(), await heaps.made(), await heaps.made()
    await heaps.change(closed, Heap.close)
    message = message_for("", "a")

    def instance() -> ReactionInbox[Heap]:
        return aimed(heaps.instance(), [closed, first, second])

    at, died = 0, True
    while died:
        try:
            await CutOff(instance().handle(message), at)
        except ProcessDied:
            at += 7
        except ReactionRefused:
            died = False
    assert at > 7
    with pytest.raises(ReactionRefused, match="the heap is closed"):
        await instance().handle(message)
    assert [await heaps.marks(each) for each in (closed, first, second)] == [[], ["a"], ["a"]]


@pytest.mark.parametrize("order", [InOrder.NEWEST, InOrder.EACH])
async def test_of_two_messages_in_one_place_the_second_one_changes_nothing(
    heaps: Heaps, order: InOrder
) -> None:
    """Two publishers, or a store that was put back."""
    heaps.order, name = order, await heaps.made()
    for mark in ("a", "b"):
        await heaps.until_done(message_for(name, mark, 1))
    assert await heaps.marks(name) == ["a"]


def aimed(inbox: ReactionInbox[Heap], named: Any) -> ReactionInbox[Heap]:
    """With these targets, whatever a message says."""
    return replace(inbox, targets=lambda _: named)


async def test_a_message_is_for_one_or_several_or_for_nobody(heaps: Heaps) -> None:
    name, other = await heaps.made(), await heaps.made()
    inbox = heaps.instance()
    for named in (None, [], name, {name: name}, [name, other]):
        message = message_for("", f"{named}")
        to_them = aimed(inbox, named)
        for _ in range(2):
            await to_them.handle(message)
        if not named:
            await to_them.give_up(message, "for nobody")
    assert (len(await heaps.marks(name)), len(await heaps.marks(other))) == (3, 1)


async def test_a_reaction_that_exits_at_one_target_reaches_the_others(heaps: Heaps) -> None:
    def exits_at_closed(heap: Heap | None, event: Event) -> Heap | None:
        if heap is not None and heap.state.closed:
            sys.exit("closed")
        return put_mark(heap, event)

    name, closed = await heaps.made(), await heaps.made()
    await heaps.change(closed, Heap.close)
    inbox = aimed(heaps.instance(), [closed, name])
    with pytest.raises(CallEnded):
        await replace(inbox, react=exits_at_closed).handle(message_for("", "a"))
    assert await heaps.marks(name) == ["a"]


async def test_what_became_of_messages_is_counted_and_a_refusal_is_no_duplicate(heaps: Heaps) -> None:
    name, closed = await heaps.made(), await heaps.made()
    await heaps.change(closed, Heap.close)
    desk = Desk(heaps)
    with recording() as recorded:
        for message, times in ((message_for(name, "a"), 3), (message_for(closed, "b"), 2)):
            for _ in range(times):
                await desk.receive(message)
        counted = {each["outbox.outcome"]: value for each, value in recorded.points("outbox.inbox.events")}
        [(_, measured)] = recorded.points("outbox.commit_to_applied")
    assert (counted, measured) == ({"applied": 1, "duplicate": 2, "refused": 2}, 1)


async def test_newest_wins(heaps: Heaps) -> None:
    heaps.order = InOrder.NEWEST
    name = await heaps.made()
    for sequence in (2, 1, 3):
        await heaps.until_done(message_for(name, str(sequence), sequence))
    assert await heaps.marks(name) == ["2", "3"]
    outcomes = [each["data"]["outcome"] for each in await heaps.documents(name, "reactionRecord")]
    assert sorted(outcomes) == ["applied", "applied", "nothing"]
    [cursor] = await heaps.documents(name, "reactionCursor")
    assert (cursor["data"]["last"], cursor["ttl"]) == (3, LIVES.total_seconds())


async def test_in_order_each_waits_for_the_one_before_it_until_that_is_given_up(heaps: Heaps) -> None:
    heaps.order = InOrder.EACH
    name = await heaps.made()
    first, second, third = (message_for(name, str(number), number) for number in (1, 2, 3))
    inbox = heaps.instance()
    with pytest.raises(OutOfOrder):
        await inbox.handle(second)
    with pytest.raises(OutOfOrder):
        await inbox.give_up(second, "not in turn")
    for reason in ("lost", "the answer was lost"):
        await inbox.give_up(first, reason)
        assert [each["data"]["reason"] for each in await heaps.documents(name, "reactionRecord")] == ["lost"]
    await heaps.until_done(second)
    await heaps.change(name, Heap.close)
    with pytest.raises(ReactionRefused):
        await heaps.until_done(third)
    await heaps.change(name, lambda heap: heap.close(closed=False))
    await heaps.until_done(message_for(name, "4", 4))  # every_outcome_moves
    with pytest.raises(OutOfOrder, match="passed this one"):
        await heaps.instance().apply(third)
    await heaps.until_done(first)
    assert await heaps.marks(name) == ["2", "4"]


async def test_how_far_a_source_has_come_is_known_as_long_as_its_target_lives(heaps: Heaps) -> None:
    heaps.order = InOrder.EACH
    name = await heaps.made()

    async def ttl() -> int:
        [cursor] = await heaps.documents(name, "reactionCursor")
        return int(cursor["ttl"])

    await heaps.until_done(message_for(name, "a", 1))
    assert await ttl() == -1
    await heaps.change(name, Heap.delete)
    with pytest.raises(ReactionRefused, match="deleted"):
        await heaps.until_done(message_for(name, "b", 2))
    assert await ttl() == LIVES.total_seconds()


async def test_what_is_too_old_is_applied_by_nobody(heaps: Heaps) -> None:
    name = await heaps.made()
    known, unknown = message_for(name, "a"), message_for(name, "b")
    await heaps.until_done(known)
    heaps.clock.later = LIVES - MARGIN
    await heaps.until_done(known)
    for ask in (heaps.instance().handle, heaps.instance().apply):
        with pytest.raises(ReactionRefused, match="may have been applied"):
            await ask(unknown)
    assert await heaps.marks(name) == ["a"]
    heaps.clock.later = timedelta()
    with pytest.raises(NotApplied, match="from the future"):
        await heaps.instance().handle(replace(unknown, created_at=unknown.created_at + MARGIN))


async def test_nothing_is_sent_later_than_the_longest_call(heaps: Heaps) -> None:
    """deadline: the record may have expired by then."""
    name = await heaps.made()
    late = [0.0]
    inbox = heaps.instance()

    class Slow(Meets):
        async def read(self, place: TargetRef) -> SeenTarget[Heap]:
            late[0] = LONGEST_CALL_SECONDS
            return await super().read(place)

    inbox = replace(inbox, reactions=Slow.over(inbox.reactions))
    slow = replace(SYSTEM, monotonic=lambda: SYSTEM.monotonic() + late[0])
    with using(slow), pytest.raises(StoreUnavailable, match="ran out of time"):
        await inbox.handle(message_for(name, "a"))
    assert await heaps.marks(name) == []


async def test_a_message_of_unknown_outcome_is_not_done(
    heaps: Heaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cosmos_outbox.cosmos.transaction.PATIENCE_SECONDS", 0.3)
    name = await heaps.made()
    message, inbox = message_for(name, "a"), heaps.instance()

    execute = inbox.reactions.container.execute

    async def lost(partition_key: Key, writes: Sequence[Write]) -> list[str]:
        if len(writes) == 1:  # it renews the token
            return await execute(partition_key, writes)
        raise StoreFailed(Failure(Kind.PASSING, "lost", answer_lost=True))

    with monkeypatch.context() as away:
        away.setattr(inbox.reactions.container, "execute", lost)
        with pytest.raises(StoreUnavailable, match="may be stored or not"):
            await inbox.handle(message)
    await inbox.handle(message)
    assert await heaps.marks(name) == ["a"]


@pytest.mark.parametrize(
    ("kind", "error"),
    [(Kind.TOO_LARGE, ReactionRefused), (Kind.INVALID, Unstorable), (Kind.DENIED, StoreUnavailable)],
)
async def test_what_the_store_does_not_take_is_reported_as_what_it_is(
    heaps: Heaps, monkeypatch: pytest.MonkeyPatch, kind: Kind, error: type[Exception]
) -> None:
    name, inbox = await heaps.made(), heaps.instance()
    execute = inbox.reactions.container.execute

    async def refused(partition_key: Key, writes: Sequence[Write]) -> list[str]:
        if len(writes) > 1:
            raise StoreFailed(Failure(kind, "refused"))
        return await execute(partition_key, writes)

    monkeypatch.setattr(inbox.reactions.container, "execute", refused)
    with pytest.raises(error) as raised:
        await inbox.handle(message_for(name, "a"))
    assert type(raised.value) is error
    outcomes = [each["data"]["outcome"] for each in await heaps.documents(name, "reactionRecord")]
    assert outcomes == (["refused"] if kind is Kind.TOO_LARGE else [])
    assert await heaps.marks(name) == []


async def test_a_target_of_another_type_is_left_as_it_is(heaps: Heaps) -> None:
    class Seat(Heap):
        aggregate_type: ClassVar[str] = "seat"

    name = str(uuid4())
    await heaps.aggregates().create(Seat.make(name), Origin("test"))
    with pytest.raises(Unstorable, match=f"{name} is no heap: let the reaction marks name another target"):
        await heaps.instance().handle(message_for(name, "a"))
    seat = await heaps.aggregates().read(Seat, name, Origin("test"), newest=True)
    assert seat.aggregate.state.marks == ()


async def test_a_reaction_that_changes_another_than_its_target_changes_nothing(heaps: Heaps) -> None:
    name, other, inbox = await heaps.made(), str(uuid4()), heaps.instance()
    astray = replace(inbox, react=lambda *_: Heap.make(other, "a"))
    with pytest.raises(Unstorable, match=f"changes heap {other}, which is not the target"):
        await astray.handle(message_for(name, "a"))
    for each in (name, other):
        assert await heaps.documents(each, "reactionRecord") == []
    await inbox.handle(message_for(name, "b"))
    assert await heaps.marks(name) == ["b"]


async def test_a_reaction_that_makes_a_target_that_is_there_overwrites_nothing(heaps: Heaps) -> None:
    name, inbox = await heaps.made("a"), heaps.instance()
    blind = replace(inbox, react=lambda *_: Heap.make(name, "b"))
    with pytest.raises(InboxError):
        await blind.handle(message_for(name, "b"))
    assert await heaps.marks(name) == ["a"]


class Desk:
    """A receiver and an operator over the real records of what was set aside."""

    def __init__(self, heaps: Heaps, inbox: ReactionInbox[Heap] | None = None) -> None:
        inbox = inbox or heaps.instance()
        records = CosmosSetAside(
            Container(heaps.client, heaps.names[0], SET_ASIDE), "marks", "test", closed_ttl_seconds=600
        )
        self.receiver = Receiver(_read, inbox.handle, records, check=inbox.check)
        self.retrier = Retrier(_read, inbox.handle, records, timedelta(days=10), asked=inbox, now=heaps.clock)

    async def receive(self, message: Event) -> Record | None:
        _MESSAGES[message.id] = message
        delivery = Delivery("marks", message.id, 1, message.id.encode(), {})
        await self.receiver.receive(delivery)
        found = await self.retrier.page(100, None)
        return next((each for each in found.items if each.id == delivery.record_id), None)

    async def state(self, record: Record) -> RecordState:
        return (await self.retrier.set_aside.get(record.id)).state


_MESSAGES: dict[str, Event] = {}


def _read(delivery: Delivery) -> Event:
    return _MESSAGES[delivery.body.decode()]


@pytest.mark.parametrize("stored", [False, True], ids=["before-the-write", "after-the-write"])
async def test_a_hanging_target_delays_no_other_and_gets_its_message_once(
    heaps: Heaps, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    monkeypatch.setattr("cosmos_outbox.inbox.receiver.HOLD_SECONDS", 0.5)
    sick, healthy, inbox = await heaps.made(), await heaps.made(), heaps.instance()

    class Hangs(Meets):
        async def write(self, *arguments: Any) -> None:
            if arguments[0].target == healthy or stored:
                await super().write(*arguments)
            if arguments[0].target == sick:
                await asyncio.Event().wait()

    desk = Desk(heaps, replace(inbox, reactions=Hangs.over(inbox.reactions)))
    record = await desk.receive(message_for(sick, "a"))
    assert record is not None
    assert record.state is RecordState.WAITING
    assert (
        await desk.receive(replace(message_for(healthy, "b"), aggregate=AggregateKey("offer", "o-2"))) is None
    )
    await Desk(heaps).retrier.run(seconds=10)
    assert await desk.state(record) is RecordState.APPLIED
    assert (await heaps.marks(sick), await heaps.marks(healthy)) == (["a"], ["b"])


async def test_a_store_that_hangs_for_all_makes_no_room(
    heaps: Heaps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cosmos_outbox.inbox.receiver.HOLD_SECONDS", 0.2)
    monkeypatch.setattr("cosmos_outbox.inbox.receiver.WAIT_SECONDS", 1.0)
    inbox = heaps.instance()

    class Away(Meets):
        async def find(self, place: TargetRef) -> ReactionRecord | None:
            raise StoreUnavailable("it is away")

        async def read(self, place: TargetRef) -> SeenTarget[Heap]:
            raise StoreUnavailable("it is away")

    desk = Desk(heaps, replace(inbox, reactions=Away.over(inbox.reactions)))
    with pytest.raises(StoreUnavailable):
        await desk.receive(message_for(await heaps.made(), "a"))
    assert not (await desk.retrier.page(100, None)).items


@pytest.mark.parametrize("loss", EACH_LOSS)
async def test_an_operator_applies_what_was_refused_once_whatever_is_lost(heaps: Heaps, loss: Loss) -> None:
    """through_the_record"""
    write = 0
    while write == 0 or heaps.fate.struck:
        write += 1
        heaps.fate = no_loss()
        name = await heaps.made()
        await heaps.change(name, Heap.close)
        record = await Desk(heaps).receive(message_for(name, "a"))
        assert record is not None
        assert record.state is RecordState.REFUSED
        with pytest.raises(NotApplied):
            await Desk(heaps).retrier.apply(record.id)
        assert await Desk(heaps).state(record) is RecordState.REFUSED
        await heaps.change(name, lambda heap: heap.close(closed=False))
        heaps.fate = Fate(loss, write)
        desk = Desk(heaps)
        for _ in range(6):
            try:
                await desk.retrier.apply(record.id)
            except ProcessDied:
                desk = Desk(heaps)
            except (StoreUnavailable, NotApplied):
                continue
            if await desk.state(record) is RecordState.APPLIED:
                break
        assert await heaps.marks(name) == ["a"]
        [stored] = await heaps.documents(name, "reactionRecord")
        assert stored["data"]["outcome"] == "applied"
    assert write > 2


@pytest.mark.parametrize("by_age", [False, True])
async def test_what_was_given_up_is_not_applied_by_a_slow_instance(heaps: Heaps, by_age: bool) -> None:
    """discard_marks, overdue_marks: an instance has decided to apply it, and sends after it was given up."""
    name = await heaps.made()
    message, slow = message_for(name, "a"), heaps.instance()
    desk = Desk(heaps)
    _MESSAGES[message.id] = message
    delivery = Delivery("marks", message.id, 1, message.id.encode(), {})
    await desk.receiver.keep(delivery, "a dead letter")

    class GivenUpMeanwhile(Meets):
        async def write(self, *arguments: Any) -> None:
            if by_age:
                heaps.clock.later = timedelta(days=11)
                assert (await desk.retrier.run(seconds=60)).overdue == 1
                heaps.clock.later = timedelta()
            else:
                await desk.retrier.discard(delivery.record_id, "not wanted")
            await super().write(*arguments)

    slow = replace(slow, reactions=GivenUpMeanwhile.over(slow.reactions))
    await slow.handle(message)
    assert slow.counts[ReactionOutcome.DISCARDED] == 1
    closed = await desk.retrier.set_aside.get(delivery.record_id)
    assert closed.state is (RecordState.OVERDUE if by_age else RecordState.DISCARDED)
    await heaps.until_done(message)
    assert await heaps.marks(name) == []


async def test_what_was_applied_in_between_is_not_given_up(heaps: Heaps) -> None:
    name = await heaps.made()
    message = message_for(name, "a")
    _MESSAGES[message.id] = message
    desk = Desk(heaps)
    delivery = Delivery("marks", message.id, 1, message.id.encode(), {})
    await desk.receiver.keep(delivery, "a dead letter")
    await heaps.until_done(message)
    with pytest.raises(NotApplied, match="closed as applied"):
        await desk.retrier.discard(delivery.record_id, "not wanted")
    assert (await desk.retrier.set_aside.get(delivery.record_id)).state is RecordState.APPLIED
    with pytest.raises(AlreadyProcessed):
        await heaps.instance().give_up(message, "once more")
    assert await heaps.marks(name) == ["a"]


async def test_the_timer_and_the_message_at_once_apply_it_once(heaps: Heaps) -> None:
    name = await heaps.made()
    message = message_for(name, "a")
    _MESSAGES[message.id] = message
    desk = Desk(heaps)
    delivery = Delivery("marks", message.id, 1, message.id.encode(), {})
    await desk.receiver.keep(delivery, "a dead letter")
    tried, _ = await asyncio.gather(desk.retrier.run(seconds=60), heaps.until_done(message))
    assert tried.applied == 1
    assert await heaps.marks(name) == ["a"]

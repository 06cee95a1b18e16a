"""What was set aside of a reaction is applied or given up at its targets first: its record says what became of it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from cosmos_outbox.inbox.errors import (
    NotApplied,
    NotInTurn,
    ReactionRefused,
    RecordChanged,
    StoreAway,
    Unreadable,
)
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.reaction_decision import InOrder, TargetPlace
from cosmos_outbox.inbox.receiver import Read
from cosmos_outbox.inbox.retrier import Retrier, Tried
from cosmos_outbox.inbox.set_aside import Delivery, Record, RecordState
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from tests.support.inbox import NOON, FakeSetAside, delivery, read
from tests.support.reactions import told
from tests.unit.test_reactions import Memory


@dataclass
class Desk:
    """The timer and an operator, over records and a reaction in memory."""

    memory: Memory = field(default_factory=Memory)
    records: FakeSetAside = field(default_factory=FakeSetAside)
    days: int = 0
    """Since the records were set aside; they may wait for one."""
    read: Read = read

    @property
    def retrier(self) -> Retrier:
        inbox = self.memory.inbox
        now = NOON + timedelta(days=self.days)
        return Retrier(self.read, inbox.handle, self.records, timedelta(days=1), lambda: now, inbox)

    async def has(self, message: Event, state: RecordState = RecordState.WAITING) -> str:
        """The id of the record of a message that was set aside."""
        record = Record.of(delivery(message), message, state, "set aside", NOON)
        await self.records.add(record)
        return record.id

    def state(self, record_id: str) -> RecordState:
        return self.records.records[record_id].state


async def test_an_operator_has_a_refused_message_applied_once_its_target_takes_it() -> None:
    desk, message = Desk(), told("closed", "a")
    record = await desk.has(message, RecordState.REFUSED)
    for _ in range(2):
        with pytest.raises(NotApplied):
            await desk.retrier.apply(record)
        assert desk.state(record) is RecordState.REFUSED
    desk.memory.close("closed", closed=False)
    await desk.retrier.apply(record)
    assert (desk.state(record), desk.memory.marks("closed")) == (RecordState.APPLIED, ("a",))


async def test_a_bug_that_an_operator_meets_leaves_a_refused_message_refused() -> None:
    """Waiting, the timer would try what nobody has allowed again."""
    desk = Desk()
    record = await desk.has(told("h", "a"), RecordState.REFUSED)
    desk.memory.raises = [ZeroDivisionError()]
    with pytest.raises(NotApplied):
        await desk.retrier.apply(record)
    assert desk.state(record) is RecordState.REFUSED


async def test_what_the_timer_finds_refused_is_an_operators_from_then_on() -> None:
    desk = Desk()
    record = await desk.has(told("closed", "a"))
    assert await desk.retrier.run(seconds=60) == Tried()
    assert desk.state(record) is RecordState.REFUSED
    assert desk.records.records[record].reason == "the heap is closed"


async def test_a_bug_that_an_operator_meets_leaves_a_waiting_message_to_the_timer() -> None:
    desk = Desk()
    record = await desk.has(told("h", "a"))
    desk.memory.raises = [ZeroDivisionError()]
    with pytest.raises(NotApplied):
        await desk.retrier.apply(record)
    assert desk.state(record) is RecordState.WAITING
    assert await desk.retrier.run(seconds=60) == Tried(applied=1)


@pytest.mark.parametrize("by_age", [False, True])
async def test_a_message_that_was_applied_meanwhile_is_not_given_up_and_its_record_says_so(
    by_age: bool,
) -> None:
    desk, message = Desk(days=2), told("h", "a")
    record = await desk.has(message)
    await desk.memory.inbox.handle(message)
    if by_age:
        assert await desk.retrier.run(seconds=60) == Tried()
    else:
        with pytest.raises(NotApplied, match="closed as applied"):
            await desk.retrier.discard(record, "not wanted")
    assert (desk.state(record), desk.memory.outcomes) == (RecordState.APPLIED, ["applied"])
    assert desk.records.records[record].reason == "set aside"


async def test_what_waits_for_too_long_is_applied_by_nobody_any_more() -> None:
    desk, message = Desk(days=2), told("h", "a")
    record = await desk.has(message)
    assert await desk.retrier.run(seconds=60) == Tried(overdue=1)
    await desk.memory.inbox.handle(message)
    assert (desk.state(record), desk.memory.outcomes) == (RecordState.OVERDUE, ["discarded"])
    assert desk.memory.marks() == ()


def of_no_known_version(event: Event) -> str:
    if event.sequence == 2:
        raise NotApplied("its version is newer than this subscriber")
    return str(event.data["heap"])


def with_a_bug(event: Event) -> str:
    return str(event.data["heap" if event.sequence == 1 else "johndoe@contoso.com"])


@pytest.mark.parametrize("targets", [None, of_no_known_version, with_a_bug])
async def test_one_that_cannot_be_given_up_stays_and_the_others_are_seen_to_all_the_same(
    targets: Any, caplog: pytest.LogCaptureFixture
) -> None:
    memory = Memory(InOrder.EACH)
    memory.targets = targets or memory.targets
    desk = Desk(memory, days=2)
    stays, goes = await desk.has(told("h", "b", 2)), await desk.has(told("closed", "c", 1))
    with pytest.raises((NotInTurn, NotApplied)):
        await desk.retrier.discard(stays, "not wanted")
    tried = await desk.retrier.run(seconds=60)
    assert (tried, desk.state(stays), desk.state(goes)) == (
        Tried(waiting=1, overdue=1),
        RecordState.WAITING,
        RecordState.OVERDUE,
    )
    assert "contoso" not in caplog.text


@dataclass
class Full(Memory):
    """No write is taken where this target is, and none ever will be."""

    async def write(self, place: TargetPlace, *given: Any) -> None:
        if place.target == "full":
            raise StoreAway("its partition is full")
        await super().write(place, *given)


def of(aggregate: str, target: str) -> Event:
    """A message of that aggregate for that target."""
    return replace(told(target, "a"), aggregate=AggregateKey("offer", aggregate))


async def test_some_that_find_the_store_away_when_they_are_given_up_keep_no_others_from_being_seen_to() -> (
    None
):
    desk, young = Desk(Full(), days=2), of("young", "h")
    record = Record.of(delivery(young), young, RecordState.WAITING, "set aside", NOON + timedelta(days=2))
    await desk.records.add(record)
    overdue = []
    for number in range(2):
        for name in "abcd":
            for _ in range(2):  # both are of one aggregate
                await desk.has(of(f"{name} {number}", "full"))
        overdue.append(await desk.has(of(f"healthy {number}", "h")))
    with pytest.raises(StoreAway, match="its partition is full"):
        await desk.retrier.run(seconds=60)
    assert [desk.state(each) for each in overdue] == [RecordState.OVERDUE] * 2
    assert desk.state(record.id) is RecordState.APPLIED
    assert [*desk.records.states().values()].count(RecordState.WAITING) == 2 * 2 * 4


async def test_a_store_that_is_away_for_all_is_not_asked_for_every_record_that_is_to_be_given_up() -> None:
    desk = Desk(Full(), days=2)
    for number in range(20):
        key = AggregateKey("offer", f"o-{number}")
        for mark in "ab":
            await desk.has(replace(told("full", mark), aggregate=key))
    with pytest.raises(StoreAway):
        await desk.retrier.run(seconds=60)
    assert desk.memory.calls.count("find") == 5 + 5, "of so many aggregates in a row, to give up and to try"


def unreadable(_: Delivery) -> Event | None:
    raise Unreadable("the message is no event")


def for_others(_: Delivery) -> Event | None:
    return None


@pytest.mark.parametrize("given", [unreadable, for_others])
async def test_what_is_no_message_of_the_reaction_is_given_up_by_its_record_alone(given: Any) -> None:
    desk = Desk(days=2, read=given)
    records = [await desk.has(told("h", mark)) for mark in "ab"]
    await desk.retrier.discard(records[0], "not wanted")
    assert await desk.retrier.run(seconds=60) == Tried(overdue=1)
    assert [desk.state(each) for each in records] == [RecordState.DISCARDED, RecordState.OVERDUE]
    assert desk.memory.calls == []


class TriedMeanwhile(FakeSetAside):
    """The timer tries each record just after it was read."""

    async def get(self, record_id: str) -> Record:
        record = await super().get(record_id)
        await self.change(record, record.state, "it failed again", attempts=record.attempts + 1)
        return record


async def test_who_discards_what_the_timer_has_in_hand_is_told_to_call_again() -> None:
    desk = Desk(records=TriedMeanwhile())
    record = await desk.has(told("h", "a"))
    with pytest.raises(RecordChanged, match="call again"):
        await desk.retrier.discard(record, "not wanted")
    assert desk.state(record) is RecordState.WAITING


class RefusedMeanwhile(FakeSetAside):
    """Another worker finds each record refused just after it was listed as waiting."""

    async def waiting(self, aggregate: AggregateKey | None = None) -> AsyncIterator[Record]:
        async for each in super().waiting(aggregate):
            now = replace(self.records[each.id], state=RecordState.REFUSED)
            self.records[each.id] = now if aggregate else self.records[each.id]
            yield each


async def test_the_timer_applies_no_message_whose_refusal_only_an_operator_can_take_back() -> None:
    desk, message = Desk(records=RefusedMeanwhile()), told("closed", "a")
    record = await desk.has(message)
    with pytest.raises(ReactionRefused):
        await desk.memory.inbox.handle(message)
    desk.memory.close("closed", closed=False)
    await desk.retrier.run(seconds=60)
    assert (desk.state(record), desk.memory.outcomes) == (RecordState.REFUSED, ["refused"])
    await desk.retrier.apply(record)
    assert (desk.state(record), desk.memory.outcomes) == (RecordState.APPLIED, ["applied"])

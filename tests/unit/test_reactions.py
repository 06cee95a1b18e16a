"""A message at its targets, call by call, over records in memory: what is asked, what is written, what is raised.

``tests/contract/test_reactions.py`` shows that the real store keeps these rules whatever is lost.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from cosmos_outbox.inbox.errors import (
    Contended,
    EntryChanged,
    NotInTurn,
    ReactionRefused,
    RecordChanged,
    Settled,
    StoreAway,
)
from cosmos_outbox.inbox.event import NOTICE, Event
from cosmos_outbox.inbox.reaction import ATTEMPTS, ReactionInbox, ReactionRules
from cosmos_outbox.inbox.reaction_decision import (
    Cursor,
    InOrder,
    ReactionOutcome,
    ReactionRecord,
    SeenTarget,
    TargetPlace,
    ToWrite,
)
from cosmos_outbox.inbox.reaction_targets import LookedUp, Newest
from cosmos_outbox.inbox.receiver import LONGEST_CALL_SECONDS
from tests.support.reactions import LIVES, Heap, HeapState, put_mark, told


@dataclass
class Memory:
    """Heaps with records and cursors. ``raises``: what the next writes raise, in turn; nothing is written then."""

    order: InOrder = InOrder.ANY
    heaps: dict[str, HeapState] = field(default_factory=dict)
    records: dict[str, ReactionRecord] = field(default_factory=dict)
    cursors: dict[str, int] = field(default_factory=dict)
    raises: list[Exception | None] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    untils: list[float] = field(default_factory=list)
    targets: Any = lambda event: event.data["heap"]

    def __post_init__(self) -> None:
        for name in ("h", "closed"):
            self.heaps[name] = Heap.make(name).state
        self.close("closed")

    def close(self, name: str, *, closed: bool = True) -> None:
        self.heaps[name] = self.heaps[name].model_copy(update={"closed": closed})

    async def find(self, place: TargetPlace) -> ReactionRecord | None:
        self.calls.append("find")
        return self.records.get(place.record)

    async def read(self, place: TargetPlace) -> SeenTarget[Heap]:
        self.calls.append("read")
        state = self.heaps.get(place.target)
        cursor = Cursor(self.cursors.get(place.cursor, 0))
        return SeenTarget(Heap.load(state) if state else None, "1", cursor=cursor)

    async def write(
        self, place: TargetPlace, event: Event, seen: SeenTarget[Heap], write: ToWrite[Heap], until: float
    ) -> None:
        self.calls.append("write")
        self.untils.append(until)
        if self.raises and (error := self.raises.pop(0)) is not None:
            raise error
        if (place.record in self.records) != (write.over is not None):
            raise RecordChanged("it says what became of the message")
        self.records[place.record] = replace(write.record, version="1")
        if write.cursor is not None:
            self.cursors[place.cursor] = write.cursor
        if write.changed is not None:
            changes = write.changed.changes()
            assert changes is not None
            self.heaps[place.target] = changes.state

    @property
    def inbox(self) -> ReactionInbox[Heap]:
        return ReactionInbox(self, ReactionRules("marks", "heap", self.targets, put_mark, self.order, LIVES))

    def marks(self, name: str = "h") -> Sequence[str]:
        return self.heaps[name].marks

    @property
    def outcomes(self) -> Sequence[str]:
        return [each.outcome.value for each in self.records.values()]


async def test_a_message_costs_one_read_and_one_write_and_one_that_comes_again_two_looks_more() -> None:
    memory, message = Memory(), told("h", "a")
    await memory.inbox.handle(message)
    assert (memory.calls, memory.marks()) == (["read", "write"], ("a",))
    memory.calls.clear()
    inbox = memory.inbox
    await inbox.handle(message)
    assert (memory.calls, memory.marks()) == (["read", "write", "find"], ("a",))
    assert memory.cursors == {}, "in any order nobody asks for one"
    assert inbox.counts == {ReactionOutcome.APPLIED: 1}


async def test_a_no_is_decided_behind_a_fence_recorded_once_and_told_with_its_reason() -> None:
    memory, message = Memory(), told("closed", "a")
    inbox = memory.inbox
    for calls in (["read", "find", "read", "write"], ["read", "find"]):
        memory.calls.clear()
        with pytest.raises(ReactionRefused, match="the heap is closed"):
            await inbox.handle(message)
        assert memory.calls == calls
    assert memory.outcomes == ["refused"]
    assert inbox.counts == {ReactionOutcome.REFUSED: 2}


async def test_what_an_operator_asks_for_is_refused_again_with_the_reason_of_now() -> None:
    memory, message = Memory(), told("closed", "a")
    with pytest.raises(ReactionRefused):
        await memory.inbox.handle(message)
    for _ in range(2):
        memory.calls.clear()
        with pytest.raises(ReactionRefused, match="the heap is closed"):
            await memory.inbox.apply(message)
        assert memory.calls == ["find", "read"], "its record says so already"
    memory.close("closed", closed=False)
    memory.raises = [ReactionRefused("no transaction holds it")]
    with pytest.raises(ReactionRefused, match="no transaction holds it"):
        await memory.inbox.apply(message)
    assert memory.outcomes == ["refused"]
    await memory.inbox.apply(message)
    assert (memory.outcomes, memory.marks("closed")) == (["applied"], ("a",))
    memory.calls.clear()
    await memory.inbox.apply(message)
    assert memory.calls == ["find"], "it is applied"


async def test_what_was_refused_may_have_nothing_to_change_when_an_operator_asks_for_it() -> None:
    memory, message = Memory(), told("closed", "a")
    with pytest.raises(ReactionRefused):
        await memory.inbox.handle(message)
    inbox = memory.inbox
    await replace(inbox, rules=replace(inbox.rules, react=lambda heap, _: heap)).apply(message)
    assert memory.outcomes == ["nothing"]


async def test_a_change_that_no_transaction_holds_is_decided_anew_before_it_is_refused() -> None:
    """What an old read made too large may be smaller."""
    too_large = ReactionRefused("it has 2 MB")
    memory, message = Memory(raises=[too_large]), told("h", "a")
    await memory.inbox.handle(message)
    assert (memory.marks(), memory.outcomes) == (("a",), ["applied"])
    memory = Memory(raises=[too_large, too_large])
    for _ in range(2):
        with pytest.raises(ReactionRefused, match="2 MB"):
            await memory.inbox.handle(message)
    assert (memory.marks(), memory.outcomes) == ((), ["refused"])


@pytest.mark.parametrize("changed", [EntryChanged("the heap"), RecordChanged("the cursor's")])
async def test_a_target_that_changes_each_time_is_tried_later(changed: Exception) -> None:
    memory, message = Memory(raises=[changed] * ATTEMPTS), told("h", "a")
    with pytest.raises(Contended, match="heap h changed at each of 5 attempts"):
        await memory.inbox.handle(message)
    assert memory.calls.count("write") == ATTEMPTS
    await memory.inbox.handle(message)
    assert memory.marks() == ("a",)


async def test_a_bug_is_raised_of_a_target_that_was_read_behind_a_fence_alone() -> None:
    memory = Memory()
    asked: list[int] = []

    def stumble(heap: Heap | None, event: Event) -> Heap | None:
        asked.append(len(memory.calls))
        raise ZeroDivisionError

    inbox = memory.inbox
    with pytest.raises(ZeroDivisionError):
        await replace(inbox, rules=replace(inbox.rules, react=stumble)).handle(told("h", "a"))
    assert memory.calls == ["read", "find", "read"]
    assert (len(asked), memory.outcomes) == (2, [])


async def test_nothing_to_change_is_an_outcome_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    memory = Memory()
    inbox = memory.inbox
    idle = replace(inbox, rules=replace(inbox.rules, react=lambda heap, _: heap))
    nobody = replace(inbox, rules=replace(inbox.rules, react=lambda *_: None))
    await idle.handle(told("h", "a"))
    await nobody.handle(told("there is none", "a"))
    assert memory.outcomes == ["nothing", "nothing"]
    assert inbox.counts == {ReactionOutcome.NOTHING: 2}
    assert "changes nothing of heap h" in caplog.text
    assert "applied OfferMade" not in caplog.text
    assert [each.sequence for each in memory.records.values()] == [memory.heaps["h"].last_sequence, 0]


async def test_a_notice_changes_nothing_and_the_reaction_is_not_asked() -> None:
    memory = Memory()
    await memory.inbox.handle(replace(told("h", "a"), action=NOTICE))
    assert (memory.marks(), memory.outcomes) == ((), ["nothing"])
    [record] = memory.records.values()
    assert record.reason == "a notice"


async def test_of_two_messages_in_one_place_the_second_one_changes_nothing() -> None:
    """Two publishers, or a store that was put back."""
    for order in (InOrder.NEWEST, InOrder.EACH):
        memory = Memory(order)
        for mark in ("a", "b"):
            await memory.inbox.handle(told("h", mark, 1))
        assert (memory.marks(), memory.outcomes) == (("a",), ["applied", "nothing"])


async def test_a_message_without_a_place_is_refused_where_there_is_an_order_and_moves_nothing() -> None:
    for order in (InOrder.NEWEST, InOrder.EACH):
        memory = Memory(order)
        with pytest.raises(ReactionRefused, match="no sequence"):
            await memory.inbox.handle(told("h", "a", None))
        await memory.inbox.handle(told("h", "b", 1))
        assert memory.marks() == ("b",)
    memory = Memory()
    await memory.inbox.handle(told("h", "a", None))
    assert memory.marks() == ("a",)


async def test_newest_wins_whatever_is_left_out_and_each_in_order_waits() -> None:
    newest, each = Memory(InOrder.NEWEST), Memory(InOrder.EACH)
    for sequence in (1, 4, 3, 5):
        await newest.inbox.handle(told("h", str(sequence), sequence))
    assert newest.marks() == ("1", "4", "5")
    await each.inbox.handle(told("h", "1", 1))
    for ask in (each.inbox.handle(told("h", "3", 3)), each.inbox.give_up(told("h", "3", 3), "not wanted")):
        with pytest.raises(NotInTurn, match="event 3 of offer o-1 waits for event 2"):
            await ask
    for sequence in (2, 3):
        await each.inbox.handle(told("h", str(sequence), sequence))
    assert each.marks() == ("1", "2", "3")


async def test_what_was_refused_is_applied_after_all_only_where_no_newer_one_has_passed_it() -> None:
    memory = Memory(InOrder.EACH)
    first, second = told("closed", "1", 1), told("closed", "2", 2)
    with pytest.raises(ReactionRefused):
        await memory.inbox.handle(first)
    memory.close("closed", closed=False)
    await memory.inbox.apply(first)
    memory.close("closed")
    with pytest.raises(ReactionRefused):
        await memory.inbox.handle(second)
    memory.close("closed", closed=False)
    await memory.inbox.handle(told("closed", "3", 3))
    with pytest.raises(NotInTurn, match="has passed this one"):
        await memory.inbox.apply(second)
    assert memory.marks("closed") == ("1", "3")
    await memory.inbox.give_up(second, "it is passed")
    assert memory.outcomes == ["applied", "discarded", "applied"]


async def test_what_is_given_up_is_applied_by_nobody_and_is_given_up_again_with_the_same_answer() -> None:
    memory, message = Memory(), told("h", "a")
    for calls in (["find", "read", "write"], ["find"]):
        memory.calls.clear()
        await memory.inbox.give_up(message, "not wanted")
        assert memory.calls == calls
    inbox = memory.inbox
    await inbox.handle(message)
    await inbox.apply(message)
    assert (memory.marks(), inbox.counts) == ((), {ReactionOutcome.DISCARDED: 2})
    [record] = memory.records.values()
    assert record.reason == "not wanted"


async def test_what_is_settled_at_one_target_is_given_up_at_the_others_and_told_as_settled_after_that() -> (
    None
):
    memory = Memory(targets=lambda _: ["h", "closed"])
    message = told("", "a")
    with pytest.raises(ReactionRefused, match="the heap is closed"):
        await memory.inbox.handle(message)
    await memory.inbox.give_up(message, "not wanted")
    assert sorted(memory.outcomes) == ["applied", "discarded"]
    alone, message = Memory(), told("h", "a")
    await alone.inbox.handle(message)
    with pytest.raises(Settled):
        await alone.inbox.give_up(message, "not wanted")
    assert alone.outcomes == ["applied"]


async def test_giving_up_beside_others_that_write_is_tried_anew_and_never_told_as_settled() -> None:
    memory, message = Memory(raises=[EntryChanged("the cursor")]), told("h", "a")
    await memory.inbox.give_up(message, "not wanted")
    assert memory.outcomes == ["discarded"]
    memory = Memory(raises=[RecordChanged("again")] * ATTEMPTS)
    with pytest.raises(StoreAway, match="call again"):
        await memory.inbox.give_up(message, "not wanted")
    assert memory.outcomes == []


async def test_another_message_with_the_same_id_is_refused_and_not_of_the_record() -> None:
    memory, message = Memory(), told("h", "a")
    other = replace(message, data={**message.data, "mark": "b"})
    await memory.inbox.handle(message)
    for ask in (memory.inbox.handle, memory.inbox.apply):
        with pytest.raises(ReactionRefused, match="another event with this id"):
            await ask(other)
    await memory.inbox.give_up(other, "not ours")
    assert (memory.outcomes, memory.marks()) == (["applied"], ("a",))


async def test_a_copy_whose_fields_come_in_another_order_is_the_same_message() -> None:
    memory, message = Memory(), told("h", "a")
    await memory.inbox.handle(message)
    await memory.inbox.handle(replace(message, data=dict(reversed([*message.data.items()]))))
    assert memory.marks() == ("a",)


async def test_a_failure_at_one_target_stops_no_other_and_what_waits_is_told_before_what_is_refused() -> None:
    memory = Memory(targets=lambda _: {"closed": "closed", "h": "h", "g": "g"})
    memory.heaps["g"] = Heap.make("g").state

    def stumble_at_h(heap: Heap | None, event: Event) -> Heap | None:
        if heap is not None and heap.aggregate_id == "h":
            raise ZeroDivisionError
        return put_mark(heap, event)

    inbox, message = memory.inbox, told("", "a")
    with pytest.raises(ZeroDivisionError):
        await replace(inbox, rules=replace(inbox.rules, react=stumble_at_h)).handle(message)
    assert (memory.marks(), memory.marks("g")) == ((), ("a",))
    with pytest.raises(ReactionRefused):
        await inbox.handle(message)
    assert (memory.marks(), memory.marks("g")) == (("a",), ("a",))
    assert inbox.counts == {
        ReactionOutcome.REFUSED: 2,
        ReactionOutcome.APPLIED: 3,
    }, "what is found recorded counts again"


async def test_a_store_that_is_away_ends_the_call_at_once() -> None:
    memory = Memory(targets=lambda _: ["h", "closed"], raises=[StoreAway("it is away")])
    with pytest.raises(StoreAway):
        await memory.inbox.handle(told("", "a"))
    assert memory.calls == ["read", "write"]


@pytest.mark.parametrize(
    ("named", "changed"),
    [(None, []), ("h", ["h"]), ([], []), (["h", "g"], ["g", "h"]), ({"h": "the key of h"}, ["h"])],
)
async def test_a_message_is_for_one_or_several_or_for_nobody(named: Any, changed: list[str]) -> None:
    memory = Memory(targets=lambda _: named)
    memory.heaps["g"] = Heap.make("g").state
    message = told("", "a")
    for _ in range(2):
        await memory.inbox.handle(message)
    assert sorted(name for name in memory.heaps if memory.marks(name)) == changed
    assert len(memory.records) == len(changed)
    if not changed:
        await memory.inbox.give_up(message, "for nobody")


@pytest.mark.parametrize("count", [100, 101])
async def test_a_message_is_for_a_hundred_at_most(count: int) -> None:
    names = [f"h-{number}" for number in range(count)]
    memory = Memory(targets=lambda _: names)
    message = told("h", "a", makes=True)
    if count == 100:
        await memory.inbox.handle(message)
        assert len(memory.records) == 100
    else:
        with pytest.raises(ReactionRefused, match="for 101 aggregates, and one can change 100"):
            await memory.inbox.handle(message)
        assert memory.calls == []


async def nobody(kind: type[Any], aggregate_id: str, *, partition_key: str | None = None) -> Any:
    return None


@dataclass
class Lists:
    """Lists of targets; ``expires``: what is there when one is to be created is gone when it is looked for."""

    stored: dict[str, Mapping[str, str]] = field(default_factory=dict)
    lags: bool = False
    expires: bool = False
    untils: list[float] = field(default_factory=list)

    @property
    def newest(self) -> Newest:
        return nobody

    async def read(self, name: str) -> Mapping[str, str] | None:
        return None if self.lags else self.stored.get(name)

    async def find(self, name: str) -> Mapping[str, str] | None:
        return None if self.expires else self.stored.get(name)

    async def create(self, name: str, targets: Mapping[str, str], reason: str, until: float) -> None:
        self.untils.append(until)
        if name in self.stored or self.expires:
            raise RecordChanged("there is one")
        self.stored[name] = targets


@dataclass
class LookingUp:
    memory: Memory = field(default_factory=Memory)
    lists: Lists = field(default_factory=Lists)
    finds: Any = None
    asked: int = 0

    def __post_init__(self) -> None:
        self.memory.targets = LookedUp("marks", self.lists, self.look_up)

    async def look_up(self, newest: Newest, event: Event) -> Any:
        self.asked += 1
        return self.finds


async def test_what_was_looked_up_first_holds_also_where_a_replica_lags() -> None:
    world, message = LookingUp(finds=["h"]), told("", "a")
    world.memory.raises = [StoreAway("it is away")]
    with pytest.raises(StoreAway):
        await world.memory.inbox.handle(message)
    world.finds, world.lists.lags = ["closed"], True
    await world.memory.inbox.handle(message)
    assert (world.memory.marks(), world.memory.outcomes) == (("a",), ["applied"])


async def test_what_was_looked_up_is_looked_up_once() -> None:
    world, message = LookingUp(finds=["h"]), told("", "a")
    for _ in range(2):
        await world.memory.inbox.handle(message)
    assert (world.asked, len(world.lists.untils)) == (1, 1)


async def test_a_list_that_expires_at_the_moment_is_looked_up_by_the_next_attempt() -> None:
    world, message = LookingUp(finds=["h"]), told("", "a")
    world.lists.expires = True
    for call in (world.memory.inbox.handle(message), world.memory.inbox.give_up(message, "r")):
        with pytest.raises(StoreAway, match="has expired at this moment"):
            await call
    world.lists.expires = False
    await world.memory.inbox.handle(message)
    assert world.memory.marks() == ("a",)


async def test_a_message_without_a_list_that_is_given_up_has_no_targets_from_then_on() -> None:
    world, message = LookingUp(finds=["h"]), told("", "a")
    await world.memory.inbox.give_up(message, "not wanted")
    await world.memory.inbox.handle(message)
    assert world.memory.calls == []


async def test_what_is_too_old_goes_by_the_list_and_the_record_of_its_time() -> None:
    world, known, unknown = LookingUp(finds=["h"]), told("", "a"), told("", "b")
    await world.memory.inbox.handle(known)
    world.memory.calls.clear()
    later = known.created_at + LIVES
    old = replace(world.memory.inbox, clock=lambda: later)
    await old.handle(known)
    assert world.memory.calls == ["find"]
    with pytest.raises(ReactionRefused, match="may have been applied"):
        await old.handle(unknown)
    assert (world.memory.calls, world.memory.marks()) == (["find"], ("a",))


async def test_no_write_begins_that_could_end_later_than_the_longest_call() -> None:
    memory = Memory(raises=[RecordChanged("again"), None])
    at = replace(memory.inbox, time=lambda: 1_000.0)
    await at.handle(told("h", "a"))
    await at.give_up(told("h", "b"), "not wanted")
    world = LookingUp(finds=["h"])
    at = replace(world.memory.inbox, time=lambda: 1_000.0)
    await at.handle(told("", "c"))
    await at.give_up(told("", "d"), "not wanted")
    untils = [*memory.untils, *world.memory.untils, *world.lists.untils]
    assert untils == [1_000.0 + LONGEST_CALL_SECONDS] * 6


async def test_whether_the_store_answers_is_asked_of_a_target_that_nobody_has() -> None:
    memory = Memory()
    await memory.inbox.check()
    assert (memory.calls, memory.records) == (["find"], {})


async def test_a_message_without_a_place_can_be_given_up_where_there_is_an_order() -> None:
    for order in (InOrder.NEWEST, InOrder.EACH):
        memory = Memory(order)
        await memory.inbox.give_up(told("h", "a", None), "not wanted")
        await memory.inbox.handle(told("h", "b", 1))
        assert (memory.outcomes, memory.marks()) == (["discarded", "applied"], ("b",))


async def test_a_message_is_too_old_from_its_very_moment_on() -> None:
    memory, message = Memory(), told("h", "a")
    moment = message.created_at + memory.inbox.rules.too_old
    with pytest.raises(ReactionRefused, match="may have been applied"):
        await replace(memory.inbox, clock=lambda: moment).handle(message)
    await replace(memory.inbox, clock=lambda: moment - timedelta(seconds=1)).handle(message)
    assert memory.marks() == ("a",)


def too_old_at(age: timedelta) -> bool:
    return age >= ReactionRules("m", "heap", lambda _: "h", put_mark, InOrder.ANY, LIVES).too_old


def test_a_message_is_too_old_a_day_and_the_longest_call_before_its_record_can_expire() -> None:
    assert not too_old_at(LIVES - timedelta(days=1, hours=1))
    assert too_old_at(LIVES - timedelta(days=1, seconds=30))


async def test_the_records_of_a_message_are_of_its_source_its_reaction_and_its_target() -> None:
    message = told("h", "a")
    place = TargetPlace.of("marks", "heap", "h", "h", message, InOrder.EACH)
    others = [
        TargetPlace.of("others", "heap", "h", "h", message, InOrder.EACH),
        TargetPlace.of("marks", "pile", "h", "h", message, InOrder.EACH),
        TargetPlace.of("marks", "heap", "g", "g", message, InOrder.EACH),
        TargetPlace.of("marks", "heap", "h", "h", replace(message, source="/others"), InOrder.EACH),
    ]
    assert len({each.record for each in (place, *others)}) == 5
    assert len({each.cursor for each in (place, *others)}) == 5
    again = TargetPlace.of("marks", "heap", "h", "h", replace(message, id=str(uuid4())), InOrder.EACH)
    assert (again.cursor == place.cursor, again.record == place.record) == (True, False)
    assert TargetPlace.of("marks", "heap", "h", "h", message, InOrder.ANY).cursor == ""

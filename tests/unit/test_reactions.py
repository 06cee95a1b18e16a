"""A message at its targets, call by call, over records in memory: what is asked, what is written, what is raised.

``tests/contract/test_reactions.py`` shows that the real store keeps these rules whatever is lost.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from cosmos_outbox.inbox.errors import (
    NotInTurn,
    ReactionRefused,
    RecordChanged,
)
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.reaction import ReactionInbox, ReactionRules
from cosmos_outbox.inbox.reaction_decision import (
    Cursor,
    InOrder,
    ReactionOutcome,
    ReactionRecord,
    SeenTarget,
    TargetPlace,
    ToWrite,
)
from cosmos_outbox.kernel.own_failures import CallEnded
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


async def test_of_two_messages_in_one_place_the_second_one_changes_nothing() -> None:
    """Two publishers, or a store that was put back."""
    for order in (InOrder.NEWEST, InOrder.EACH):
        memory = Memory(order)
        for mark in ("a", "b"):
            await memory.inbox.handle(told("h", mark, 1))
        assert (memory.marks(), memory.outcomes) == (("a",), ["applied", "nothing"])


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


async def test_another_message_with_the_same_id_is_refused_and_not_of_the_record() -> None:
    memory, message = Memory(), told("h", "a")
    other = replace(message, data={**message.data, "mark": "b"})
    await memory.inbox.handle(message)
    for ask in (memory.inbox.handle, memory.inbox.apply):
        with pytest.raises(ReactionRefused, match="another event with this id"):
            await ask(other)
    await memory.inbox.give_up(other, "not ours")
    assert (memory.outcomes, memory.marks()) == (["applied"], ("a",))


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


async def nobody(kind: type[Any], aggregate_id: str, *, partition_key: str | None = None) -> Any:
    return None


async def test_a_reaction_that_exits_at_one_target_reaches_the_others() -> None:
    def exits_at_closed(heap: Heap | None, event: Event) -> Heap | None:
        if heap is not None and heap.state.closed:
            sys.exit("closed")
        return put_mark(heap, event)

    memory = Memory(targets=lambda _: ["closed", "h"])
    rules = ReactionRules("marks", "heap", memory.targets, exits_at_closed, memory.order, LIVES)
    with pytest.raises(CallEnded):
        await ReactionInbox(memory, rules).handle(told("h", "a"))
    assert memory.marks() == ("a",)

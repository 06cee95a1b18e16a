"""A subscriber with no source: in whatever order events come, are lost and are published again, its state is right.

All orders of three events, each of which comes once or twice and may be lost the first time, with every answer of the
store lost or not; then what waits is tried again, and all is published again.
"""

from itertools import permutations, product

import pytest

from cosmos_outbox.inbox.entry import After, Entry
from cosmos_outbox.inbox.errors import SourceBehind
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.inbox.ports import NoSource
from cosmos_outbox.inbox.read_model import Complete, HealReason, Put, SkipReason, StateInbox, decide
from tests.support.inbox import KEY, NOON, FakeEntries, Faults, event, project, skip_marker

State = tuple[int, ...]
DELETED = event(3, action="Deleted")


def first(received: Event) -> State | None:
    return (int(received.data["adds"]),) if received.action == "Changed" else None


def made(entries: FakeEntries[State]) -> StateInbox[State]:
    return StateInbox(entries, NoSource(), project, lambda: NOON, first=first)


async def delivered(inbox: StateInbox[State], received: Event) -> bool:
    """False: it is set aside, as any error of one aggregate has it."""
    try:
        await inbox.handle(received)
    except SourceBehind:
        return False
    return True


@pytest.mark.parametrize("last", [event(3), DELETED], ids=["changed", "deleted"])
async def test_every_order_and_every_loss_ends_in_the_right_state(last: Event) -> None:
    events = [event(1), event(2), last]
    orders = sorted(set(permutations([0, 1, 2, 0, 1, 2], 4)))
    for lost, order in product(range(8), orders):
        entries: FakeEntries[State] = FakeEntries()
        inbox, waiting = made(entries), list[Event]()
        for received in [events[number] for number in order]:
            is_lost = lost >> (received.sequence or 0) - 1 & 1
            if not is_lost and not await delivered(inbox, received):
                waiting.append(received)
            entry = entries.of(KEY)
            assert entry is None or entry.state in (None, tuple(range(1, entry.last_sequence + 1)))
        for received in [*events, *sorted(waiting, key=lambda each: each.sequence or 0)]:  # published again
            assert await delivered(inbox, received), (lost, order)
        entry = entries.of(KEY)
        assert entry is not None
        assert (entry.last_sequence, entry.state) == (3, None if last is DELETED else (1, 2, 3))
        assert inbox.counts[SkipReason.CONFLICT] == 0


async def test_a_lost_answer_at_any_call_changes_nothing() -> None:
    from cosmos_outbox.inbox.errors import StoreUnavailable  # noqa: PLC0415 - the fake raises it

    for at, after in product(range(6), (False, True)):
        entries: FakeEntries[State] = FakeEntries(Faults({at: (StoreUnavailable, after)}))
        inbox = made(entries)
        for received in (event(1), event(2), event(3)):
            for _ in range(2):
                try:
                    await inbox.handle(received)
                except StoreUnavailable:
                    continue
                break
        entry = entries.of(KEY)
        assert entry is not None
        assert (entry.last_sequence, entry.state) == (3, (1, 2, 3))


async def test_an_entry_is_made_from_the_first_event_alone() -> None:
    entries: FakeEntries[State] = FakeEntries()
    inbox = made(entries)
    assert not await delivered(inbox, event(2))
    assert not await delivered(inbox, event(None))
    assert not await delivered(inbox, skip_marker(1))
    assert entries.of(KEY) is None
    assert await inbox.handle(event(1)) == Put(Entry(1, event(1).id, (1,)), HealReason.NEW)


async def test_a_skip_marker_is_projected_and_its_late_event_is_no_conflict() -> None:
    def tolerant(state: State, received: Event) -> After[State]:
        return After(state) if received.is_skip else After((*state, 0))

    before: Entry[State] = Entry(1, "a", (1,))
    after: Entry[State] = Entry(2, None, (1,))
    decided = decide(before, skip_marker(2), tolerant, first)
    assert decided == Put(after)
    late = decide(after, event(2), tolerant, first)
    assert late == Complete(SkipReason.APPLIED_BEFORE)


async def test_an_entry_of_another_form_is_made_anew_when_all_is_published_again() -> None:
    entries: FakeEntries[State] = FakeEntries()
    inbox = made(entries)
    entries.written[KEY] = [Entry(3, event(3).id, None, other_form=True)]
    for received in (event(4), event(2), skip_marker(1)):
        assert not await delivered(inbox, received), "it waits: nothing is built on what cannot be read"
    assert entries.of(KEY) == Entry(3, event(3).id, None, other_form=True)
    for received in (event(1), event(2), event(3), event(4)):
        assert await delivered(inbox, received)
    assert entries.of(KEY) == Entry(4, event(4).id, (1, 2, 3, 4))
    assert inbox.counts[HealReason.FORM] == 1

"""Where a source shows nothing of what was deleted, the entry does: no late event brings an aggregate back."""

from datetime import timedelta

from cosmos_outbox.inbox.decision import Because, Complete, Done, Put
from cosmos_outbox.inbox.entry import Entry, Found
from cosmos_outbox.inbox.state import StateInbox
from tests.support.inbox import KEY, NOON, FakeEntries, FakeSource, event, project

State = tuple[int, ...]


def forgetful(entries: FakeEntries[State], source: FakeSource[State]) -> StateInbox[State]:
    """As over another team's HTTP interface, which answers 404 of what was deleted."""
    return StateInbox(
        entries,
        source,
        project,
        lambda: NOON,
        first=lambda first: (int(first.data["adds"]),),
        tombstones=timedelta(days=20),
        forgetful=True,
    )


async def test_an_event_of_what_is_gone_leaves_a_deleted_entry_that_no_earlier_event_revives() -> None:
    entries = FakeEntries[State]()
    inbox = forgetful(entries, FakeSource())
    assert await inbox.handle(event(3)) == Put(Entry(3, None, None), Because.NEW)
    for late in (event(1), event(2), event(4)):
        assert await inbox.handle(late) == Complete(Done.DELETED)
    assert entries.written[KEY] == [Entry(3, None, None)]


async def test_a_living_entry_of_what_is_gone_keeps_its_sequence_as_a_deleted_one() -> None:
    entries, source = FakeEntries[State](), FakeSource[State]()
    inbox = forgetful(entries, source)
    for sequence in (1, 2):
        await inbox.handle(event(sequence))
    await inbox.handle(event(9))
    assert entries.of(KEY) == Entry(2, None, None)


async def test_a_sweep_notes_what_a_list_still_shows_and_is_gone() -> None:
    entries, source = FakeEntries[State](), FakeSource[State]()
    source.change(KEY, Found(2, (1, 2)))
    source.change(KEY, None)
    assert await forgetful(entries, source).heal(KEY) == Put(Entry(0, None, None), Because.SWEEP)
    assert await forgetful(entries, source).handle(event(1)) == Complete(Done.DELETED)

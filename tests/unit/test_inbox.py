"""The state mode, call by call: what is read and written, and that no lost answer changes the result."""

import asyncio
import json
import logging
import math
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product
from unittest.mock import Mock

import pytest
from pydantic import ValidationError

from cosmos_outbox.inbox.entry import Entry, Found, VersionedEntry
from cosmos_outbox.inbox.errors import (
    ConcurrentUpdate,
    EntryChanged,
    SourceBehind,
    StoreUnavailable,
    Unreadable,
)
from cosmos_outbox.inbox.message import Event, MessageReader, TolerantReader
from cosmos_outbox.inbox.read_model import Complete, Heal, HealReason, Put, SkipReason, StateInbox, mend
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import SYSTEM, using
from cosmos_outbox.operations.subscriber import ReadModel
from outbox_simulation.engine.loop import Loop
from tests.support.inbox import KEY, NOON, FakeEntries, FakeSource, Faults, event, project, skip_marker

State = tuple[int, ...]


def made(
    *, entries: FakeEntries[State] | None = None, source: FakeSource[State] | None = None
) -> tuple[StateInbox[State], FakeEntries[State], FakeSource[State]]:
    entries, source = entries or FakeEntries(), source or FakeSource()
    return StateInbox(entries, source, project, lambda: NOON), entries, source


def source_at(*sequences: int) -> FakeSource[State]:
    source: FakeSource[State] = FakeSource()
    for sequence in sequences:
        source.change(KEY, Found(sequence, tuple(range(1, sequence + 1))))
    return source


async def test_events_in_order_are_applied_and_only_the_first_reads_the_source() -> None:
    inbox, entries, source = made(source=source_at(1))
    for sequence in (1, 2, 3):
        await inbox.handle(event(sequence))
    assert entries.of(KEY) == Entry(3, "7/3/Changed", (1, 2, 3))
    assert (source.reads, source.consistent_reads) == (0, 1)
    assert entries.stamps[KEY].late_seconds == 0
    assert (entries.reads, entries.consistent_reads) == (1, 1), (
        "what the process itself wrote it need not read"
    )


TOMBSTONES = timedelta(days=10)


def making(
    entries: FakeEntries[State], source: FakeSource[State], *, at: datetime = NOON
) -> StateInbox[State]:
    """Its first event holds the whole state."""
    return StateInbox(
        entries,
        source,
        project,
        lambda: at,
        first=lambda first: (int(first.data["adds"]),),
        tombstones=TOMBSTONES,
    )


async def test_a_first_event_with_all_data_makes_its_entry_in_one_write() -> None:
    entries, source = FakeEntries[State](), source_at(1, 3)
    inbox = making(entries, source)
    for sequence in (1, 2, 3):
        await inbox.handle(event(sequence))
    assert entries.written[KEY] == [
        Entry(1, "7/1/Changed", (1,)),
        Entry(2, "7/2/Changed", (1, 2)),
        Entry(3, "7/3/Changed", (1, 2, 3)),
    ]
    assert (entries.reads, entries.consistent_reads, source.reads, source.consistent_reads) == (0, 0, 0, 0)
    assert entries.stamps[KEY].late_seconds == 0


@pytest.mark.parametrize("after", [True, False])
async def test_a_creation_whose_answer_is_lost_is_done_once(after: bool) -> None:
    entries = FakeEntries[State](Faults({0: (StoreUnavailable, after)}))
    inbox = making(entries, FakeSource())
    with pytest.raises(StoreUnavailable):
        await inbox.handle(event(1))
    result = await inbox.handle(event(1))
    assert isinstance(result, Complete) is after
    assert entries.written[KEY] == [Entry(1, "7/1/Changed", (1,))]


async def test_an_event_that_comes_again_is_not_applied_again() -> None:
    inbox, entries, _ = made(source=source_at(1))
    for sequence in (1, 2, 2, 1):
        await inbox.handle(event(sequence))
    assert entries.of(KEY) == Entry(2, "7/2/Changed", (1, 2))
    assert inbox.counts[SkipReason.APPLIED_BEFORE] == 2
    assert (entries.reads, entries.consistent_reads) == (3, 1), (
        "an entry that has reached it once stays there"
    )


async def test_an_entry_that_a_restore_has_lowered_takes_the_next_event() -> None:
    """What the process remembers of it is from before."""
    entries, source = FakeEntries[State](), source_at(1)
    inbox = making(entries, source)
    for sequence in (1, 2, 3):
        await inbox.handle(event(sequence))
    stored = await entries.newest(KEY)
    assert stored is not None
    await entries.put(KEY, Entry(1, None, (1,)), entries.stamps[KEY], over=stored.version)
    await inbox.handle(event(2))
    assert entries.of(KEY) == Entry(2, "7/2/Changed", (1, 2))


async def test_a_remembered_entry_serves_only_a_write_at_its_version() -> None:
    """Another process has gone on in between."""
    entries, source = FakeEntries[State](), source_at(1)
    ours, others = making(entries, source), making(entries, source)
    await ours.handle(event(1))
    for sequence in (2, 3):
        await others.handle(event(sequence))
    assert await ours.handle(event(2)) == Complete(SkipReason.APPLIED_BEFORE)
    assert entries.of(KEY) == Entry(3, "7/3/Changed", (1, 2, 3))
    await ours.handle(event(4))
    await others.handle(event(5))
    await ours.handle(event(6))
    assert entries.of(KEY) == Entry(6, "7/6/Changed", (1, 2, 3, 4, 5, 6)), (
        "no gap is seen where there is none"
    )
    assert source.consistent_reads == 0


@pytest.mark.parametrize(
    ("received", "because"),
    [
        (event(4), HealReason.GAP),
        (skip_marker(2), HealReason.SKIP_MARKER),
        (event(2, action="Renamed"), HealReason.UNKNOWN),
    ],
)
async def test_what_cannot_be_applied_is_read_from_the_source(received: Event, because: HealReason) -> None:
    source = source_at(1)
    inbox, entries, _ = made(source=source)
    await inbox.handle(event(1))
    source.change(KEY, Found(4, (1, 2, 3, 4)))
    await inbox.handle(received)
    assert entries.of(KEY) == Entry(4, None, (1, 2, 3, 4), healed=1)
    assert (source.reads, source.consistent_reads) == (0, 2)
    assert inbox.counts[because] == 1
    assert entries.stamps[KEY].late_seconds is None, (
        "the state is newer than this event: its age says nothing of it"
    )


async def test_an_event_without_a_sequence_reads_the_source_consistently() -> None:
    source: FakeSource[State] = FakeSource()
    inbox, entries, _ = made(source=source)
    source.change(KEY, Found(0, (1,)))
    await inbox.handle(event(None))
    source.change(KEY, Found(0, (1, 2)))
    source.lag = 1
    await inbox.handle(event(None))
    assert entries.of(KEY) == Entry(0, None, (1, 2), healed=1)
    assert source.reads == 0


async def test_a_source_that_lags_is_read_consistently() -> None:
    source = source_at(1)
    inbox, entries, _ = made(source=source)
    await inbox.handle(event(1))
    source.change(KEY, Found(3, (1, 2, 3)))
    source.lag = 1
    await inbox.handle(event(3))
    assert entries.of(KEY) == Entry(3, None, (1, 2, 3), healed=1)
    assert (source.reads, source.consistent_reads) == (0, 2)


async def test_a_gap_that_the_source_does_not_close_waits() -> None:
    inbox, entries, _ = made(source=source_at(1))
    await inbox.handle(event(1))
    with pytest.raises(SourceBehind):
        await inbox.handle(event(3))
    assert entries.of(KEY) == Entry(1, None, (1,))


async def test_a_deleted_aggregate_stays_deleted() -> None:
    source = source_at(1)
    inbox, entries, _ = made(source=source)
    for each in (event(1), event(2, action="Deleted"), event(3), skip_marker(4), event(None)):
        await inbox.handle(each)
    await inbox.heal(KEY)
    assert entries.of(KEY) == Entry(2, "7/2/Deleted", None)


async def test_a_gone_aggregate_gets_no_entry_and_a_living_entry_is_deleted() -> None:
    source: FakeSource[State] = FakeSource()
    inbox, entries, _ = made(source=source)
    assert await inbox.handle(event(1)) == Complete(SkipReason.GONE)
    assert entries.of(KEY) is None
    source.change(KEY, Found(1, (1,)))
    await inbox.handle(event(1))
    source.change(KEY, None)
    await inbox.handle(event(3))
    assert entries.of(KEY) == Entry(1, None, None)


async def test_an_entry_hidden_by_a_lagging_replica_is_deleted_with_its_source() -> None:
    source = source_at(1)
    inbox, entries, _ = made(source=source)
    await inbox.handle(event(1))
    entries.lag = 1
    source.change(KEY, None)
    await inbox.handle(event(3))
    assert entries.of(KEY) == Entry(1, None, None)


async def test_two_events_with_one_sequence_are_an_alarm(caplog: pytest.LogCaptureFixture) -> None:
    inbox, entries, _ = made(source=source_at(1))
    for each in (event(1), event(2), event(2, event_id="another")):
        await inbox.handle(each)
    assert inbox.counts[SkipReason.CONFLICT] == 1
    assert "another event has this sequence" in caplog.text
    assert entries.of(KEY) == Entry(2, "7/2/Changed", (1, 2))


async def test_healing_leaves_an_entry_that_is_ahead_of_its_source() -> None:
    source = source_at(3)
    inbox, entries, _ = made(source=source)
    await inbox.handle(event(3))
    source.change(KEY, Found(1, (1,)))
    assert await inbox.heal(KEY) == Complete(SkipReason.NOT_NEWER)
    assert entries.of(KEY) == Entry(3, None, (1, 2, 3))


def of_another_form(sequence: int) -> FakeEntries[State]:
    entries: FakeEntries[State] = FakeEntries()
    entries.written[KEY] = [Entry(sequence, f"7/{sequence}/Changed", None, other_form=True)]
    return entries


async def test_an_entry_of_another_schema_is_read_from_the_source_instead() -> None:
    inbox, entries, _ = made(entries=of_another_form(3), source=source_at(4))
    await inbox.handle(event(4))
    assert entries.of(KEY) == Entry(4, None, (1, 2, 3, 4)), (
        "no event was missing, so nothing counts as healed"
    )
    assert inbox.counts == {HealReason.FORM: 1}


async def test_a_gap_before_an_entry_of_another_form_is_a_gap() -> None:
    inbox, entries, _ = made(entries=of_another_form(1), source=source_at(4))
    await inbox.handle(event(4))
    assert entries.of(KEY) == Entry(4, None, (1, 2, 3, 4), healed=1)


async def test_an_entry_of_another_form_knows_what_was_applied_before() -> None:
    inbox, entries, _ = made(entries=of_another_form(3), source=source_at(3))
    for received in (event(3), event(2), event(3, event_id="another")):
        await inbox.handle(received)
    assert inbox.counts == {SkipReason.APPLIED_BEFORE: 2, SkipReason.CONFLICT: 1}
    assert len(entries.written[KEY]) == 1


async def test_an_entry_rewritten_at_its_sequence_keeps_its_event_and_alarm() -> None:
    inbox, entries, _ = made(entries=of_another_form(3), source=source_at(3))
    result = await inbox.heal(KEY)
    assert isinstance(result, Put)
    assert result.because is HealReason.FORM
    assert entries.of(KEY) == Entry(3, "7/3/Changed", (1, 2, 3))
    await inbox.handle(event(3, event_id="another"))
    assert inbox.counts[SkipReason.CONFLICT] == 1


async def test_an_entry_of_another_schema_without_a_source_becomes_deleted() -> None:
    inbox, entries, _ = made(entries=of_another_form(3))
    await inbox.heal(KEY)
    assert entries.of(KEY) == Entry(3, None, None)


async def test_an_entry_that_changes_each_time_is_given_up_for_now() -> None:
    entries: FakeEntries[State] = FakeEntries()
    inbox, _, _ = made(entries=entries, source=source_at(1))
    entries.faults.at = dict.fromkeys((2, 4, 6, 8, 10), (EntryChanged, False))
    with pytest.raises(ConcurrentUpdate):
        await inbox.handle(event(1))


STORY = [event(1), event(2), skip_marker(3), event(5), event(4), event(6, action="Deleted"), event(2)]
FAULTS = list(product(range(4), (False, True), (0, 1)))


@pytest.mark.parametrize(("call", "after", "lag"), FAULTS)
@pytest.mark.parametrize("number", range(len(STORY)))
async def test_a_failed_call_or_a_lost_answer_changes_nothing_in_the_end(
    number: int, call: int, after: bool, lag: int
) -> None:
    """Every call of every message, before or after its effect, with old reads; then the message comes again."""
    source: FakeSource[State] = FakeSource()
    inbox, entries, _ = made(source=source)
    for at, received in enumerate(STORY):
        reached = max(each.sequence or 0 for each in STORY[: at + 1])
        source.change(KEY, Found(reached, None if reached == 6 else tuple(range(1, reached + 1))))
        entries.lag = source.lag = lag
        faults = Faults({call: (StoreUnavailable, after)} if at == number else {})
        entries.faults = source.faults = faults
        try:
            await inbox.handle(received)
        except StoreUnavailable:
            await inbox.handle(received)
        entry = entries.of(KEY)
        assert entry is not None
        assert entry.last_sequence == reached
        assert entry.state == (None if reached == 6 else tuple(range(1, reached + 1)))


async def test_the_output_has_no_personal_data(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    inbox, _, _ = made(source=source_at(1))
    for each in (event(1), event(2), event(2, event_id="x"), event(9)):
        received = replace(each, data={**each.data, "email": "johndoe@contoso.com"})
        if each.sequence == 9:
            with pytest.raises(SourceBehind, match="event 9 of thing 7"):
                await inbox.handle(received)
        else:
            await inbox.handle(received)
    assert "contoso" not in caplog.text
    assert "contoso" not in repr(received)


class Slow(FakeEntries[State]):
    """A store whose entry reaches an event late, or never: it counts the reads."""

    shown_at = math.inf

    async def read(self, key: AggregateKey) -> VersionedEntry[State] | None:
        self.reads += 1
        assert self.reads < 1_000, "it asks without a pause"
        if asyncio.get_running_loop().time() < self.shown_at:
            raise StoreUnavailable("it is away")
        return VersionedEntry(Entry(2, None, (1, 2)), "1")


@pytest.mark.parametrize("shown_at", [0.0, 1.25, math.inf])
def test_a_wait_for_a_write_ends_once_it_is_shown_or_at_its_deadline(shown_at: float) -> None:
    loop, entries = Loop(), Slow()
    entries.shown_at = shown_at

    async def wait() -> bool:
        with using(replace(SYSTEM, monotonic=loop.time)):
            return await ReadModel(Mock(entries=entries), None, Mock()).shows(KEY, 2, seconds=2.0)

    assert loop.run(wait()) is (shown_at < 2)
    assert loop.time() <= min(shown_at + 0.2, 2.0)
    assert entries.reads <= 21


@pytest.mark.parametrize("found", [None, Found(9, (1, 9))])
def test_an_entry_that_was_deleted_while_its_source_was_read_stays_so(found: Found[State] | None) -> None:
    deleted: Entry[State] = Entry(2, "7/2/Deleted", None)
    assert mend(deleted, Heal(HealReason.GAP, 9), found) == Complete(SkipReason.DELETED)


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


async def test_a_gone_aggregates_event_leaves_an_entry_no_late_event_revives() -> None:
    entries = FakeEntries[State]()
    inbox = forgetful(entries, FakeSource())
    assert await inbox.handle(event(3)) == Put(Entry(3, None, None), HealReason.NEW)
    for late in (event(1), event(2), event(4)):
        assert await inbox.handle(late) == Complete(SkipReason.DELETED)
    assert entries.written[KEY] == [Entry(3, None, None)]


async def test_a_gone_aggregates_entry_keeps_its_sequence_as_a_deleted_one() -> None:
    entries, source = FakeEntries[State](), FakeSource[State]()
    inbox = forgetful(entries, source)
    for sequence in (1, 2):
        await inbox.handle(event(sequence))
    await inbox.handle(event(9))
    assert entries.of(KEY) == Entry(2, None, None)


READER = MessageReader("thing")
BODY = (
    b'{"id": "e-1", "action": "Changed", "sequence": 1, "createdAt": "2026-03-01T12:00:00Z", "thingId": "7"}'
)


def test_a_transports_reason_for_an_unreadable_message_is_given() -> None:
    properties = {"aggregateType": "thing", "unreadable": "its data, the blob a, was erased"}
    for body in (b"", BODY):
        with pytest.raises(Unreadable, match="its data, the blob a, was erased"):
            READER.event(body, properties)


def test_the_error_of_an_unreadable_message_has_none_of_its_content() -> None:
    class Thing(TolerantReader):
        longest_way: int

    with pytest.raises(ValidationError) as reported:
        Thing.model_validate({"longestWay": "of Ann, 7 Main Street"})
    assert "Ann" not in str(reported.value)


@pytest.mark.parametrize("again", [False, True])
def test_a_message_says_whether_it_is_published_again(again: bool) -> None:
    properties = {"aggregateType": "thing"} | ({"originalMessageId": "e-1"} if again else {})
    event = READER.event(BODY, properties)
    assert event is not None
    assert (event.id, event.republished) == ("e-1", again)


@pytest.mark.parametrize("name", ["id", "action"])
def test_an_event_whose_name_or_id_is_empty_is_none(name: str) -> None:
    body = json.dumps(json.loads(BODY) | {name: ""}).encode()
    with pytest.raises(Unreadable, match=f"{name} missing or wrong"):
        READER.event(body, {"aggregateType": "thing"})


def test_a_message_without_a_type_is_read_only_by_an_untyped_reader() -> None:
    assert READER.event(BODY, {}) is None
    older = MessageReader("thing", untyped=True)
    assert older.event(BODY, {}) is not None
    assert older.event(BODY, {"aggregateType": "another"}) is None

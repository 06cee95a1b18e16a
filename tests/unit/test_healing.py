"""What a walk heals, what it leaves, when it is due, and that it goes on where a run has ended."""

import logging
import sys
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from cosmos_outbox.inbox.entry import Entry, Found
from cosmos_outbox.inbox.errors import StoreUnavailable
from cosmos_outbox.inbox.healing import (
    CLAIM,
    EVERY,
    MANY,
    MOST_GONE,
    OVERLAP,
    WHOLE_EVERY,
    YOUNG,
    Counts,
    Healing,
    Side,
    WalkProgress,
)
from cosmos_outbox.inbox.read_model import HealReason, StateInbox
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from tests.support.inbox import NOON, FakeEntries, FakeSource, Faults, event, project

State = tuple[int, ...]
OLD = NOON - timedelta(hours=1)
LIFE = timedelta(days=10)

PERSONAL = "johndoe@contoso.com"


class Died(BaseException):
    """The process is gone."""


@dataclass
class World:
    """An inbox with its store and source, walked at noon unless the time is moved."""

    entries: FakeEntries[State] = field(default_factory=FakeEntries)
    source: FakeSource[State] = field(default_factory=FakeSource)
    blocked: Collection[AggregateKey] = ()
    now: datetime = NOON
    away: set[AggregateKey] = field(default_factory=set)
    """Of which the source does not answer."""
    exits: set[AggregateKey] = field(default_factory=set)
    """At which the source's code ends the process."""

    def __post_init__(self) -> None:
        self.inbox = StateInbox(self.entries, self.source, project, lambda: self.now)
        self.healing = Healing(self.inbox, self.source, 0, self._blocked, LIFE)
        newest, self.asked = self.source.newest, list[AggregateKey]()

        async def answered(key: AggregateKey) -> Found[State] | None:
            self.asked.append(key)
            if key in self.away:
                raise StoreUnavailable("its partition is throttled")
            if key in self.exits:
                sys.exit("no such partition")
            return await newest(key)

        self.source.newest = answered  # type: ignore[method-assign]  # a fault

    async def _blocked(self) -> Collection[AggregateKey]:
        return self.blocked

    def has(
        self, name: str, entry: int | None, source: int | None, *, changed: datetime = OLD
    ) -> AggregateKey:
        """An aggregate whose entry is at one sequence and its source at another; None: there is none."""
        key = AggregateKey("thing", name)
        if entry is not None:
            self.entries.written[key] = [Entry(entry, None, tuple(range(1, entry + 1)))]
        found = None if source is None else Found(source, tuple(range(1, source + 1)), changed)
        self.source.change(key, found)
        return key

    def sequence(self, key: AggregateKey) -> int | None:
        entry = self.entries.of(key)
        return None if entry is None else entry.last_sequence

    async def progress(self) -> WalkProgress:
        progress = await self.healing.progress()
        assert progress is not None
        return progress

    async def walked(self, *, days: float = 1) -> Counts:
        """What the walk of the next day finds."""
        self.now += timedelta(days=days)
        await self.healing.run(seconds=10)
        progress = await self.progress()
        assert progress.side is None
        assert progress.last_counts is not None
        return progress.last_counts

    async def rebuilt(self, *, source_wins: bool = False) -> Counts:
        reported: list[WalkProgress] = []
        progress = await self.healing.rebuild(reported.append, source_wins=source_wins)
        assert reported[-1] == progress
        assert progress.last_counts is not None
        return progress.last_counts


async def settled(*names: str) -> World:
    """All is right, and has been walked over."""
    world = World()
    for name in names:
        world.has(name, 1, 1, changed=NOON - timedelta(days=2))
    assert (await world.walked(days=0)).healed == 0
    return world


async def test_entries_behind_and_missing_are_healed_and_found_right_later() -> None:
    world = World()
    keys = [
        world.has(name, entry, source) for name, entry, source in (("a", 2, 2), ("b", 1, 3), ("c", None, 1))
    ]
    assert await world.walked() == Counts(entries=3, sources=3, healed=2)
    assert [world.sequence(key) for key in keys] == [2, 3, 1]
    assert world.inbox.counts[HealReason.WALK] == 2
    assert (await world.rebuilt()).healed == 0


async def test_an_entry_whose_source_is_gone_or_deleted_becomes_a_deleted_one() -> None:
    world = World()
    gone, deleted = world.has("a", 2, None), world.has("b", 2, 2)
    world.source.change(deleted, Found(3, None, OLD))
    assert (await world.walked()).healed == 2
    for key in (gone, deleted):
        entry = world.entries.of(key)
        assert entry is not None
        assert entry.deleted


async def test_a_source_that_exits_at_one_aggregate_ends_no_walk() -> None:
    world = World()
    bad, good = world.has("a", 1, 2), world.has("b", 1, 2)
    world.exits.add(bad)
    counts = await world.walked()
    assert (counts.failed, counts.healed) == (1, 1)
    assert [world.sequence(key) for key in (bad, good)] == [1, 2]


async def test_a_walk_deletes_few_entries_and_a_rebuild_all(caplog: pytest.LogCaptureFixture) -> None:
    """A source that answers for another one empties no read model."""
    world = World()
    world.entries.page_size = 100
    keys = [world.has(f"k{number}", 1, None) for number in range(MOST_GONE + 5)]

    def deleted() -> int:
        return sum(entry is not None and entry.deleted for entry in map(world.entries.of, keys))

    counts = await world.walked()
    assert (counts.gone, counts.failed, deleted()) == (MOST_GONE, 5, MOST_GONE)
    assert caplog.text.count("entries have no source any more") == 1
    assert (await world.rebuilt()).gone == 5
    assert deleted() == len(keys)
    for key in keys:
        world.source.change(key, Found(1, (1,), OLD))
    assert (await world.rebuilt(source_wins=True)).healed == len(keys)
    assert deleted() == 0


async def test_a_walk_that_goes_on_deletes_no_more_for_it() -> None:
    world = World()
    world.entries.page_size = 100
    for number in range(10):
        world.has(f"k{number}", 1, None)
    begun = WalkProgress(NOON, 0, side=Side.ENTRIES, counts=Counts(gone=MOST_GONE - 3))
    await world.entries.save_progress(begun.document(), over=None)
    await world.healing.run(seconds=10)
    progress = await world.progress()
    assert progress.last_counts is not None
    assert (progress.last_counts.gone, progress.last_counts.failed) == (MOST_GONE, 7)


@pytest.mark.parametrize("event_id", [None, "a/3/Changed"])
async def test_another_state_of_the_same_sequence_is_healed(event_id: str | None) -> None:
    """A lost event without a sequence, or an entry that a version with a bug made."""
    world = World()
    key = world.has("a", 3, 3)
    world.entries.written[key] = [Entry(3, event_id, (1, 3))]
    assert (await world.walked()).healed == 1
    assert world.entries.of(key) == Entry(3, None, (1, 2, 3), healed=1)


async def test_the_source_is_read_again_before_an_entry_is_written() -> None:
    """What was listed may be old: no entry gets the state of another sequence than its own."""
    world = World(source=FakeSource(lag=1))
    key = world.has("a", 1, 2)
    world.source.change(key, Found(3, None, OLD))
    assert (await world.walked()).healed == 1
    assert world.entries.of(key) == Entry(3, None, None, healed=1)


async def test_a_young_difference_is_left_until_the_next_day_and_not_longer() -> None:
    world = World(now=NOON - timedelta(days=1))
    just_now = NOON - YOUNG + timedelta(seconds=1)
    keys = [world.has("a", 1, 2, changed=just_now), world.has("b", None, 1, changed=just_now)]
    assert (await world.walked()).healed == 0
    assert [world.sequence(key) for key in keys] == [1, None]
    assert (await world.walked()).healed == 2


async def test_an_entry_behind_a_block_is_marked_and_left_until_the_block_ends() -> None:
    world = World()
    key, unborn = world.has("a", 1, 3), world.has("b", None, 1)
    world.blocked = [key, unborn]
    assert (await world.walked()).blocked == 2
    assert (world.sequence(key), world.sequence(unborn), world.entries.marks) == (1, None, {key: world.now})
    world.blocked = []
    for sequence in (2, 3):
        await world.inbox.handle(event(sequence, key=key))
    assert world.entries.marks == {}
    assert (await world.walked()).healed == 1
    assert world.sequence(unborn) == 1


async def test_a_mark_goes_when_the_entry_is_right() -> None:
    """The events behind the block were discarded, and changed nothing."""
    world = World()
    key = world.has("a", 1, 2)
    world.blocked = [key]
    await world.walked()
    world.source.change(key, Found(1, (1,), OLD))
    world.blocked = []
    await world.walked()
    assert world.entries.marks == {key: None}


async def test_an_entry_that_changes_while_it_is_compared_gets_no_mark() -> None:
    world = World()
    key = world.has("a", 1, 3)
    world.blocked = [key]
    read = world.entries.read

    async def overtaken(wanted: AggregateKey) -> object:
        found = await read(wanted)
        world.entries.written[key].append(Entry(2, None, (1, 2)))
        return found

    world.entries.read = overtaken  # type: ignore[method-assign,assignment]  # another writer
    assert (await world.walked()).blocked == 1
    assert world.entries.marks == {}


async def test_an_entry_ahead_of_its_source_is_reported_and_left(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    key = world.has("a", 4, 2)
    assert await world.walked() == Counts(entries=1, sources=1, ahead=1)
    assert world.sequence(key) == 4
    assert "at sequence 4, ahead of its source at 2" in caplog.text


async def test_an_old_list_of_sources_is_no_report(caplog: pytest.LogCaptureFixture) -> None:
    world = World(source=FakeSource(lag=1))
    world.has("a", 4, 2)
    world.has("a", 4, 4)
    deleted = world.has("b", 3, 2)
    world.source.change(deleted, Found(3, None, OLD))
    world.entries.written[deleted] = [Entry(3, None, None)]
    assert await world.walked() == Counts(entries=1, sources=2)
    assert [record for record in caplog.records if record.levelno == logging.ERROR] == []


@pytest.mark.parametrize("sequence", [1, 3, 9])
async def test_an_id_used_again_after_its_deletion_is_reported_and_left(
    caplog: pytest.LogCaptureFixture, sequence: int
) -> None:
    """No event and no healing brings the entry back: without this nobody would know why no list shows it."""
    world = World()
    key = world.has("a", 3, sequence)
    deleted = Entry[State](3, None, None)
    world.entries.written[key] = [deleted]
    assert await world.walked() == Counts(sources=1, ahead=1)
    assert world.entries.of(key) == deleted
    [line] = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "thing a" in line
    assert "--source-wins" in line


@pytest.mark.parametrize("is_blocked", [False, True])
async def test_an_entry_of_another_form_is_rewritten_though_it_is_blocked(is_blocked: bool) -> None:
    world = World()
    key, behind = world.has("a", 3, 3), world.has("b", 1, 3)
    for each, sequence in ((key, 3), (behind, 1)):
        world.entries.written[each] = [
            Entry(sequence, f"{each.id}/{sequence}/Changed", None, other_form=True)
        ]
    world.blocked = [key, behind] if is_blocked else []
    counts = await world.walked()
    assert (counts.rewritten, counts.healed, counts.blocked) == ((1, 0, 1) if is_blocked else (1, 1, 0))
    assert world.entries.of(key) == Entry(3, "a/3/Changed", (1, 2, 3))


async def test_an_aggregate_that_cannot_be_compared_does_not_end_the_walk(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    damaged, healthy = world.has("a", 1, 3), world.has("b", 1, 3)
    put = world.entries.put

    async def broken(key: AggregateKey, *given: object, **named: object) -> str:
        if key == damaged:
            raise ZeroDivisionError(PERSONAL)
        return await put(key, *given, **named)  # type: ignore[arg-type]  # as they came

    world.entries.put = broken  # type: ignore[method-assign]  # a bug
    counts = await world.walked()
    assert (counts.failed, counts.healed, world.sequence(healthy)) == (1, 1, 3)
    assert "contoso" not in caplog.text
    world.entries.put = put  # type: ignore[method-assign]
    assert (await world.walked()).healed == 1, "the next walk comes back to it"


async def test_an_outage_of_the_source_ends_a_run_and_the_next_one_goes_on() -> None:
    world = World()
    keys = [world.has(str(number), 1, 2) for number in range(3 * MANY)]
    world.source.page_size = world.entries.page_size = MANY
    world.away = set(keys)
    with pytest.raises(StoreUnavailable):
        await world.walked()
    assert len(world.asked) == MANY, "one page alone"
    world.away = set(keys[:MANY])
    world.now += timedelta(hours=1)
    counts = await world.walked(days=0)
    assert (counts.healed, counts.failed) == (2 * MANY, MANY)
    world.away = set()
    assert (await world.walked()).healed == MANY


async def test_fewer_than_stand_for_all_do_not_end_a_run() -> None:
    world = World()
    keys = [world.has(str(number), 1, 2) for number in range(2 * MANY)]
    world.source.page_size = world.entries.page_size = MANY
    world.away = set(keys[1:MANY])
    assert (await world.walked()).failed == MANY - 1


async def test_a_daily_walk_lists_what_was_changed_since_the_one_before() -> None:
    world = await settled(*(str(number) for number in range(50)))
    listed = world.source.listed
    changed = world.has("3", 1, 2, changed=world.now - OVERLAP)
    new = world.has("new", None, 1, changed=world.now + timedelta(hours=12))
    assert await world.walked() == Counts(sources=2, healed=2)
    assert (world.sequence(changed), world.sequence(new), world.source.listed - listed) == (2, 1, 2)
    assert await world.walked() == Counts()


async def test_a_walk_is_due_once_a_day() -> None:
    world = await settled("a")
    world.has("a", 1, 2, changed=NOON)
    world.now += EVERY - timedelta(seconds=1)
    await world.healing.run(seconds=10)
    assert world.sequence(AggregateKey("thing", "a")) == 1
    world.now += timedelta(seconds=1)
    await world.healing.run(seconds=10)
    assert world.sequence(AggregateKey("thing", "a")) == 2


async def test_all_is_compared_every_sixty_days() -> None:
    world = await settled("a", "b")
    del world.entries.written[AggregateKey("thing", "a")]
    for _ in range(WHOLE_EVERY.days - 1):
        assert (await world.walked()).sources == 0
    assert (await world.walked()).healed == 1


async def test_what_a_walk_left_unsettled_is_looked_at_by_the_next_one() -> None:
    world = await settled("a", "b")
    key = world.has("a", 1, 2, changed=NOON)
    world.blocked = [key]
    assert await world.walked() == Counts(sources=1, blocked=1)
    assert await world.walked() == Counts(sources=1, blocked=1)
    world.blocked = []
    assert await world.walked() == Counts(sources=1, healed=1)
    assert await world.walked() == Counts()


@pytest.mark.parametrize("under_way", [False, True])
async def test_after_a_stop_in_which_tombstones_expired_all_is_compared(under_way: bool) -> None:
    world = await settled("a", "b", "c")
    gone = AggregateKey("thing", "a")
    if under_way:
        progress = await world.progress()
        cut_off = replace(progress, side=Side.SOURCES, position="2")
        await world.entries.save_progress(cut_off.document(), over=progress.version)
    world.source.change(gone, None)
    assert (await world.walked(days=LIFE.days / 2)).healed == 1
    entry = world.entries.of(gone)
    assert entry is not None
    assert entry.deleted


async def test_another_form_of_the_entries_begins_a_walk_over_all_at_once() -> None:
    world = await settled("a", "b")
    progress = await world.progress()
    cut_off = replace(progress, side=Side.ENTRIES, position="2")
    await world.entries.save_progress(cut_off.document(), over=progress.version)
    world.healing = replace(world.healing, form=1)
    assert await world.walked(days=0) == Counts(entries=2, sources=2)


async def test_where_sources_are_not_listed_each_walk_compares_every_entry() -> None:
    world = World()
    behind, gone = world.has("a", 1, 2), world.has("b", 1, None)
    world.healing = replace(world.healing, sources=None, gone_after=timedelta())
    assert await world.walked() == Counts(entries=2, healed=2, gone=1)
    assert world.sequence(behind) == 2
    assert (await world.walked()).entries == 1
    assert world.entries.of(gone) == Entry(1, None, None)


async def test_a_run_whose_time_is_over_goes_on_with_the_page_in_hand() -> None:
    world = World()
    keys = [world.has(str(number), 1, 2) for number in range(6)]

    async def ended(*_: object) -> object:
        raise TimeoutError

    listed = world.source.page

    async def two_pages(since: datetime | None, position: str | None) -> object:
        return await (ended() if position == "4" else listed(since, position))

    world.source.page = two_pages  # type: ignore[method-assign,assignment]  # the time is over
    await world.healing.run(seconds=10)
    progress = await world.progress()
    assert (progress.side, progress.position, progress.counts.healed) == (Side.SOURCES, "4", 4)
    world.source.page = listed  # type: ignore[method-assign]
    await world.healing.run(seconds=10)
    assert world.sequence(keys[5]) == 1, "another run may be at it"
    world.now += CLAIM
    assert (await world.walked(days=0)).healed == 6
    assert world.source.listed == 6


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", range(30))
async def test_a_walk_cut_off_at_any_call_heals_all_in_the_end(call: int, after: bool) -> None:
    """Whether the process dies there, or only the answer is lost."""
    faults = Faults({call: (Died, after)})
    world = World(entries=FakeEntries(faults), source=FakeSource(faults))
    keys = [world.has("a", 1, 3), world.has("b", None, 2), world.has("c", 2, None), world.has("d", 1, 1)]
    try:
        await world.healing.run(seconds=10)
    except Died:
        world.now += timedelta(hours=1)
        await world.healing.run(seconds=10)
    assert [world.sequence(key) for key in keys] == [3, 2, 2, 1]
    assert all(len(versions) <= 2 for versions in world.entries.written.values()), "nothing is written twice"
    assert (await world.progress()).side is None


async def test_a_run_that_another_one_has_overtaken_stops() -> None:
    world = World()
    keys = [world.has(str(number), 1, 2) for number in range(6)]
    page = world.source.page

    async def overtaken(since: datetime | None, position: str | None) -> object:
        found = await page(since, position)
        world.source.page = page  # type: ignore[method-assign]  # once
        await world.healing.rebuild(lambda _: None)
        return found

    world.source.page = overtaken  # type: ignore[method-assign,assignment]  # an operator
    await world.healing.run(seconds=10)
    progress = await world.progress()
    assert (progress.side, progress.last_counts) == (None, Counts(entries=6, sources=6, healed=6))
    assert [world.sequence(key) for key in keys] == [2] * 6


@pytest.mark.parametrize(
    ("entry", "source", "level"),
    [(1, 3, logging.WARNING), (3, 1, logging.WARNING), (2, 2, logging.INFO)],
    ids=["healed", "ahead", "right"],
)
async def test_the_end_of_a_walk_is_a_warning_if_there_is_something_to_look_at(
    entry: int, source: int, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world = World()
    world.has("a", entry, source)
    await world.walked()
    [logged] = [record.levelno for record in caplog.records if "a walk has ended" in record.getMessage()]
    assert logged == level


async def test_a_rebuild_heals_what_is_young_and_blocked() -> None:
    world = World()
    keys = [world.has("a", 1, 2, changed=NOON), world.has("b", None, 1)]
    world.blocked = [keys[1]]
    assert await world.rebuilt() == Counts(entries=2, sources=2, healed=2)
    assert [world.sequence(key) for key in keys] == [2, 1]


async def test_what_the_subscriber_applies_during_a_rebuild_is_not_taken_back() -> None:
    world = World()
    key = world.has("a", 1, 2)
    read = world.source.newest

    async def slow(wanted: AggregateKey) -> Found[State] | None:
        found = await read(wanted)
        world.source.newest = read  # type: ignore[method-assign]  # once
        for sequence in (2, 3):
            await world.inbox.handle(event(sequence, key=key))
        return found

    world.source.newest = slow  # type: ignore[method-assign,assignment]  # the subscriber is faster than this read
    await world.rebuilt()
    assert world.entries.of(key) == Entry(3, "a/3/Changed", (1, 2, 3))


@pytest.mark.parametrize(("hours", "goes_on"), [(1, True), (24, True), (25, False)])
async def test_a_rebuild_that_was_cut_off_goes_on_within_a_day(hours: int, goes_on: bool) -> None:
    world = World()
    first, second = world.has("a", 1, 2), world.has("b", 1, 2)
    world.source.page_size = 1
    began = NOON - timedelta(hours=hours)
    cut_off = WalkProgress(began, 0, side=Side.SOURCES, position="1", on_demand=True)
    await world.entries.save_progress(cut_off.document(), over=None)
    await world.rebuilt()
    assert (world.sequence(first), world.sequence(second)) == (1 if goes_on else 2, 2)


async def test_a_daily_walk_under_way_does_not_count_for_a_rebuild() -> None:
    world = World()
    young = world.has("a", 1, 2, changed=NOON)
    cut_off = WalkProgress(NOON, 0, side=Side.ENTRIES, claimed_until=NOON + CLAIM)
    await world.entries.save_progress(cut_off.document(), over=None)
    assert (await world.rebuilt()).healed == 1
    assert world.sequence(young) == 2


async def test_the_timer_goes_on_with_a_rebuild_that_was_cut_off() -> None:
    world = World()
    young = world.has("a", 1, 2, changed=NOON)
    world.blocked = [young]
    await world.entries.save_progress(
        WalkProgress(NOON, 0, side=Side.SOURCES, on_demand=True).document(), over=None
    )
    assert (await world.walked(days=0)).healed == 1


async def test_where_the_source_wins_entries_go_back_come_back_and_go_away() -> None:
    world = World()
    ahead, gone, deleted = world.has("a", 5, 2), world.has("b", 2, None), world.has("c", None, 1)
    same, buried = world.has("d", 2, 2), world.has("e", None, None)
    world.source.change(buried, Found(4, None, OLD))
    world.entries.written[deleted] = [Entry(3, "c/3/Deleted", None)]
    world.entries.written[ahead] = [Entry(5, "a/5/Changed", (1, 2, 3, 4, 5), healed=2)]
    cut_off = WalkProgress(NOON, 0, side=Side.ENTRIES, position="2", on_demand=True)
    await world.entries.save_progress(cut_off.document(), over=None)
    assert (await world.rebuilt(source_wins=True)).healed == 3, (
        "one that was cut off may be of another restore"
    )
    assert [world.sequence(key) for key in (ahead, gone, deleted, same, buried)] == [2, None, 1, 2, None]
    assert world.entries.of(ahead) == Entry(2, None, (1, 2), healed=2)
    assert (await world.rebuilt(source_wins=True)).healed == 0
    await world.inbox.handle(event(3, key=ahead))
    assert world.entries.of(ahead) == Entry(3, "a/3/Changed", (1, 2, 3), healed=2)


async def test_where_the_source_wins_entries_of_another_form_are_written() -> None:
    world = World()
    key, deleted = world.has("a", 3, 3), world.has("b", 3, 3)
    world.source.change(deleted, Found(3, None, OLD))
    for each in (key, deleted):
        world.entries.written[each] = [Entry(3, f"{each.id}/3/Changed", None, other_form=True)]
    assert (await world.rebuilt(source_wins=True)).healed == 2
    assert (world.entries.of(key), world.entries.of(deleted)) == (
        Entry(3, None, (1, 2, 3)),
        Entry(3, None, None),
    )


def test_the_progress_is_read_as_it_was_written() -> None:
    progress = WalkProgress(
        NOON, 3, Side.ENTRIES, "token", NOON - OVERLAP, True, NOON - LIFE, Counts(sources=2), Counts(healed=1), OLD,
        NOON,
    )  # fmt: skip
    assert WalkProgress.of(progress.document(), "7") == replace(progress, version="7")

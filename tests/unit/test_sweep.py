"""What a sweep heals, what it leaves, and that it goes on where a run has ended."""

import logging
import math
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from cosmos_outbox.inbox.decision import Because
from cosmos_outbox.inbox.entry import Entry, Found
from cosmos_outbox.inbox.errors import EntryChanged, StoreAway
from cosmos_outbox.inbox.progress import Counts, Result, Seen, SeenPage, Side, WalkProgress
from cosmos_outbox.inbox.state import StateInbox
from cosmos_outbox.inbox.sweep import YOUNG, Sweep
from cosmos_outbox.inbox.walk import MANY, Leg, Walk
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from tests.support.inbox import NOON, FakeEntries, FakeSource, event, project

State = tuple[int, ...]
OLD = NOON - timedelta(hours=1)
PAGE = 2


@dataclass
class FakeLists:
    """Lists what the fakes hold, two a page."""

    inbox_entries: FakeEntries[State]
    source: FakeSource[State]
    saved: WalkProgress | None = None
    blocked_since: dict[AggregateKey, datetime | None] = field(default_factory=dict)
    pages: int = 0
    listed: int = 0
    saves: int = 0
    reads: int = 0
    form: int = 0
    clock: Callable[[], datetime] = lambda: NOON
    """Of the store."""

    async def entries(self, position: str | None) -> SeenPage:
        found = {key: versions[-1] for key, versions in self.inbox_entries.written.items()}
        return self._page(
            [
                Seen(
                    key,
                    entry.last_sequence,
                    False,
                    OLD,
                    self.blocked_since.get(key),
                    entry.healed,
                    entry.other_form,
                )
                for key, entry in found.items()
                if not entry.deleted
            ],
            position,
        )

    async def sources(self, position: str | None) -> SeenPage:
        return self._page(self._sources(), position)

    async def list_changed(self, since: datetime, until: datetime, position: str | None) -> SeenPage:
        seen = self._sources()
        return self._page(
            [each for each in seen if each.changed_at and since <= each.changed_at < until], position
        )

    def _sources(self) -> list[Seen]:
        found = {key: changes[-1] for key, changes in self.source.changes.items()}
        return [
            Seen(key, source.sequence, source.state is None, source.changed_at or OLD)
            for key, source in found.items()
            if source is not None
        ]

    def _page(self, items: list[Seen], position: str | None) -> SeenPage:
        self.pages += 1
        first = int(position or 0)
        page = items[first : first + PAGE]
        self.listed += len(page)
        return SeenPage(page, str(first + PAGE) if first + PAGE < len(items) else None)

    async def mark(self, key: AggregateKey, version: str, since: datetime | None) -> None:
        self.blocked_since[key] = since

    async def progress(self) -> WalkProgress | None:
        self.reads += 1
        return None if self.saved is None else replace(self.saved, as_of=self.clock())

    async def save(self, progress: WalkProgress) -> WalkProgress:
        if self.saved is not None and progress.version != self.saved.version:
            raise EntryChanged("somebody else")
        self.saves += 1
        written = replace(progress, version=str(self.saves))
        self.saved = replace(written, as_of=None, ended=False)
        return written


@dataclass
class World:
    """An inbox with its store and source, swept at noon unless the time is moved."""

    entries: FakeEntries[State] = field(default_factory=FakeEntries)
    source: FakeSource[State] = field(default_factory=FakeSource)
    blocked: Collection[AggregateKey] = ()
    now: datetime = NOON
    asked: int = 0
    """How often it was asked what is blocked."""

    def __post_init__(self) -> None:
        self.inbox = StateInbox(self.entries, self.source, project, lambda: self.now)
        self.lists = FakeLists(self.entries, self.source, clock=lambda: self.now)
        self.changes = FakeLists(
            self.entries, self.source, blocked_since=self.lists.blocked_since, clock=lambda: self.now
        )
        self.sweep = Sweep(self.inbox, self.lists, self.changes, self._blocked, timedelta(days=10))

    async def _blocked(self) -> Collection[AggregateKey]:
        self.asked += 1
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

    async def go_on(self) -> WalkProgress:
        """With the whole round, which is due."""
        return await self.sweep.round(await self.lists.progress(), seconds=10)

    async def swept(self) -> Counts:
        """What a whole round finds."""
        progress = await self.go_on()
        assert progress.last_counts is not None
        return progress.last_counts

    async def looked(self) -> Counts:
        """What a look at what was changed finds."""
        progress = await self.sweep.look(await self.changes.progress(), seconds=10)
        assert progress.last_counts is not None
        return progress.last_counts


async def test_an_entry_that_is_behind_and_one_that_is_missing_are_healed() -> None:
    world = World()
    right, behind, missing = world.has("a", 2, 2), world.has("b", 1, 3), world.has("c", None, 1)
    assert await world.swept() == Counts(entries=2, sources=3, healed=2)
    assert [world.sequence(key) for key in (right, behind, missing)] == [2, 3, 1]
    assert world.inbox.counts[Because.SWEEP] == 2
    assert await world.swept() == Counts(entries=3, sources=3, healed_ever=2)


@pytest.mark.parametrize("sequence", [1, 3, 9])
async def test_an_id_that_is_used_again_while_its_entry_is_a_deleted_one_is_told_by_name_and_left(
    caplog: pytest.LogCaptureFixture, sequence: int
) -> None:
    """No event and no healing brings the entry back: without this nobody would know why no list shows it."""
    world = World()
    key = world.has("a", 3, sequence)
    deleted = Entry[State](3, None, None)
    world.entries.written[key] = [deleted]
    assert await world.swept() == Counts(sources=1, ahead=1)
    assert world.entries.of(key) == deleted
    [line] = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert "thing a" in line
    assert "used again" in line
    assert "--source-wins" in line


async def test_a_list_that_shows_a_deleted_source_as_it_was_is_no_id_that_is_used_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The list may come from a replica that lags; only a read behind a fence counts."""
    world = World()
    key = world.has("a", 3, 2)
    world.entries.written[key] = [Entry(3, None, None)]
    listed = await world.lists.sources(None)

    async def lagging(position: str | None) -> SeenPage:
        return listed

    world.lists.sources = lagging  # type: ignore[method-assign]  # a replica that lags
    for newest in (Found[State](3, None, OLD), None):
        world.source.change(key, newest)
        assert await world.swept() == Counts(sources=1)
    assert [record for record in caplog.records if record.levelno == logging.ERROR] == []


async def test_an_entry_whose_source_is_gone_or_deleted_becomes_a_deleted_one() -> None:
    world = World()
    gone, deleted = world.has("a", 2, None), world.has("b", 2, 2)
    world.source.change(deleted, Found(3, None, OLD))
    assert (await world.swept()).healed == 2
    for key in (gone, deleted):
        entry = world.entries.of(key)
        assert entry is not None
        assert entry.deleted


async def test_a_difference_that_is_young_is_left_to_its_event() -> None:
    world = World()
    just_now = NOON - YOUNG + timedelta(seconds=1)
    keys = [world.has("a", 1, 2, changed=just_now), world.has("b", None, 1, changed=just_now)]
    assert (await world.swept()).healed == 0
    assert [world.sequence(key) for key in keys] == [1, None]


async def test_an_entry_behind_a_block_is_marked_and_left_and_the_mark_goes_with_the_block() -> None:
    world = World()
    key, unborn = world.has("a", 1, 3), world.has("b", None, 1)
    world.blocked = [key, unborn]
    assert (await world.swept()).blocked == 2
    assert (world.sequence(key), world.sequence(unborn), world.lists.blocked_since) == (1, None, {key: NOON})
    world.blocked = []
    for sequence in (2, 3):
        await world.inbox.handle(event(sequence, key=key))
    await world.swept()
    assert world.lists.blocked_since == {key: None}
    assert world.sequence(unborn) == 1


async def test_an_entry_ahead_of_its_source_is_reported_and_left(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    key = world.has("a", 4, 2)
    assert (await world.swept()).ahead == 1
    assert world.sequence(key) == 4
    assert "ahead of its source, 4 to 2" in caplog.text


async def test_an_old_read_of_the_source_is_no_report() -> None:
    world = World()
    world.has("a", 4, 2)
    world.has("a", 4, 4)
    world.source.lag = 1
    assert (await world.swept()).ahead == 0


async def test_a_source_that_an_old_read_shows_and_that_is_gone_since_makes_a_deleted_entry() -> None:
    world = World(source=FakeSource(lag=1))
    key = world.has("a", 3, 2)
    world.source.change(key, None)
    assert (await world.swept()).healed == 1
    entry = world.entries.of(key)
    assert entry is not None
    assert entry.deleted


async def test_one_aggregate_that_cannot_be_compared_does_not_end_the_sweep(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.has("a", 1, 3)
    healthy = world.has("b", 1, 3)
    read = world.source.read

    async def broken(key: AggregateKey) -> Found[State] | None:
        if key.id == "a":
            raise ZeroDivisionError("johndoe@contoso.com")
        return await read(key)

    world.source.read = broken  # type: ignore[method-assign]  # a damaged document
    counts = await world.swept()
    assert (counts.failed, counts.healed, world.sequence(healthy)) == (1, 1, 3)
    assert "contoso" not in caplog.text


@dataclass
class Troubled:
    """Makes the source unanswered for some aggregates, for so many reads of each, and counts the reads."""

    world: World
    names: Collection[str]
    times: float = math.inf
    reads: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._read = self.world.source.read
        self.world.source.read = self.read  # type: ignore[method-assign]  # a fault

    async def read(self, key: AggregateKey) -> Found[State] | None:
        self.reads[key.id] += 1
        if key.id in self.names and self.reads[key.id] <= self.times:
            raise StoreAway("its partition is throttled")
        return await self._read(key)


async def test_one_aggregate_whose_store_is_away_does_not_keep_the_sweep_from_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    keys = [world.has(name, 1, 3) for name in "abcdef"]
    troubled = Troubled(world, {"b"})
    counts = await world.swept()
    assert [world.sequence(key) for key in keys] == [3, 1, 3, 3, 3, 3]
    assert (counts.healed, counts.failed, troubled.reads["b"]) == (5, 1, 1)
    assert (
        "leaves 1 of 2 entries to its next round, the first is thing b: its partition is throttled"
        in caplog.text
    )
    troubled.names = ()
    assert (await world.swept()).healed == 1, "the next round comes back to it"


async def test_a_page_of_which_one_was_answered_is_gone_past(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the walk would end there for ever, and nothing else would be swept."""
    monkeypatch.setattr("tests.unit.test_sweep.PAGE", MANY)
    world = World()
    keys = [world.has(f"{number:03}", 1, 3) for number in range(60)]
    Troubled(world, {key.id for key in keys[20:39]})
    for _ in range(2):
        world.entries.written[keys[59]] = [Entry(1, None, (1,))]
        assert (await world.swept()).failed == 19
        assert [world.sequence(key) for key in keys] == [3] * 20 + [1] * 19 + [3] * 21


async def test_a_store_that_is_away_for_all_is_left_alone_and_the_sweep_goes_on_from_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.unit.test_sweep.PAGE", MANY)
    world = World()
    keys = [world.has(f"{number}", 1, 2) for number in range(100)]
    troubled = Troubled(world, {key.id for key in keys[MANY - 1 :]})
    with pytest.raises(StoreAway, match="its partition is throttled"):
        await world.go_on()
    asked = sum(count for name, count in troubled.reads.items() if name in troubled.names)
    assert asked == 1 + MANY, "one of the page that was gone past, and the next one"
    assert world.lists.saved is not None
    assert (world.lists.saved.side, world.lists.saved.counts.failed) == (Side.ENTRIES, 1)
    troubled.names = ()
    counts = await world.swept()
    assert (counts.entries, counts.sources, counts.failed) == (100, 100, 1)
    await world.swept()
    assert [world.sequence(key) for key in keys] == [2] * 100


@pytest.mark.parametrize("sick_page", [0, 1])
async def test_a_page_that_stays_away_holds_the_sweep_for_half_an_hour_at_most(
    sick_page: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first page of a first round too: nothing of a page that ends a run is saved."""
    monkeypatch.setattr("tests.unit.test_sweep.PAGE", MANY)
    world, size = World(), MANY
    keys = [world.has(f"{number:03}", 1, 3) for number in range(3 * size)]
    row = keys[sick_page * size : (sick_page + 1) * size]
    troubled = Troubled(world, {key.id for key in row})
    failed_runs = 0
    while world.lists.saved is None or world.lists.saved.last_counts is None:
        troubled.reads.clear()
        try:
            await world.go_on()
        except StoreAway:
            failed_runs += 1
            assert failed_runs <= 3, "the sweep cannot get past the page"
            world.now += timedelta(minutes=10)
    assert failed_runs == 3, "at 0, 10 and 20 minutes: a store that is away for all is left alone"
    assert world.lists.saved.last_counts.failed == size
    assert [world.sequence(key) for key in keys if key not in row] == [3] * 2 * size
    assert f"leaves 20 of 20 entries to its next round, the first is {row[0]}" in caplog.text


async def test_fewer_that_stay_away_than_stand_for_all_do_not_hold_the_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What earlier looks left is a page of its own, of those that are troubled alone."""
    monkeypatch.setattr("tests.unit.test_sweep.PAGE", MANY - 1)
    world = World()
    keys = [world.has(f"{number:03}", 1, 3) for number in range(2 * (MANY - 1))]
    Troubled(world, {key.id for key in keys[: MANY - 1]})
    assert (await world.swept()).failed == MANY - 1
    assert [world.sequence(key) for key in keys] == [1] * (MANY - 1) + [3] * (MANY - 1)


async def test_a_page_is_saved_anew_so_the_next_one_that_stays_away_has_its_half_an_hour_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In an outage of hours, few pages are left to the next round."""
    monkeypatch.setattr("tests.unit.test_sweep.PAGE", MANY)
    world = World()
    keys = [world.has(f"{number:03}", 1, 3) for number in range(10 * MANY)]
    Troubled(world, {key.id for key in keys})
    for _ in range(2 * 6):  # two hours
        with pytest.raises(StoreAway):
            await world.go_on()
        world.now += timedelta(minutes=10)
    assert world.lists.saved is not None
    assert world.lists.saved.counts.failed == 3 * MANY


async def test_a_sweep_beside_another_stops() -> None:
    world = World()
    for number in range(6):
        world.has(str(number), 1, 1)
    world.lists.saved = WalkProgress(NOON, version="1")
    stale = WalkProgress(NOON, version="0")  # a replica that lags
    await world.sweep.round(stale, seconds=10)
    assert world.lists.saves == 0


async def test_a_sweep_tells_what_it_found(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World()
    world.has("a", 1, 3)
    await world.swept()
    assert "a sweep has ended: entries 1, sources 1, healed 1, blocked 0, ahead 0, failed 0" in caplog.text


@pytest.mark.parametrize(
    ("entry", "source", "level"),
    [(1, 3, logging.WARNING), (3, 1, logging.WARNING), (2, 2, logging.INFO)],
    ids=["healed", "ahead", "right"],
)
async def test_the_end_of_a_sweep_is_a_warning_only_if_there_is_something_to_look_at(
    entry: int, source: int, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world = World()
    world.has("a", entry, source)
    await world.swept()
    [told] = [record.levelno for record in caplog.records if "a sweep has ended" in record.getMessage()]
    assert told == level


async def test_a_sweep_over_nothing_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert await World().swept() == Counts()
    assert "has ended" not in caplog.text


async def test_in_a_round_an_entry_that_is_right_costs_one_read_of_its_source_and_none_behind_a_fence() -> (
    None
):
    world = World()
    world.has("a", 2, 2)
    assert await world.swept() == Counts(entries=1, sources=1)
    assert (world.source.reads, world.source.fences) == (1, 0)


async def test_an_entry_that_moves_while_it_is_compared_gets_no_mark() -> None:
    world = World()
    moved, removed = world.has("a", 1, 3), world.has("b", 1, 3)
    world.blocked = [moved, removed]
    read = world.source.read

    async def meanwhile(key: AggregateKey) -> Found[State] | None:
        found = await read(key)
        if key == moved:
            world.entries.written[key].append(Entry(2, None, (1, 2)))
        else:
            del world.entries.written[key]
        return found

    world.source.read = meanwhile  # type: ignore[method-assign]  # another writer
    counts = await world.swept()
    assert (counts.blocked, counts.failed, world.lists.blocked_since) == (3, 0, {})


async def test_a_sweep_that_could_not_compare_all_ends_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.has("a", 2, 2)
    Troubled(world, {"a"})
    await world.swept()
    [told] = [record.levelno for record in caplog.records if "a sweep has ended" in record.getMessage()]
    assert told == logging.WARNING


async def test_a_round_begins_when_it_begins_however_long_ago_the_last_one_ended() -> None:
    world = World()
    world.has("a", 1, 1)
    world.lists.saved = WalkProgress(NOON - timedelta(days=9), last_counts=Counts(), version="7")
    began: list[datetime] = []
    legs = {Side.ENTRIES: Leg(lambda at: world.lists.entries(at.position), _right)}
    walk = Walk("w", world.lists, legs, lambda: NOON, lambda progress: began.append(progress.began_at))
    await walk.run(world.lists.saved, seconds=5)
    assert set(began) == {NOON}


async def _right(_: Seen) -> Result:
    return Result.RIGHT

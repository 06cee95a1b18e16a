"""A sweep looks at what was changed since the last look, and at all only where that is due, whoever sweeps."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from cosmos_outbox.inbox.entry import Entry, Found
from cosmos_outbox.inbox.errors import StoreAway
from cosmos_outbox.inbox.progress import MOST_LEFT, Counts, Side, WalkProgress
from cosmos_outbox.inbox.sweep import LOOK_EVERY, ROUND_AGAIN, ROUND_EVERY, YOUNG
from cosmos_outbox.inbox.walk import CLAIM_MARGIN
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from tests.support.inbox import NOON, event
from tests.unit.test_sweep import Troubled, World

TICK = timedelta(minutes=10)
DAY = timedelta(days=1)


async def ticked(world: World, ticks: int = 1) -> None:
    """What the timers do, every ten minutes."""
    for _ in range(ticks):
        world.now += TICK
        await world.sweep.run(seconds=10)


async def started(*names: str) -> World:
    """A world whose first round is over, and which is at rest; what it did so far is not counted."""
    world = World()
    for name in names:
        world.has(name, 1, 1, changed=NOON - 30 * DAY)
    await world.sweep.run(seconds=10)
    await ticked(world, 3)
    world.entries.reads = world.source.reads = world.source.fences = world.asked = 0
    for lists in (world.lists, world.changes):
        lists.pages = lists.listed = lists.saves = lists.reads = 0
    return world


def changed(world: World, key: AggregateKey, sequence: int, *, deleted: bool = False) -> None:
    state = None if deleted else tuple(range(1, sequence + 1))
    world.source.change(key, Found(sequence, state, world.now))


KEY = AggregateKey("thing", "a")


@pytest.mark.parametrize("aggregates", [2, 60])
async def test_at_rest_a_sweep_costs_the_same_whatever_the_number_of_aggregates(aggregates: int) -> None:
    world = await started(*map(str, range(aggregates)))
    await ticked(world, 6)
    assert (world.entries.reads, world.source.reads, world.source.fences) == (0, 0, 0)
    assert (world.changes.reads, world.changes.pages, world.changes.saves, world.changes.listed) == (
        6,
        6,
        12,
        0,
    )
    assert (world.lists.reads, world.lists.pages, world.lists.saves) == (6, 0, 0)
    assert world.asked == 6


async def test_a_change_of_which_no_event_came_is_healed_after_ten_minutes_and_compared_once() -> None:
    world = await started("a", "b")
    changed(world, KEY, 2)
    await world.sweep.run(seconds=10)
    assert world.sequence(KEY) == 1, "its event is on its way"
    await ticked(world, 2)
    assert world.sequence(KEY) == 2
    await ticked(world, 6)
    assert world.changes.listed == 1


async def test_what_a_look_has_left_and_is_gone_meanwhile_is_asked_for_once() -> None:
    world = await started("a")
    unborn = AggregateKey("thing", "unborn")
    changed(world, unborn, 1)
    world.blocked = [unborn]
    await ticked(world, 2)
    world.blocked = []
    world.source.change(unborn, None)
    world.source.reads = world.source.fences = 0
    await ticked(world, 2)
    assert (world.source.reads, world.source.fences, world.sequence(unborn)) == (1, 0, None)


@pytest.mark.parametrize("seconds", range(0, 1200, 97))
async def test_a_change_at_whatever_second_is_looked_at(seconds: int) -> None:
    world = await started("a")
    world.now += timedelta(seconds=seconds)
    changed(world, KEY, 2)
    world.now += timedelta(seconds=7)
    await ticked(world, 3)
    assert (world.sequence(KEY), world.changes.listed) == (2, 1)


async def test_an_applied_change_costs_one_read_and_an_only_event_that_was_lost_is_found() -> None:
    world = await started("a")
    new = AggregateKey("thing", "new")
    changed(world, KEY, 2)
    changed(world, new, 1)
    await world.inbox.handle(event(2))  # of another
    await world.inbox.handle(event(2, key=KEY))
    world.entries.reads = 0
    await ticked(world, 3)
    assert (world.entries.reads, world.source.reads) == (3, 0), "one of each, and one to heal"
    assert world.sequence(new) == 1


async def test_a_lost_deletion_is_seen_by_the_tombstone() -> None:
    world = await started("a")
    changed(world, KEY, 2, deleted=True)
    await ticked(world, 2)
    entry = world.entries.of(KEY)
    assert entry == Entry(2, None, None, healed=1)
    await ticked(world, 2)
    assert len(world.entries.written[KEY]) == 2


async def test_an_aggregate_that_is_blocked_is_remembered_and_costs_nothing_until_its_block_ends() -> None:
    world = await started("a", "b")
    unborn = AggregateKey("thing", "unborn")
    changed(world, KEY, 2)
    changed(world, unborn, 1)
    world.blocked = [KEY, unborn]
    await ticked(world, 2)
    assert world.lists.blocked_since == {KEY: world.now}
    assert (world.sequence(KEY), world.sequence(unborn)) == (1, None)
    world.entries.reads = world.source.reads = 0
    await ticked(world, 12)
    assert (world.entries.reads, world.source.reads) == (0, 0)
    world.blocked = []
    await ticked(world)
    assert (world.sequence(KEY), world.sequence(unborn)) == (2, 1), "what was replayed was lost too"
    world.source.reads = 0
    await ticked(world, 3)
    assert world.source.reads == 0
    assert world.changes.saved is not None
    assert world.changes.saved.left == ()


async def test_what_cannot_be_settled_is_looked_at_again_by_the_next_look() -> None:
    world = await started("a", "b")
    changed(world, KEY, 2)
    troubled = Troubled(world, {"a"})
    await ticked(world, 3)
    assert world.sequence(KEY) == 1
    troubled.names = ()
    await ticked(world)
    assert world.sequence(KEY) == 2


async def test_of_more_than_can_be_remembered_none_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.test_sweep.PAGE", 100)
    world = await started()
    keys = [AggregateKey("thing", f"{number:04}") for number in range(MOST_LEFT + 50)]
    for key in keys:
        world.now += timedelta(seconds=1)
        changed(world, key, 1)
    world.blocked = keys
    await ticked(world, 5)
    assert world.changes.saved is not None
    assert len(world.changes.saved.left) == MOST_LEFT
    world.blocked = []
    await ticked(world)
    assert [world.sequence(key) for key in keys] == [1] * len(keys)
    await ticked(world)
    assert (world.changes.saved.left, world.changes.saved.stands_at) == ((), None)
    assert world.changes.saved.since == world.now - YOUNG


async def test_a_clock_of_the_store_that_goes_back_hides_no_change() -> None:
    world = await started("a")
    await ticked(world, 6)
    world.now -= timedelta(minutes=9)
    changed(world, KEY, 2)
    world.now += timedelta(minutes=9)
    await ticked(world, 3)
    assert world.sequence(KEY) == 2


@pytest.mark.parametrize("hours", [-3, 3])
async def test_what_is_young_is_told_by_the_stores_clock_not_by_ours(hours: int) -> None:
    world = World()
    world.has("a", 1, 1, changed=NOON - DAY)
    world.sweep = replace(
        world.sweep, inbox=replace(world.inbox, clock=lambda: world.now + timedelta(hours=hours))
    )
    await world.sweep.run(seconds=10)
    await ticked(world, 2)
    changed(world, KEY, 2)
    await world.sweep.run(seconds=10)
    assert world.sequence(KEY) == 1
    await ticked(world, 2)
    assert world.sequence(KEY) == 2


async def test_several_workers_share_one_look_and_one_round() -> None:
    world = World()
    for number in range(20):
        world.has(str(number), 1, 1, changed=NOON - 30 * DAY)
    for _ in range(12):
        world.now += TICK
        for _ in range(4):
            world.now += timedelta(seconds=5)
            await world.sweep.run(seconds=10)
    assert world.lists.listed == 40, "one round"
    assert world.changes.pages == 12, "one look a tick"


async def test_while_a_worker_is_at_it_the_others_do_nothing_and_when_it_has_died_another_goes_on() -> None:
    world = await started("a", "b", "c", "d")
    claim = world.now + timedelta(seconds=10) + CLAIM_MARGIN
    assert world.changes.saved is not None
    world.changes.saved = replace(
        world.changes.saved,
        side=Side.CHANGED,
        until=world.now - YOUNG + timedelta(minutes=5),
        claimed_until=claim,
    )
    world.lists.saved = replace(
        world.lists.saved or WalkProgress(NOON), side=Side.SOURCES, position="2", claimed_until=claim
    )
    await world.sweep.run(seconds=10)
    assert (world.changes.pages, world.lists.pages) == (0, 0)
    await ticked(world)
    assert (world.changes.pages, world.lists.pages) == (1, 1), "from where it was"


async def test_a_round_over_all_is_rare() -> None:
    world = await started("a", "b")
    began = world.now
    while not world.lists.pages:
        world.now += timedelta(hours=6)
        await world.sweep.run(seconds=10)
    assert abs(world.now - began - ROUND_EVERY) < DAY


async def test_where_nothing_tells_what_was_changed_all_is_compared_each_day() -> None:
    world = World()
    world.sweep = replace(world.sweep, changes=None)
    for name in "ab":
        world.has(name, 1, 1, changed=NOON - 30 * DAY)
    await world.sweep.run(seconds=10)
    world.lists.pages = 0
    changed(world, KEY, 2)
    await ticked(world, int(DAY / TICK) - 1)
    assert (world.lists.pages, world.sequence(KEY)) == (0, 1)
    await ticked(world, 2)
    assert (world.lists.pages, world.sequence(KEY)) == (2, 2)
    assert (world.changes.reads, world.changes.pages) == (0, 0)


async def test_a_round_that_could_not_settle_all_is_repeated_the_next_day() -> None:
    world = await started("a", "b")
    assert world.lists.saved is not None
    world.lists.saved = replace(world.lists.saved, last_counts=Counts(entries=2, failed=1))
    await ticked(world, int(ROUND_AGAIN / TICK) - 4)
    assert world.lists.pages == 0
    await ticked(world, 8)
    assert world.lists.pages == 2


async def test_another_form_of_the_entries_begins_a_round_at_once_and_writes_them_again() -> None:
    world = await started("a", "b", "c")
    for versions in world.entries.written.values():
        versions[-1] = Entry(1, "its event", None, other_form=True)
    world.lists.form = world.changes.form = 2
    await ticked(world)
    assert world.lists.saved is not None
    assert world.lists.saved.last_counts == Counts(entries=3, sources=3, rewritten=3)
    assert {world.entries.of(key) for key in world.entries.written} == {Entry(1, "its event", (1,))}
    world.lists.pages = 0
    await ticked(world)
    assert world.lists.pages == 0


async def test_a_round_in_another_form_that_was_cut_off_begins_anew() -> None:
    world = await started("a", "b", "c")
    assert world.lists.saved is not None
    world.lists.saved = WalkProgress(NOON, Side.SOURCES, "2", version=world.lists.saved.version)
    for versions in world.entries.written.values():
        versions[-1] = Entry(1, None, None, other_form=True)
    world.lists.form = 2
    await ticked(world)
    assert all(world.entries.of(key) == Entry(1, None, (1,)) for key in world.entries.written)


async def test_an_entry_of_another_form_is_written_again_though_its_aggregate_is_blocked() -> None:
    world = await started("a")
    world.entries.written[KEY] = [Entry(1, None, None, other_form=True)]
    world.blocked = [KEY]
    assert (await world.swept()).rewritten == 1
    assert world.entries.of(KEY) == Entry(1, None, (1,))


async def test_a_changed_source_with_an_entry_of_another_form_rewrites_it() -> None:
    """As an instance of the version before leaves it, which was still at work when the round passed."""
    world = await started("a")
    changed(world, KEY, 2)
    world.entries.written[KEY] = [Entry(2, "its event", None, other_form=True)]
    await ticked(world, 2)
    assert world.entries.of(KEY) == Entry(2, "its event", (1, 2))


@pytest.mark.parametrize("fails_first", [False, True])
async def test_after_a_stop_in_which_tombstones_expired_all_is_compared(fails_first: bool) -> None:
    """A crash between the beginning of the round and the look, or after the look, forgets neither."""
    world = await started("a", "b")
    world.now += 11 * DAY
    world.source.change(KEY, None)  # deleted, and its tombstone expired
    if fails_first:
        ask = world.sweep.blocked

        async def away() -> list[AggregateKey]:
            raise StoreAway("for all")

        world.sweep = replace(world.sweep, blocked=away)
        with pytest.raises(StoreAway):
            await world.sweep.run(seconds=10)
        world.sweep = replace(world.sweep, blocked=ask)
    await ticked(world)
    entry = world.entries.of(KEY)
    assert entry is not None
    assert entry.deleted
    world.lists.pages = 0
    await ticked(world, 3)
    assert world.lists.pages == 0


async def test_after_a_shorter_stop_the_changes_are_enough() -> None:
    world = await started("a", "b")
    world.now += 9 * DAY
    changed(world, KEY, 2)
    world.now += timedelta(hours=1)
    await ticked(world, 2)
    assert (world.sequence(KEY), world.lists.pages) == (2, 0)


async def test_a_look_that_a_stop_cuts_off_goes_on_with_the_same_time() -> None:
    world = await started(*map(str, range(6)))
    for number in range(6):
        changed(world, AggregateKey("thing", str(number)), 2)
    world.now += YOUNG + timedelta(seconds=1)
    save, saves = world.changes.save, 0

    async def dies(progress: WalkProgress) -> WalkProgress:
        nonlocal saves
        saves += 1
        if saves == 3:
            raise StoreAway("the process is gone")
        return await save(progress)

    world.changes.save = dies  # type: ignore[method-assign]
    with pytest.raises(StoreAway):
        await world.sweep.run(seconds=10)
    world.changes.save = save  # type: ignore[method-assign]
    late: datetime = world.now
    await ticked(world)
    assert world.changes.saved is not None
    assert world.changes.saved.last_counts is not None
    assert world.changes.saved.last_counts.sources == 6
    assert world.changes.saved.since == late - YOUNG, "what came after is for the next look"
    assert all(world.sequence(key) == 2 for key in world.entries.written)


def test_a_timer_of_ten_minutes_finds_a_look_due_each_time() -> None:
    assert LOOK_EVERY < TICK

"""A sweep beside others: what another worker has in hand is left to it, and no time is taken that is not given."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from cosmos_outbox.inbox.entry import Entry, Found
from cosmos_outbox.inbox.errors import EntryChanged
from cosmos_outbox.inbox.progress import Counts, SeenPage, WalkProgress
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import SYSTEM, using
from tests.support.inbox import event
from tests.support.virtual_time import in_virtual_time
from tests.unit.test_sweep import World
from tests.unit.test_sweep_changes import DAY, KEY, changed, started, ticked

State = tuple[int, ...]


async def stopped() -> World:
    """A world whose tombstones may have expired unseen: a whole round is due before the next look."""
    world = await started("a", "b")
    world.now += 11 * DAY
    return world


async def test_no_look_moves_on_while_another_worker_is_at_the_round_that_is_due_before_it() -> None:
    """It may not have begun after the stop: if it died, the look would have forgotten what a round has to find."""
    world = await stopped()
    assert world.lists.saved is not None
    world.lists.saved = replace(world.lists.saved, claimed_until=world.now + timedelta(minutes=1))
    saved = world.lists.saved
    await world.sweep.run(seconds=10)
    assert (world.lists.saved, world.lists.pages, world.changes.pages) == (saved, 0, 0)


async def test_who_finds_that_another_one_has_just_begun_the_round_leaves_both_to_the_next_run() -> None:
    world = await stopped()

    async def overtaken(_: WalkProgress) -> WalkProgress:
        raise EntryChanged("another one has just begun it")

    save, world.lists.save = world.lists.save, overtaken  # type: ignore[method-assign,assignment]
    await world.sweep.run(seconds=10)
    assert (world.lists.pages, world.changes.pages) == (0, 0)
    world.lists.save = save  # type: ignore[method-assign]
    await world.sweep.run(seconds=10)
    assert (world.lists.pages, world.changes.pages) == (2, 1)


async def test_a_round_that_began_after_a_stop_is_not_begun_anew_until_the_look_moves_on() -> None:
    world = await stopped()
    assert world.changes.saved is not None
    world.changes.saved = replace(world.changes.saved, claimed_until=world.now + DAY)
    await ticked(world, 4)
    assert (world.lists.pages, world.changes.pages) == (2, 0), "one whole round"


async def test_a_look_that_was_cut_off_lists_no_page_again_but_the_one_in_hand() -> None:
    world = await started(*map(str, range(6)))
    for number in range(6):
        changed(world, AggregateKey("thing", str(number)), 2)
    list_changed = world.changes.list_changed

    async def away(since: datetime, until: datetime, position: str | None) -> SeenPage:
        if position == "2":
            raise EntryChanged("the process is gone")
        return await list_changed(since, until, position)

    world.changes.list_changed = away  # type: ignore[method-assign]
    await ticked(world, 2)
    world.changes.list_changed = list_changed  # type: ignore[method-assign]
    assert world.changes.listed == 2
    await ticked(world)
    assert world.changes.listed == 6


async def test_a_round_is_given_the_time_that_a_look_has_left_and_no_more() -> None:
    world = World()
    began, at = world.now, 0.0
    list_changed, save, claims = world.changes.list_changed, world.lists.save, list[datetime | None]()

    async def slow(since: datetime, until: datetime, position: str | None) -> SeenPage:
        nonlocal at
        at += 60
        return await list_changed(since, until, position)

    async def noted(progress: WalkProgress) -> WalkProgress:
        claims.append(progress.claimed_until)
        return await save(progress)

    world.changes.list_changed, world.lists.save = slow, noted  # type: ignore[method-assign]
    with using(replace(SYSTEM, monotonic=lambda: at)):
        await world.sweep.run(seconds=100)
    assert claims[0] is not None
    assert timedelta(seconds=40) <= claims[0] - began < timedelta(seconds=100), (
        "for others it would be at it too long"
    )


async def test_an_entry_that_its_event_has_put_right_meanwhile_is_right() -> None:
    world = World()
    key = world.has("a", 1, 2)
    newest = world.source.newest

    async def slow(wanted: AggregateKey) -> Found[State] | None:
        found = await newest(wanted)
        world.source.newest = newest  # type: ignore[method-assign]  # once
        await world.inbox.handle(event(2, key=key))
        return found

    world.source.newest = slow  # type: ignore[method-assign,assignment]  # the subscriber is faster than this read
    assert await world.swept() == Counts(entries=1, sources=1)
    assert world.sequence(key) == 2


@pytest.mark.parametrize("whole", [False, True])
async def test_a_deleted_source_without_an_entry_is_right_and_costs_nothing(whole: bool) -> None:
    world = await started()
    changed(world, KEY, 2, deleted=True)
    if whole:
        world.now += DAY
        assert await world.swept() == Counts(sources=1)
    else:
        await ticked(world, 2)
        assert world.changes.listed == 1
    assert (world.entries.written, world.source.reads, world.source.fences) == ({}, 0, 0)


@pytest.mark.parametrize("sequence", [2, 3])
async def test_a_look_tells_of_an_id_that_is_used_again_while_its_entry_is_a_deleted_one(
    sequence: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = await started()
    world.entries.written[KEY] = [Entry(2, None, None)]
    changed(world, KEY, sequence)
    await ticked(world, 2)
    assert world.changes.saved is not None
    assert world.changes.saved.last_counts == Counts(sources=1, ahead=1)
    assert "used again" in caplog.text


async def test_a_deletion_that_was_applied_costs_a_look_one_read_of_the_entry() -> None:
    world = await started()
    changed(world, KEY, 2, deleted=True)
    world.entries.written[KEY] = [Entry(2, None, None)]
    await ticked(world, 2)
    assert world.changes.listed == 1
    assert (world.entries.reads, world.source.reads, world.source.fences) == (1, 0, 0)


def test_a_round_whose_time_is_over_goes_on_at_its_next_run_with_the_page_that_it_had_in_hand() -> None:
    async def story() -> None:
        world = World()
        keys = [world.has(name, 1, 2) for name in "abcd"]
        entries = world.lists.entries

        async def slow(position: str | None) -> SeenPage:
            await asyncio.sleep(6)
            return await entries(position)

        world.lists.entries = slow  # type: ignore[method-assign]
        await world.sweep.run(seconds=10)
        assert [world.sequence(key) for key in keys] == [2, 2, 1, 1]
        world.now += timedelta(minutes=10)
        await world.sweep.run(seconds=10)
        assert [world.sequence(key) for key in keys] == [2, 2, 2, 2]

    in_virtual_time(story())


async def test_while_a_round_is_under_way_another_worker_lists_nothing() -> None:
    world = World()
    for name in "abcd":
        world.has(name, 1, 1)
    entries, beside = world.lists.entries, list[int]()

    async def meanwhile(position: str | None) -> SeenPage:
        world.lists.entries = entries  # type: ignore[method-assign]  # once
        world.now += timedelta(seconds=11)  # its time is over, and the page in hand is saved after it
        pages = world.lists.pages
        await world.sweep.run(seconds=10)
        beside.append(world.lists.pages - pages)
        return await entries(position)

    world.lists.entries = meanwhile  # type: ignore[method-assign]
    await world.sweep.run(seconds=10)
    assert (beside, world.lists.listed) == ([0], 8)

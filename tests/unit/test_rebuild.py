"""A rebuild beside a subscriber that goes on, and one in which the source wins."""

from datetime import timedelta
from typing import Any

import pytest

from cosmos_outbox.inbox.entry import Entry, Found
from cosmos_outbox.inbox.errors import EntryChanged
from cosmos_outbox.inbox.progress import Counts, Side, WalkProgress
from cosmos_outbox.inbox.rebuild import Rebuild
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from tests.support.inbox import NOON, event
from tests.unit.test_sweep import OLD, World


async def rebuilt(world: World, *, source_wins: bool = False) -> Counts:
    told: list[WalkProgress] = []
    progress = await Rebuild(world.inbox, world.lists, source_wins).run(told.append)
    assert progress.last_counts is not None
    assert told[-1] == progress
    return progress.last_counts


async def test_entries_are_filled_and_repaired_and_a_second_run_writes_nothing() -> None:
    world = World()
    keys = [world.has(name, entry, 3) for name, entry in (("a", None), ("b", 1), ("c", 3))]
    gone = world.has("d", 2, None)
    assert (await rebuilt(world)).healed == 3
    assert [world.sequence(key) for key in keys] == [3, 3, 3]
    entry = world.entries.of(gone)
    assert entry is not None
    assert entry.deleted
    assert (await rebuilt(world)).healed == 0


async def test_what_the_subscriber_applies_meanwhile_is_not_taken_back() -> None:
    world = World()
    key = world.has("a", 1, 2)
    read = world.source.newest

    async def slow(wanted: AggregateKey) -> Found[tuple[int, ...]] | None:
        found = await read(wanted)
        world.source.newest = read  # type: ignore[method-assign]  # once
        for sequence in (2, 3):
            await world.inbox.handle(event(sequence, key=key))
        return found

    world.source.newest = slow  # type: ignore[method-assign,assignment]  # the subscriber is faster than this read
    await rebuilt(world)
    assert (world.sequence(key), world.entries.of(key)) == (3, Entry(3, "a/3/Changed", (1, 2, 3)))


async def test_where_the_source_wins_entries_go_back_come_back_and_go_away() -> None:
    world = World()
    ahead, gone, deleted = world.has("a", 5, 2), world.has("b", 2, None), world.has("c", None, 1)
    same = world.has("d", 2, 2)
    buried = world.has("e", None, None)
    world.source.change(buried, Found(4, None, OLD))
    world.entries.written[deleted] = [Entry(3, "c/3/Deleted", None)]
    assert (await rebuilt(world, source_wins=True)).healed == 3
    assert [world.sequence(key) for key in (ahead, gone, deleted, same, buried)] == [2, None, 1, 2, None]
    await world.inbox.handle(event(3, key=ahead))
    assert world.entries.of(ahead) == Entry(3, "a/3/Changed", (1, 2, 3))


async def test_after_a_restore_no_entry_is_passed_over_because_an_earlier_rebuild_was_cut_off() -> None:
    """That one may be of another restore, or itself have been restored with the entries."""
    world = World()
    ahead, gone = world.has("a", 5, 2), world.has("b", 2, None)
    world.lists.saved = WalkProgress(NOON, Side.SOURCES, "2", version="7")
    await rebuilt(world, source_wins=True)
    assert [world.sequence(key) for key in (ahead, gone)] == [2, None]


async def test_a_deleted_aggregate_without_an_entry_costs_no_look_at_the_source() -> None:
    world = World()
    key = world.has("a", None, None)
    world.source.change(key, Found(4, None, OLD))
    counts = await rebuilt(world)
    assert (counts.healed, counts.failed) == (0, 0)
    assert (world.source.reads, world.source.fences) == (0, 0)


@pytest.mark.parametrize(("hours", "healed"), [(1, 0), (24, 0), (25, 1)])
async def test_a_rebuild_that_was_cut_off_goes_on_unless_that_was_long_ago(hours: int, healed: int) -> None:
    world = World()
    world.has("a", 1, 3)
    long_ago = NOON - timedelta(hours=hours)
    world.lists.saved = WalkProgress(long_ago, Side.SOURCES, "2", version="7")
    assert (await rebuilt(world)).healed == healed
    world.has("a", 1, 3)
    world.lists.saved = WalkProgress(long_ago, last_counts=Counts(), last_ended_at=long_ago, version="7")
    assert (await rebuilt(world)).healed == 1, "the one before had ended"


async def test_an_entry_of_a_version_that_kept_less_is_written_anew_though_its_sequence_is_right() -> None:
    """A field that only the new version keeps, and that entries of the old one lack, comes from the source."""
    world = World()
    key = world.has("a", 2, 3)
    world.entries.written[key] = [Entry(3, "a/3/Changed", (1, 3))]
    assert (await rebuilt(world)).healed == 1
    assert world.entries.of(key) == Entry(3, "a/3/Changed", (1, 2, 3))
    assert (await rebuilt(world)).healed == 0


async def test_an_entry_that_the_subscriber_changes_meanwhile_is_written_anew_at_its_newest() -> None:
    world = World()
    key = world.has("a", 3, 3)
    world.entries.written[key] = [Entry(3, None, (1, 3))]
    put = world.entries.put

    async def overtaken(*given: Any, **named: Any) -> str:
        world.entries.put = put  # type: ignore[method-assign]  # once
        world.source.change(key, Found(4, (1, 2, 3, 4)))
        await world.inbox.handle(event(4, key=key))
        return await put(*given, **named)

    world.entries.put = overtaken  # type: ignore[method-assign]
    counts = await rebuilt(world)
    assert (counts.healed, counts.failed) == (1, 0)
    assert world.entries.of(key) == Entry(4, "a/4/Changed", (1, 2, 3, 4))


async def test_an_entry_that_changes_at_each_attempt_counts_as_failed() -> None:
    world = World()
    key, other = world.has("a", 3, 3), world.has("b", None, 1)
    world.entries.written[key] = [Entry(3, None, (1, 3))]
    put = world.entries.put

    async def overtaken(changed: AggregateKey, *given: Any, **named: Any) -> str:
        if changed == key:
            raise EntryChanged("another one is always faster")
        return await put(changed, *given, **named)

    world.entries.put = overtaken  # type: ignore[method-assign,assignment]
    counts = await rebuilt(world)
    assert (counts.healed, counts.failed, world.sequence(other)) == (1, 2, 1), "once on either side"


@pytest.mark.parametrize("source_wins", [False, True])
async def test_entries_of_another_form_are_written_again(source_wins: bool) -> None:
    world = World()
    key, deleted, behind = world.has("a", 3, 3), world.has("b", 2, 2), world.has("c", 1, 3)
    world.entries.written[deleted] = [Entry(3, "b/3/Deleted", None)]
    world.source.change(deleted, Found(3, None, OLD))
    for each, sequence in ((key, 3), (behind, 1)):
        event_id = f"{each.id}/{sequence}/Changed"
        world.entries.written[each] = [Entry(sequence, event_id, None, other_form=True)]
    counts = await rebuilt(world, source_wins=source_wins)
    assert (counts.healed + counts.rewritten, counts.failed) == (2, 0)
    assert world.entries.of(key) == Entry(3, None if source_wins else "a/3/Changed", (1, 2, 3))
    assert world.sequence(behind) == 3
    assert len(world.entries.written[deleted]) == 1, "a deleted entry has no state, so it has every form"


async def test_where_the_source_wins_a_deleted_source_is_not_taken_for_an_entry_of_another_form() -> None:
    world = World()
    key = world.has("a", 3, 3)
    world.source.change(key, Found(3, None, OLD))
    world.entries.written[key] = [Entry(3, None, None, other_form=True)]
    await rebuilt(world, source_wins=True)
    assert world.entries.of(key) == Entry(3, None, None)


async def test_a_rebuild_in_another_form_begins_anew() -> None:
    world = World()
    key = world.has("a", 1, 3)
    world.lists.saved = WalkProgress(NOON, Side.SOURCES, "2", version="7", form=7)
    assert (await rebuilt(world)).healed == 1
    assert world.sequence(key) == 3


@pytest.mark.parametrize(
    "newest", [Found(4, (1, 2, 3, 4)), Found(4, None), None], ids=["changed", "deleted", "gone"]
)
async def test_no_entry_is_given_the_state_of_another_sequence_than_its_own(
    newest: Found[tuple[int, ...]] | None,
) -> None:
    """The source has gone on since it was compared: the entry's next event would be applied twice."""
    world = World()
    key = world.has("a", 3, 3)
    world.entries.written[key] = [Entry(3, None, (1, 3))]
    read = world.source.newest

    async def meanwhile(wanted: AggregateKey) -> Found[tuple[int, ...]] | None:
        world.source.newest = read  # type: ignore[method-assign]  # once
        world.source.change(key, newest)
        return await read(wanted)

    world.source.newest = meanwhile  # type: ignore[method-assign,assignment]
    assert (await rebuilt(world)).failed == 0
    state, sequence = (newest.state, 4) if newest else (None, 3)
    assert [each.state for each in world.entries.written[key]] == [(1, 3), state]
    assert world.sequence(key) == sequence


async def test_where_the_source_wins_how_often_an_entry_was_healed_is_kept() -> None:
    world = World()
    ahead, missing = world.has("a", 5, 2), world.has("b", None, 1)
    world.entries.written[ahead] = [Entry(5, None, (1, 2, 3, 4, 5), healed=2)]
    await rebuilt(world, source_wins=True)
    assert world.entries.of(ahead) == Entry(2, None, (1, 2), healed=2)
    assert world.entries.of(missing) == Entry(1, None, (1,))


async def test_where_the_source_wins_what_is_gone_with_its_entry_is_right() -> None:
    world = World()
    key = world.has("a", 1, 1)
    read = world.source.newest

    async def meanwhile(wanted: AggregateKey) -> Found[tuple[int, ...]] | None:
        world.entries.written.pop(key, None)
        world.source.change(key, None)
        return await read(wanted)

    world.source.newest = meanwhile  # type: ignore[method-assign,assignment]  # both have expired since they were listed
    assert await rebuilt(world, source_wins=True) == Counts(entries=1)

"""What a sweep of effects looks at, what it tells of, and where it goes on; over lists in memory."""

import logging
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from cosmos_outbox.inbox.effect_sweep import EffectSweep
from cosmos_outbox.inbox.entry import Found
from cosmos_outbox.inbox.errors import EffectNotDone, StoreAway
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.progress import Counts, SeenPage, WalkProgress
from cosmos_outbox.inbox.sweep import YOUNG
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from tests.support.effects import EVENTS_LIVE, Clock, FakeEvents, FakeItems, Outbound, inbox_over
from tests.support.inbox import FakeEntries, FakeSource, event
from tests.unit.test_sweep import PAGE, FakeLists

HOUR = timedelta(hours=1)


@dataclass
class World:
    """Aggregates of which each has an event, and a subscriber that gets no message."""

    clock: Clock = field(default_factory=Clock)
    events: FakeEvents = field(default_factory=FakeEvents)
    outbound: Outbound = field(default_factory=Outbound)
    source: FakeSource[tuple[int, ...]] = field(default_factory=FakeSource)

    def __post_init__(self) -> None:
        self.lists = FakeLists(FakeEntries(), self.source, clock=self.clock)
        self.inbox = inbox_over(FakeItems(), self.events, self.outbound, self.clock)
        self.sweep = EffectSweep(self.inbox, self.lists)

    async def has(self, name: str, last: int = 1) -> Event:
        """An aggregate that was changed an hour ago; its last event."""
        key = AggregateKey("thing", name)
        for sequence in range(1, last + 1):
            await self.events.put(event(sequence, key=key, action="Mailed"))
        self.source.change(key, Found(last, (), self.clock.now - HOUR))
        return self.events.stored[-1]

    async def run(self) -> WalkProgress:
        await self.sweep.run(seconds=60)
        _, found = await self.sweep.progress()
        assert found is not None
        return found


async def test_a_round_counts_what_it_has_handled_what_was_right_and_what_it_leaves() -> None:
    world = World()
    lost, handled, sick = [await world.has(name) for name in "abc"]
    await world.inbox.handle(handled)
    world.outbound.raises = [None, EffectNotDone("no such address")]
    progress = await world.run()
    assert progress.last_counts == Counts(sources=3, healed=1, blocked=1)
    assert progress.left == (sick.aggregate,)
    assert world.outbound.asked == [handled.id, lost.id, sick.id]


async def test_a_round_that_was_broken_off_goes_on_with_its_next_page(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    events = [await world.has(f"{number:03}") for number in range(3 * PAGE)]
    list_changed, broken = world.lists.list_changed, [False, True]

    async def away_once(since: datetime, until: datetime, position: str | None) -> SeenPage:
        if broken and broken.pop(0):
            raise StoreAway("it is away")
        return await list_changed(since, until, position)

    world.lists.list_changed = away_once  # type: ignore[method-assign]  # a fault
    with pytest.raises(StoreAway):
        await world.run()
    assert len(world.outbound.asked) == PAGE
    world.clock.pass_by(minutes=10)
    progress = await world.run()
    assert "is late" not in caplog.text, "it has just begun"
    assert (progress.side, progress.last_counts) == (None, Counts(sources=3 * PAGE, healed=3 * PAGE))
    assert world.outbound.asked == [each.id for each in events]
    assert world.lists.listed == len(events), "none was listed twice"


async def test_a_round_is_made_an_hour_after_the_one_before_and_looks_at_what_was_changed_since() -> None:
    world = World()
    await world.has("a")
    first = await world.run()
    world.clock.now += HOUR - timedelta(seconds=1)
    assert await world.run() == first.__class__(**{**vars(first), "as_of": world.clock.now})
    await world.has("b")
    world.clock.now += timedelta(seconds=1)
    assert (await world.run()).last_counts == Counts(sources=1, healed=1), "only b was changed since"


async def test_a_change_that_is_young_is_left_to_its_message() -> None:
    world = World()
    lost = await world.has("a")
    world.source.change(lost.aggregate, Found(1, (), world.clock.now - YOUNG + timedelta(seconds=1)))
    await world.run()
    assert world.outbound.asked == []
    world.clock.now += HOUR
    await world.run()
    assert world.outbound.asked == [lost.id]


async def test_what_a_round_has_left_is_looked_at_first_by_the_next_until_it_is_settled_or_gone() -> None:
    world = World()
    sick, gone = await world.has("a"), await world.has("b")
    world.outbound.raises = [EffectNotDone("no such address")] * 2
    assert (await world.run()).left == (sick.aggregate, gone.aggregate)
    await world.events.forget(gone)
    world.clock.now += HOUR
    new = await world.has("c")
    progress = await world.run()
    assert (progress.left, progress.last_counts) == ((), Counts(sources=3, healed=2))
    assert world.outbound.asked == [sick.id, gone.id, sick.id, new.id]


async def test_where_events_live_for_a_short_time_a_round_is_made_in_a_quarter_of_it() -> None:
    world = World()
    rules = replace(world.inbox.rules, events_live=2 * HOUR)
    world.sweep = replace(world.sweep, inbox=replace(world.inbox, rules=rules))
    first = await world.run()
    for minutes, again in ((29, False), (1, True)):
        world.clock.pass_by(minutes=minutes)
        assert ((await world.run()).last_ended_at != first.last_ended_at) is again


async def test_what_is_young_is_told_by_the_stores_clock_which_may_go_back() -> None:
    world = World()
    await world.run()  # of a store whose clock nobody has seen yet
    ahead = world.clock.now + 3 * HOUR
    world.lists.clock = lambda: ahead
    world.clock.now += HOUR
    assert (await world.run()).since == ahead - YOUNG
    world.lists.clock = world.clock
    world.clock.now += HOUR
    assert (await world.run()).since == ahead - YOUNG, "what was looked at is not looked at again"


@pytest.mark.parametrize(("away", "late"), [(EVENTS_LIVE / 2 - YOUNG, False), (EVENTS_LIVE / 2, True)])
async def test_only_a_sweep_that_may_miss_what_expires_is_told_as_late_and_never_the_first_one(
    caplog: pytest.LogCaptureFixture, away: timedelta, late: bool
) -> None:
    caplog.set_level(logging.ERROR)
    world = World()
    await world.run()
    assert "is late" not in caplog.text
    world.clock.now += away
    await world.run()
    assert ("the sweep of effects is late" in caplog.text) is late


async def test_a_first_round_that_never_ends_is_told_as_late_when_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    await world.has("a")

    async def away(since: datetime, until: datetime, position: str | None) -> SeenPage:
        raise StoreAway("it is away")

    world.lists.list_changed = away  # type: ignore[method-assign]  # a fault
    for days, late in ((0, False), (4, False), (2, True)):
        world.clock.pass_by(days=days)
        with pytest.raises(StoreAway):
            await world.run()
        assert ("the sweep of effects is late" in caplog.text) is late


async def test_two_processes_make_no_round_beside_each_other() -> None:
    world = World()
    lost = await world.has("a")
    list_changed = world.lists.list_changed

    async def meanwhile(since: datetime, until: datetime, position: str | None) -> SeenPage:
        world.lists.list_changed = list_changed  # type: ignore[method-assign]  # once
        saves = world.lists.saves
        await world.sweep.run(seconds=60)
        assert world.lists.saves == saves
        return await list_changed(since, until, position)

    world.lists.list_changed = meanwhile  # type: ignore[method-assign]  # another process
    await world.run()
    assert world.outbound.asked == [lost.id]

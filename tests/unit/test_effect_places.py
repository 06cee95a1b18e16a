"""Which places of an aggregate are run, told or passed, where a clock, a gap or an operator makes it a near thing."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from cosmos_outbox.inbox.effect import CALL, EffectItem, HeldBack, Open, WhyOpen
from cosmos_outbox.inbox.errors import EffectRefused, EffectRunning, StoreAway
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from tests.contract.test_effects import World, ids
from tests.support.effects import RULES, FakeEvents, FakeItems

SECONDS = timedelta(seconds=1)


def in_memory(*, lag: int = 0, repeatable: bool = True) -> World:
    rules = replace(RULES, repeatable=repeatable)
    return World(FakeItems(lag=lag), FakeEvents(), AggregateKey("contact", "1"), rules=rules)


async def missing(world: World) -> list[int]:
    """The places that an operator is told of as missing."""
    return [each.sequence for each in (await world.item()).open if each.why is WhyOpen.MISSING]


async def test_a_place_that_is_gone_behind_the_first_is_told_and_is_no_later_beginning() -> None:
    world = in_memory()
    three = world.event(3)
    for each in (world.event(1, "Seen"), three):
        await world.put(each)
    await world.inbox.handle(three)
    assert (world.outbound.asked, await missing(world), (await world.item()).first) == (ids(three), [2], 1)


async def test_a_place_that_is_gone_behind_the_one_that_an_operator_has_set_is_told() -> None:
    world = in_memory()
    await world.operator.reset(world.key.id, 2)
    four = world.event(4)
    await world.put(four)
    await world.inbox.handle(four)
    assert (world.outbound.asked, await missing(world)) == (ids(four), [3])


@pytest.mark.parametrize("lag", [0, 1])
async def test_a_lost_event_of_a_publisher_whose_clock_was_behind_is_found_all_the_same(lag: int) -> None:
    """What is asked first is of the time since the last event; only what a fenced read of all lacks is gone."""
    world = in_memory()
    one, two, three = (world.event(place) for place in (1, 2, 3))
    two = replace(two, created_at=two.created_at - timedelta(hours=1))
    for each in (one, three, two):
        await world.put(each)
    assert isinstance(world.source, FakeEvents)
    world.source.lag = lag
    await world.inbox.handle(one)
    await world.inbox.handle(three)
    assert (world.outbound.asked, await missing(world)) == (ids(one, two, three), [])


async def test_a_lost_event_some_seconds_older_than_the_one_before_it_costs_one_query_and_no_fence() -> None:
    world = in_memory()
    assert isinstance(world.source, FakeEvents)
    one, two, three = (world.event(place) for place in (1, 2, 3))
    two = replace(two, created_at=two.created_at - 30 * SECONDS)
    for each in (one, two, three):
        await world.put(each)
    await world.inbox.handle(one)
    await world.inbox.handle(three)
    assert world.outbound.asked == ids(one, two, three)
    assert (world.source.queries, world.source.fences) == (1, 0)


async def test_a_first_event_is_asked_for_behind_a_fence_at_once() -> None:
    world = in_memory()
    assert isinstance(world.source, FakeEvents)
    one, two = await world.stored("Mailed", "Mailed")
    world.source.lag = 2
    await world.inbox.handle(two)
    assert (world.outbound.asked, world.source.queries) == (ids(one, two), 1)


async def test_what_the_publisher_holds_back_begins_behind_the_place_that_it_tells() -> None:
    world = in_memory()
    one, two = await world.stored("Mailed", "Mailed")
    assert isinstance(world.source, FakeEvents)
    world.source.what_is_held = HeldBack(after=1)
    await world.inbox.handle(two)
    assert world.outbound.asked == ids(one, two)


async def test_an_event_of_a_clock_that_is_some_seconds_ahead_is_no_other_event() -> None:
    world = in_memory()
    one, two = await world.stored("Mailed", "Mailed")
    one = replace(one, created_at=one.created_at + 30 * SECONDS)
    for each in (one, two, one):
        await world.inbox.handle(each)
    assert world.outbound.asked == ids(one, two)


async def test_another_event_in_a_place_that_was_given_up_is_an_alarm() -> None:
    world = in_memory(repeatable=False)
    [one] = await world.stored("Mailed")
    world.outbound.raises = [ZeroDivisionError()]
    with pytest.raises(EffectRefused, match="may have been handled"):
        await world.inbox.handle(one)
    await world.inbox.give_up(one, "it was handled")
    await world.inbox.handle(one)
    with pytest.raises(EffectRefused, match="restored"):
        await world.inbox.handle(world.event(1, name="another"))
    assert world.outbound.asked == ids(one)


async def test_an_operator_is_told_since_when_a_place_is_open_whoever_died_over_it_later() -> None:
    world = in_memory(repeatable=False)
    one, two = await world.stored("Mailed", "Mailed")
    entry = Open(1, one.id, WhyOpen.UNSURE, world.clock.now)
    await world.write(last=1, open=(entry,), running=world.dead(one))
    world.clock.now += CALL
    await world.inbox.handle(two)
    assert (await world.item()).open == (entry,)
    assert await world.operator.since() == [entry.at]


async def test_a_dead_start_of_an_event_without_a_place_is_told_and_not_run_again() -> None:
    world, began = in_memory(repeatable=False), asyncio.Event()
    loose = world.event(None)

    async def hangs(event: Event) -> None:
        began.set()
        await asyncio.Event().wait()

    inbox = replace(world.inbox, effect=hangs)
    call = asyncio.create_task(inbox.handle(loose))
    await began.wait()
    for each in [*inbox.under_way]:
        each.cancel()  # as its process ends
    with pytest.raises(asyncio.CancelledError):
        await call
    world.clock.now += CALL
    with pytest.raises(EffectRefused, match="may have been handled"):
        await world.inbox.handle(loose)
    assert world.outbound.asked == []


async def test_an_operator_has_what_was_lost_run_before_the_event_that_is_asked_for() -> None:
    world = in_memory()
    one, two, three = await world.stored("Mailed", "Mailed", "Mailed")
    await world.inbox.handle(one)
    await world.inbox.apply(three)
    assert world.outbound.asked == ids(one, two, three)


async def test_a_sweep_whose_effects_take_long_goes_on_to_the_last() -> None:
    world = in_memory()
    events = await world.stored("Mailed", "Mailed", "Mailed")

    async def slow(event: Event) -> None:
        world.clock.now += 20 * SECONDS
        await world.outbound.effect(event)

    assert await replace(world.inbox, effect=slow).catch_up(world.key, 3)
    assert world.outbound.asked == ids(*events)


async def test_a_sweep_passes_an_only_event_without_an_effect_by_one_write() -> None:
    world = in_memory()
    await world.stored("Seen")
    assert await world.inbox.catch_up(world.key, 1)
    assert not await world.inbox.catch_up(world.key, 1)
    assert isinstance(world.items, FakeItems)
    assert (world.items.writes, (await world.item()).last) == (1, 1)


async def test_a_start_whose_answer_was_lost_is_known_again_where_a_replica_lags() -> None:
    """Taken for another one's, it would hold up the aggregate for minutes."""
    world = in_memory(lag=1)
    assert isinstance(world.items, FakeItems)
    [one] = await world.stored("Mailed")
    world.items.faults.at = {1: (StoreAway, True)}
    await world.inbox.handle(one)
    assert world.outbound.asked == ids(one)


async def test_a_message_costs_no_fence_and_an_operator_decides_behind_one_at_once() -> None:
    world = in_memory(lag=1)
    assert isinstance(world.items, FakeItems)
    one, two = await world.stored("Mailed", "Mailed")
    world.items.lag = 0
    await world.inbox.handle(one)
    assert world.items.fences == 0
    await world.write(running=world.dead(two))
    world.items.lag, world.items.fences, world.items.reads = 1, 0, 0
    with pytest.raises(EffectRunning):
        await world.inbox.apply(two)
    assert (world.items.reads, world.items.fences) == (1, 1)


async def test_a_list_of_open_effects_is_of_aggregates_that_have_some() -> None:
    world = in_memory()
    for number in range(3):
        entry = Open(1, "e", WhyOpen.MISSING, world.clock.now)
        item = EffectItem(1, 1, world.clock.now, open=(entry,) if number == 2 else ())
        await world.items.write(AggregateKey("contact", f"c-{number}"), item)
    page = await world.operator.page(1, None)
    assert ([each.aggregate.id for each in page.items], page.continuation_token) == (["c-2"], None)


async def test_a_reset_changes_those_that_are_ahead_of_their_source_and_no_others() -> None:
    world = in_memory()
    events = await world.stored("Mailed", "Mailed")
    for each in events:
        await world.inbox.handle(each)
    assert await world.operator.reset() == 0, "it is where its source is"
    assert world.source is not None
    await world.source.forget(events[1])
    assert isinstance(world.items, FakeItems)
    world.items.lag = 2  # where an old read shows the place before
    assert await world.operator.reset() == 1
    world.items.lag = 0
    assert (await world.item()).last == 1


async def test_one_aggregate_is_reset_to_its_beginning_where_no_place_is_named() -> None:
    world = in_memory()
    [one] = await world.stored("Mailed")
    await world.inbox.handle(one)
    assert await world.operator.reset(world.key.id) == 1
    await world.inbox.handle(one)
    assert world.outbound.asked == ids(one, one)

"""Effects run once and in order: the traces of the rules, over items in memory, in Cosmos DB and in SQLite.

``tests/models/effects.py`` searches every order of such failures; here the real adapters are shown to keep its rules.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from uuid import NAMESPACE_URL, uuid4, uuid5

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.inbox.documents import SourceDocuments
from cosmos_outbox.cosmos.inbox.effects import CosmosEffects
from cosmos_outbox.cosmos.inbox.event_source import CosmosEventSource
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.inbox.effect import (
    AROUND,
    AWAY_SECONDS,
    CALL,
    EFFECT_SECONDS,
    EffectItem,
    EffectItems,
    EffectRules,
    HeldBack,
    Open,
    RunningEffect,
    WhyOpen,
)
from cosmos_outbox.inbox.effect_operator import EffectOperator
from cosmos_outbox.inbox.effects import EffectInbox
from cosmos_outbox.inbox.errors import (
    Contended,
    EffectAway,
    EffectFailed,
    EffectNotDone,
    EffectRefused,
    EffectRunning,
    NotApplied,
    NotInTurn,
    NotSetAside,
    RecordChanged,
    Settled,
    StoreAway,
)
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.lists import continuation
from cosmos_outbox.outbox.errors import UnknownContinuation
from cosmos_outbox.sqlite.database import Database
from cosmos_outbox.sqlite.effects import SqliteEffects
from devstack.testing import Service
from tests.support.azure import CONTACTS, EFFECTS, PARKED, contacts_database
from tests.support.effects import (
    EVENTS_LIVE,
    ITEMS_LIVE,
    RULES,
    Clock,
    FakeEvents,
    FakeItems,
    Outbound,
    inbox_over,
)
from tests.support.inbox import NOON, notice
from tests.support.losses import Failing
from tests.support.own import HIERARCHICAL, world_of
from tests.support.reactions import no_loss
from tests.support.stored_events import StoredEvents

TTL = int(ITEMS_LIVE.total_seconds())


@dataclass
class World:
    """One aggregate, its stored events, and any number of processes with a subscriber."""

    items: EffectItems
    source: FakeEvents | StoredEvents | None
    key: AggregateKey
    outbound: Outbound = field(default_factory=Outbound)
    clock: Clock = field(default_factory=Clock)
    rules: EffectRules = RULES

    @property
    def inbox(self) -> EffectInbox:
        """Another process."""
        return inbox_over(self.items, self.source, self.outbound, self.clock, self.rules)

    @property
    def operator(self) -> EffectOperator:
        return EffectOperator(
            self.inbox,
            "mails",
            self.key.type,
            partial(continuation.seal, "s"),
            partial(continuation.unseal, "s"),
        )

    def event(self, place: int | None, action: str = "Mailed", name: str = "") -> Event:
        event_id = str(uuid5(NAMESPACE_URL, f"{self.key.id}/{place}/{name}"))
        return Event(event_id, self.key, action, place, self.clock.now, {})

    async def stored(self, *actions: str) -> list[Event]:
        """Events of places 1, 2, 3 …; their publisher has stored them."""
        events = [self.event(place, action) for place, action in enumerate(actions, start=1)]
        for each in events:
            await self.put(each)
        return events

    async def put(self, event: Event) -> None:
        if self.source is not None:
            await self.source.put(event)

    async def item(self) -> EffectItem:
        found = await self.items.read(self.key, fenced=True)
        assert found is not None
        return found

    async def write(self, **item: object) -> None:
        """What another process has left."""
        found = await self.items.read(self.key, fenced=True) or EffectItem(0, 1, self.clock.now)
        await self.items.write(self.key, replace(found, **item))  # type: ignore[arg-type]  # fields of an item

    def dead(self, event: Event) -> RunningEffect:
        return RunningEffect(event.sequence or 1, event.id, "dead", self.clock.now)


@pytest.fixture
async def world(
    request: pytest.FixtureRequest, cosmos_server: Service, tmp_path: Path
) -> AsyncIterator[World]:
    key = AggregateKey("contact", str(uuid4()))
    if request.param == "devstack":
        async with (
            contacts_database(cosmos_server) as database,
            CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
        ):
            contacts, parked, effects = (
                Container(client, database.id, each) for each in (CONTACTS, PARKED, EFFECTS)
            )
            source = StoredEvents(contacts, contacts, parked, key)
            yield World(CosmosEffects(effects, "mails", TTL), source, key)
    elif request.param == "sqlite":
        store = Database(tmp_path / "store.db")
        clock = Clock()
        yield World(SqliteEffects(store, "mails", TTL, clock), FakeEvents(), key, clock=clock)
        await store.close()
    else:
        yield World(FakeItems(lag=int(request.param == "lagging")), FakeEvents(), key)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "world" in metafunc.fixturenames:
        metafunc.parametrize("world", ["fake", "lagging", "devstack", "sqlite"], indirect=True)


def ids(*events: Event) -> list[str]:
    return [each.id for each in events]


async def test_each_effect_runs_once_in_order_whatever_comes_again(world: World) -> None:
    events = await world.stored("Mailed", "Mailed", "Mailed")
    for each in (*events, *reversed(events), *events):
        await world.inbox.handle(each)
    assert world.outbound.asked == ids(*events)
    item = await world.item()
    assert (item.last, item.first, item.last_event_id, item.running, item.open) == (
        3,
        1,
        events[2].id,
        None,
        (),
    )


async def test_an_effect_costs_one_read_and_two_writes_and_none_costs_nothing() -> None:
    items, source = FakeItems(), FakeEvents()
    world = World(items, source, AggregateKey("contact", "1"))
    mailed, seen, last = await world.stored("Mailed", "Seen", "Mailed")
    await world.inbox.handle(mailed)
    assert (items.reads, items.writes, source.queries) == (1, 2, 0)
    await world.inbox.handle(seen)
    await world.inbox.handle(replace(notice(2), aggregate=world.key))
    assert (items.reads, items.writes, source.queries) == (1, 2, 0)
    await world.inbox.handle(last)
    assert (items.reads, items.writes, source.queries) == (2, 4, 1)
    await world.inbox.handle(last)
    assert (items.reads, items.writes, source.queries) == (3, 4, 1)


async def test_what_did_not_come_is_fetched_and_runs_first(world: World) -> None:
    events = await world.stored("Mailed", "Seen", "Mailed", "Mailed")
    await world.inbox.handle(events[3])
    assert world.outbound.asked == ids(events[0], events[2], events[3])
    for each in events:
        await world.inbox.handle(each)
    assert len(world.outbound.asked) == 3


async def test_a_long_gap_is_fetched_in_pieces(world: World) -> None:
    events = await world.stored("Mailed", *["Seen"] * 130, "Mailed")
    await world.inbox.handle(events[0])
    await world.inbox.handle(events[-1])
    assert world.outbound.asked == ids(events[0], events[-1])


async def test_an_event_that_is_gone_is_told_by_the_write_that_passes_it(world: World) -> None:
    one, _, three = world.event(1), world.event(2), world.event(3)
    await world.put(one)
    await world.inbox.handle(one)
    await world.put(three)
    await world.inbox.handle(three)
    assert world.outbound.asked == ids(one, three)
    item = await world.item()
    assert [(each.sequence, each.why) for each in item.open] == [(2, WhyOpen.MISSING)]
    with pytest.raises(EffectRefused, match="missing"):
        await world.inbox.handle(world.event(2))
    await world.inbox.apply(world.event(2))
    assert world.outbound.asked == ids(one, three, world.event(2))
    assert (await world.item()).open == ()


async def test_a_lagging_source_proves_no_absence() -> None:
    source = FakeEvents(lag=2)
    world = World(FakeItems(), source, AggregateKey("contact", "1"))
    one, two = await world.stored("Mailed", "Mailed")
    await world.inbox.handle(two)
    assert world.outbound.asked == ids(one, two)
    assert (await world.item()).open == ()


async def test_what_was_given_up_is_not_run_where_an_old_read_lacks_a_later_one() -> None:
    """The source is asked twice; what it told first is still given up."""
    source = FakeEvents(lag=1)
    world = World(FakeItems(), source, AggregateKey("contact", "1"))
    one, two, three, four = await world.stored("Mailed", "Mailed", "Seen", "Mailed")
    source.stored = [one, two, four, three]
    source.what_is_held = HeldBack(discarded=frozenset({two.id}))
    await world.inbox.handle(one)
    await world.inbox.handle(four)
    assert world.outbound.asked == ids(one, four)


async def test_what_the_relay_holds_back_or_has_given_up_is_not_run(world: World) -> None:
    assert world.source is not None
    one, two, three = await world.stored("Mailed", "Mailed", "Mailed")
    await world.inbox.handle(one)
    await world.source.hold(HeldBack(after=1))
    with pytest.raises(NotInTurn, match="holds back place 2"):
        await world.inbox.catch_up(world.key, 3)
    with pytest.raises(NotInTurn, match="holds back place 2"):
        await world.inbox.handle(three)
    await world.source.hold(HeldBack(discarded=frozenset({two.id})))
    await world.inbox.handle(three)
    assert world.outbound.asked == ids(one, three)
    assert (await world.item()).open == ()


async def test_the_sweep_finds_a_lost_last_event_and_writes_once_for_what_has_none(world: World) -> None:
    events = await world.stored("Mailed", "Mailed", "Seen", "Seen")
    await world.inbox.handle(events[0])
    assert await world.inbox.catch_up(world.key, 4)
    assert world.outbound.asked == ids(events[0], events[1])
    item = await world.item()
    assert (item.last, item.last_event_id) == (4, events[3].id)
    world.clock.pass_by(hours=1)
    assert not await world.inbox.catch_up(world.key, 4)
    assert (await world.item()).version == item.version


async def test_the_sweep_finds_a_lost_only_event_and_nothing_where_nothing_is(world: World) -> None:
    assert not await world.inbox.catch_up(world.key, 3)
    assert await world.items.read(world.key, fenced=True) is None
    [one] = await world.stored("Mailed")
    assert await world.inbox.catch_up(world.key, 1)
    assert world.outbound.asked == ids(one)


async def test_the_sweep_leaves_a_place_whose_document_is_gone(world: World) -> None:
    [one] = await world.stored("Mailed")
    await world.inbox.handle(one)
    with pytest.raises(NotInTurn, match="gone"):
        await world.inbox.catch_up(world.key, 2)
    await world.inbox.handle(world.event(2))
    assert world.outbound.asked == ids(one, world.event(2))


async def test_an_old_event_without_an_effect_is_passed_by_a_write(world: World) -> None:
    assert world.source is not None
    one, two = await world.stored("Mailed", "Seen")
    await world.inbox.handle(one)
    world.clock.pass_by(days=6)
    await world.inbox.handle(two)
    await world.source.forget(two)
    three = world.event(3)
    await world.put(three)
    await world.inbox.handle(three)
    assert world.outbound.asked == ids(one, three)
    assert (await world.item()).open == ()


async def test_a_subscriber_begins_with_the_first_event_that_is_not_before_its_time(world: World) -> None:
    [old] = await world.stored("Mailed")
    world.clock.pass_by(minutes=5)
    world.rules = replace(RULES, begin=world.clock.now)
    two, three = world.event(2), world.event(3)
    await world.put(two)
    await world.put(three)
    await world.inbox.handle(three)
    assert world.outbound.asked == ids(two, three)
    assert (await world.item()).first == 2
    await world.inbox.handle(old)
    assert world.outbound.asked == ids(two, three)


async def test_an_event_from_before_the_beginning_is_an_operators(world: World) -> None:
    three = world.event(3)
    await world.put(three)
    await world.inbox.handle(three)
    assert ((await world.item()).first, world.outbound.asked) == (3, ids(three))
    with pytest.raises(EffectRefused, match="began at place 3"):
        await world.inbox.handle(world.event(1))
    await world.inbox.apply(world.event(1))
    assert world.outbound.asked == ids(three, world.event(1))
    assert ((await world.item()).last, (await world.item()).running) == (3, None)


async def test_another_event_in_a_passed_place_is_an_alarm(world: World) -> None:
    one, two = await world.stored("Mailed", "Mailed")
    await world.inbox.handle(one)
    await world.inbox.handle(two)
    with pytest.raises(EffectRefused, match="restored"):
        await world.inbox.handle(world.event(2, name="another"))
    world.clock.pass_by(minutes=2)
    with pytest.raises(EffectRefused, match="restored"):
        await world.inbox.handle(world.event(1, name="another"))
    await world.inbox.handle(replace(notice(2), aggregate=world.key))
    assert world.outbound.asked == ids(one, two)


async def test_a_publisher_whose_clock_is_ahead_does_not_make_its_event_another_one(world: World) -> None:
    """An event's time is its aggregate's own, as its code or its user's device tells it."""
    ahead = world.clock.now + timedelta(hours=1)
    one, two = (replace(world.event(place), created_at=ahead) for place in (1, 2))
    for each in (one, one, two, two, one):
        await world.inbox.handle(each)
    assert world.outbound.asked == ids(one, two)
    with pytest.raises(EffectRefused, match="restored"):
        await world.inbox.handle(
            replace(world.event(1, name="another"), created_at=ahead + timedelta(minutes=2))
        )


async def test_an_event_that_is_older_than_items_live_is_an_operators(world: World) -> None:
    one = world.event(1)
    world.clock.pass_by(days=41)
    with pytest.raises(EffectRefused, match="older than items live"):
        await world.inbox.handle(one)
    await world.inbox.apply(one)
    assert world.outbound.asked == ids(one)


async def test_an_event_without_a_sequence_goes_by_its_id_alone(world: World) -> None:
    loose, other = world.event(None), world.event(None, name="other")
    for each in (loose, other, loose):
        await world.inbox.handle(each)
    await world.inbox.handle(world.event(None, "Seen"))
    assert world.outbound.asked == ids(loose, other)


async def test_without_a_source_a_gap_waits_until_age_gives_it_up(world: World) -> None:
    world.source = None
    one, two, three = (world.event(place) for place in (1, 2, 3))
    await world.inbox.handle(one)
    with pytest.raises(NotInTurn, match="place 2 comes first"):
        await world.inbox.handle(three)
    world.clock.now = NOON + EVENTS_LIVE
    await world.inbox.handle(three)
    assert world.outbound.asked == ids(one, three)
    with pytest.raises(EffectRefused, match="missing"):
        await world.inbox.handle(two)


async def test_without_a_source_each_place_is_passed_by_a_write(world: World) -> None:
    world.source = None
    seen, mailed = world.event(1, "Seen"), world.event(2)
    await world.inbox.handle(seen)
    assert (await world.item()).last == 1
    await world.inbox.handle(mailed)
    assert world.outbound.asked == ids(mailed)


async def test_without_a_source_a_subscriber_of_later_begins_where_it_is_told(world: World) -> None:
    world.source = None
    old = world.event(4)
    world.clock.pass_by(minutes=5)
    world.rules = replace(RULES, begin=world.clock.now)
    await world.inbox.handle(old)
    await world.inbox.handle(world.event(5))
    assert world.outbound.asked == ids(world.event(5))


async def test_an_effect_that_surely_was_not_done_leaves_no_start_behind(world: World) -> None:
    [one] = await world.stored("Mailed")
    world.outbound.raises = [EffectNotDone("no such address")]
    with pytest.raises(EffectFailed, match="no such address"):
        await world.inbox.handle(one)
    item = await world.item()
    assert (item.last, item.running) == (0, None)
    await world.inbox.handle(one)
    assert world.outbound.asked == ids(one, one)


async def test_while_its_service_is_away_a_call_tries_again_without_a_write(world: World) -> None:
    [one] = await world.stored("Mailed")
    world.outbound.raises = [EffectAway("closed"), EffectAway("closed")]
    await world.inbox.handle(one)
    assert world.outbound.asked == ids(one, one, one)
    two = world.event(2)
    world.outbound.raises = [EffectAway("closed")] * 50
    with pytest.raises(EffectAway):
        await world.inbox.handle(two)
    assert world.outbound.asked.count(two.id) == 4, "after 1, 2 and 4 seconds, and 8 more are too many"
    assert (await world.item()).running is None
    world.outbound.raises = []
    await world.inbox.handle(two)
    assert world.outbound.asked[-1] == two.id


async def test_an_away_service_that_asks_for_a_long_pause_gets_it_from_a_later_call() -> None:
    """Waited for in the call, its effect would run after another call has taken it over (``calls-end``)."""
    world = World(FakeItems(), FakeEvents(), AggregateKey("contact", "1"))
    [one] = await world.stored("Mailed")
    world.outbound.raises = [EffectAway("closed", retry_after_seconds=CALL.total_seconds())]
    began = world.clock.now
    with pytest.raises(EffectAway):
        await world.inbox.handle(one)
    assert (world.outbound.asked, world.clock.now, (await world.item()).running) == ([one.id], began, None)


@pytest.mark.parametrize("repeatable", [True, False])
async def test_after_any_other_error_the_subscriber_chooses(world: World, repeatable: bool) -> None:
    [one] = await world.stored("Mailed")
    world.rules = replace(RULES, repeatable=repeatable)
    world.outbound.raises = [ZeroDivisionError("a bug")]
    if repeatable:
        with pytest.raises(EffectFailed, match="ZeroDivisionError"):
            await world.inbox.handle(one)
        await world.inbox.handle(one)
        assert world.outbound.asked == ids(one, one)
        return
    for _ in range(2):
        with pytest.raises(EffectRefused, match="may have been handled"):
            await world.inbox.handle(one)
    await world.inbox.handle(world.event(2))
    assert world.outbound.asked == ids(one, world.event(2))


async def test_a_started_effect_is_its_process_until_the_longest_call_is_over(world: World) -> None:
    one, two = await world.stored("Mailed", "Mailed")
    await world.write(running=world.dead(one))
    for each in (one, two):
        with pytest.raises(EffectRunning):
            await world.inbox.handle(each)
    assert world.outbound.asked == []
    world.clock.now += CALL
    await world.inbox.handle(two)
    assert world.outbound.asked == ids(one, two)


async def test_a_dead_start_is_passed_where_no_effect_is_run_again_by_itself(world: World) -> None:
    one, two = await world.stored("Mailed", "Mailed")
    world.rules = replace(RULES, repeatable=False)
    await world.write(running=world.dead(one))
    world.clock.now += CALL
    await world.inbox.handle(two)
    with pytest.raises(EffectRefused, match="may have been handled"):
        await world.inbox.handle(one)
    assert world.outbound.asked == ids(two)
    [effect] = (await world.operator.page(10, None)).items
    assert (effect.open.why, effect.open.event_id) == ("may have been handled", one.id)
    await world.inbox.apply(one)
    assert world.outbound.asked == ids(two, one)
    assert (await world.operator.page(10, None)).items == []


async def test_a_second_operator_finds_it_running_and_a_dead_one_leaves_what_was_known(world: World) -> None:
    one, two = await world.stored("Mailed", "Mailed")
    entry = Open(1, one.id, WhyOpen.UNSURE, world.clock.now)
    await world.write(last=1, open=(entry,), running=world.dead(one))
    with pytest.raises(EffectRunning):
        await world.inbox.apply(one)
    with pytest.raises(EffectRunning):
        await world.inbox.handle(two)
    world.clock.now += CALL
    await world.inbox.handle(two)
    item = await world.item()
    assert (item.last, item.open, world.outbound.asked) == (2, (entry,), ids(two))
    await world.inbox.apply(one)
    assert (await world.item()).open == ()


async def test_an_operator_who_has_one_run_again_forgets_no_other_start(world: World) -> None:
    one, two = await world.stored("Mailed", "Mailed")
    world.rules = replace(RULES, repeatable=False)
    entry = Open(1, one.id, WhyOpen.UNSURE, world.clock.now)
    await world.write(last=1, open=(entry,), running=world.dead(two))
    with pytest.raises(NotInTurn, match="running"):
        await world.inbox.give_up(one, "no")
    world.clock.now += CALL
    await world.inbox.apply(one)
    assert [(each.sequence, each.why) for each in (await world.item()).open] == [(2, WhyOpen.UNSURE)]
    with pytest.raises(EffectRefused, match="may have been handled"):
        await world.inbox.handle(two)
    assert world.outbound.asked == ids(one)


async def test_an_effect_that_began_is_not_cut_off_by_its_caller(world: World) -> None:
    [one] = await world.stored("Mailed")
    inbox, goes_on, began = world.inbox, asyncio.Event(), asyncio.Event()

    async def slow(event: Event) -> None:
        began.set()
        await goes_on.wait()
        await world.outbound.effect(event)

    inbox = replace(inbox, effect=slow)
    call = asyncio.create_task(inbox.handle(one))
    await began.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    with pytest.raises(EffectRunning):
        await world.inbox.handle(one)
    goes_on.set()
    await inbox.join()
    await world.inbox.handle(one)
    assert world.outbound.asked == ids(one)


async def test_a_call_whose_start_was_passed_by_another_one_meanwhile_does_not_tell_how_it_went(
    world: World,
) -> None:
    [one] = await world.stored("Mailed")

    async def slow(event: Event) -> None:
        await world.outbound.effect(event)
        await world.write(last=1, running=None)  # another call takes this one for dead

    with pytest.raises(EffectRunning, match="took too long"):
        await replace(world.inbox, effect=slow).handle(one)
    await world.inbox.handle(one)
    assert world.outbound.asked == ids(one)


async def test_a_call_that_was_slow_to_start_does_not_run_the_effect(world: World) -> None:
    [one] = await world.stored("Mailed")
    slow = Slow(world.items, world.clock)
    inbox = inbox_over(slow, world.source, world.outbound, world.clock)
    with pytest.raises(EffectRunning, match="too long ago"):
        await inbox.handle(one)
    assert world.outbound.asked == []
    await world.inbox.handle(one)
    assert world.outbound.asked == ids(one)


@dataclass
class Slow:
    """A store whose first write takes long."""

    items: EffectItems
    clock: Clock
    writes: int = 0

    async def read(self, key: AggregateKey, *, fenced: bool) -> EffectItem | None:
        return await self.items.read(key, fenced=fenced)

    async def write(self, key: AggregateKey, item: EffectItem) -> EffectItem:
        self.writes += 1
        if self.writes == 1:
            self.clock.now += AROUND + timedelta(seconds=1)
        return await self.items.write(key, item)

    async def page(
        self, size: int, position: str | None, *, unfinished: bool
    ) -> tuple[list[tuple[AggregateKey, EffectItem]], None]:
        raise AssertionError


async def test_a_store_that_takes_no_start_is_given_up_before_an_effect_would_be_too_late() -> None:
    items = FakeItems()
    world = World(items, FakeEvents(), AggregateKey("contact", "1"))
    [one] = await world.stored("Mailed")
    items.faults.at = dict.fromkeys(range(1, 200), (StoreAway, False))
    with pytest.raises(StoreAway):
        await world.inbox.handle(one)
    assert AROUND <= world.clock.now - NOON <= AROUND + timedelta(seconds=1)
    assert world.outbound.asked == []


class Changing(FakeItems):
    """Another process is always there first."""

    async def write(self, key: AggregateKey, item: EffectItem) -> EffectItem:
        raise RecordChanged("another version")


async def test_an_item_that_changes_each_time_is_tried_later_and_its_message_is_not_done() -> None:
    world = World(Changing(), FakeEvents(), AggregateKey("contact", "1"))
    [one] = await world.stored("Mailed")
    with pytest.raises(Contended, match="contact 1 changes all the time"):
        await world.inbox.handle(one)
    assert world.outbound.asked == []


async def test_twenty_open_places_hold_up_their_aggregate(world: World) -> None:
    entries = tuple(Open(place, "", WhyOpen.MISSING, world.clock.now) for place in range(1, 21))
    await world.write(last=20, open=entries)
    with pytest.raises(NotInTurn, match="20 effects"):
        await world.inbox.handle(world.event(21))
    [first, *_] = (await world.operator.page(1, None)).items
    await world.operator.discard(first.id, "long ago")
    await world.inbox.handle(world.event(21))
    assert world.outbound.asked == ids(world.event(21))


async def test_only_the_place_in_the_way_is_given_up_and_never_a_young_running_one(world: World) -> None:
    one, two, three = await world.stored("Mailed", "Mailed", "Mailed")
    with pytest.raises(NotInTurn, match="place 1 comes first"):
        await world.inbox.give_up(two, "no")
    await world.write(running=world.dead(one))
    with pytest.raises(NotInTurn, match="running"):
        await world.inbox.give_up(one, "no")
    world.clock.now += CALL
    await world.inbox.give_up(one, "no")
    await world.inbox.give_up(two, "no")
    await world.inbox.handle(three)
    for each in (one, two):
        await world.inbox.handle(each)
        with pytest.raises(Settled):
            await world.inbox.give_up(each, "no")
    assert world.outbound.asked == ids(three)


async def test_after_a_restore_a_subscriber_goes_on_behind_its_source(world: World) -> None:
    events = await world.stored("Mailed", "Mailed", "Mailed")
    for each in events:
        await world.inbox.handle(each)
    assert world.source is not None
    for each in events[1:]:
        await world.source.forget(each)
    assert await world.operator.reset(world.key.id, 1) == 1
    world.clock.pass_by(hours=1)
    again = world.event(2, name="after the restore")
    await world.put(again)
    await world.inbox.handle(again)
    assert world.outbound.asked == ids(*events, again)


async def test_one_aggregate_is_reset_to_the_place_that_an_operator_tells(world: World) -> None:
    _, two, three = await world.stored("Mailed", "Mailed", "Mailed")
    await world.write(last=1, running=world.dead(two))
    with pytest.raises(EffectRunning, match="stop the subscriber"):
        await world.operator.reset(world.key.id, 2)
    world.clock.now += CALL
    for _ in range(2):
        assert await world.operator.reset(world.key.id, 2) == 1
    await world.inbox.handle(three)
    assert world.outbound.asked == ids(three)
    with pytest.raises(NotApplied, match="name one aggregate"):
        await replace(world.operator, inbox=replace(world.inbox, source=None)).reset()


async def test_who_is_not_known_begins_behind_the_place_that_an_operator_tells(world: World) -> None:
    _, two, three = await world.stored("Mailed", "Mailed", "Mailed")
    assert await world.operator.reset(world.key.id, 2) == 1
    with pytest.raises(EffectRefused, match="began at place 3"):
        await world.inbox.handle(two)
    await world.inbox.handle(three)
    assert world.outbound.asked == ids(three)


async def test_a_list_goes_on_page_by_page_and_takes_no_foreign_token(world: World) -> None:
    for number in range(3):
        key = AggregateKey("contact", f"c-{number}")
        await world.items.write(
            key, EffectItem(1, 1, NOON, open=(Open(1, f"e-{number}", WhyOpen.MISSING, NOON),))
        )
    seen, token = [], None
    while True:
        page = await world.operator.page(2, token)
        seen += [each.open.event_id for each in page.items]
        token = page.continuation_token
        if token is None:
            break
    assert sorted(seen) == ["e-0", "e-1", "e-2"]
    with pytest.raises(UnknownContinuation):
        await world.operator.page(2, "no token")
    with pytest.raises(NotSetAside):
        await world.operator.discard("0" * 32, "there is none")


async def test_a_write_is_at_the_version_that_was_read(world: World) -> None:
    first = await world.items.write(world.key, EffectItem(1, 1, NOON))
    with pytest.raises(RecordChanged):
        await world.items.write(world.key, EffectItem(2, 1, NOON))
    second = await world.items.write(world.key, replace(first, last=2))
    with pytest.raises(RecordChanged):
        await world.items.write(world.key, replace(first, last=3))
    assert (await world.item()) == second


async def test_instances_at_once_run_each_effect_once(world: World) -> None:
    events = await world.stored("Mailed", "Mailed", "Mailed")

    async def until_done(event: Event) -> None:
        inbox = world.inbox
        for _ in range(50):
            try:
                return await inbox.handle(event)
            except (EffectRunning, StoreAway, NotInTurn):
                await asyncio.sleep(0.01)
        raise AssertionError("never done")

    await asyncio.gather(*(until_done(each) for each in (*events, *events, *reversed(events))))
    assert world.outbound.asked == ids(*events)


async def test_an_item_is_as_it_is_stored_behind_a_fence_whatever_a_replica_shows(
    cosmos_server: Service,
) -> None:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        key = AggregateKey("contact", str(uuid4()))
        await CosmosEffects(Container(client, database.id, EFFECTS), "mails", TTL).write(
            key, EffectItem(3, 1, NOON)
        )
        lagging = Failing(client, database.id, EFFECTS)
        lagging.fate = no_loss()
        elsewhere = CosmosEffects(lagging, "mails", TTL)
        assert await elsewhere.read(key, fenced=False) is None
        found = await elsewhere.read(key, fenced=True)
        assert found is not None
        assert found.last == 3


async def test_no_event_is_missed_behind_a_fence_whatever_a_replica_shows(cosmos_server: Service) -> None:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        contacts, parked = (Container(client, database.id, each) for each in (CONTACTS, PARKED))
        lagging = Failing(client, database.id, CONTACTS)
        lagging.fate = no_loss()
        key = AggregateKey("contact", str(uuid4()))
        source = StoredEvents(contacts, lagging, parked, key)
        stored = [Event(str(uuid4()), key, "Mailed", place, NOON, {}) for place in (1, 2, 3)]
        for each in stored:
            await source.put(each)
        assert await source.events(key, range(1, 3), None, fenced=False) == []
        found = await source.events(key, range(1, 3), None, fenced=True)
        assert ids(*found) == ids(*stored[:2])


async def test_the_last_place_of_a_teams_own_aggregate_is_that_of_its_newest_event(
    cosmos_server: Service,
) -> None:
    async with world_of(HIERARCHICAL, cosmos_server) as world:
        await world.book()
        await world.move("BookingMoved", "BookingPaid")
        await world.book("b-2")
        await world.run(lambda tx: tx.event("Noted", of=("note", "b-1")))
        outbox = world.outbox
        documents = SourceDocuments.of_library("booking")
        source = CosmosEventSource(
            world.container, outbox.feed, outbox.events, outbox.observer.lot, documents, "/test", own=True
        )
        lasts = [
            await source.last(AggregateKey(*each))
            for each in (("booking", "b-1"), ("booking", "b-2"), ("note", "b-1"), ("booking", "b-3"))
        ]
        assert lasts == [3, 1, None, None]
        fences = world.container.fences
        found = await source.events(AggregateKey("booking", "b-1"), range(2, 9), None, fenced=False)
        assert ([each.sequence for each in found], world.container.fences) == ([2, 3], fences)
        await source.last(AggregateKey("booking", "b-1"))
        assert world.container.fences > fences, "the last of all is told behind a fence"


async def test_a_list_of_which_the_store_takes_no_token_any_more_begins_anew(cosmos_server: Service) -> None:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        effects = CosmosEffects(Container(client, database.id, EFFECTS), "mails", TTL)
        for unfinished in (True, False):
            with pytest.raises(UnknownContinuation):
                await effects.page(10, "no token of the store", unfinished=unfinished)


async def test_an_item_expires_unless_something_of_it_is_open(cosmos_server: Service) -> None:
    key = AggregateKey("contact", "7")
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        items = CosmosEffects(Container(client, database.id, EFFECTS), "mails", TTL)
        stored = await items.write(key, EffectItem(1, 1, NOON))
        proxy = database.get_container_client(EFFECTS)
        assert [each["ttl"] async for each in proxy.read_all_items()] == [TTL]
        await items.write(key, replace(stored, open=(Open(1, "e", WhyOpen.MISSING, NOON),)))
        assert [each["ttl"] async for each in proxy.read_all_items()] == [-1]


def test_a_call_ends_within_the_longest_call_also_where_the_effects_service_was_away_before() -> None:
    longest_effect = timedelta(
        seconds=AWAY_SECONDS + EFFECT_SECONDS
    )  # tried for the last time just before it is given up
    assert AROUND + longest_effect + AROUND <= CALL

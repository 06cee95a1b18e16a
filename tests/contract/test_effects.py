"""What becomes of one event's effect, rule by rule, over records in Cosmos DB.

``tests/models/effects.py`` searches every order of such failures; ``test_effects_failures`` loses each answer.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import uuid4

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.inbox.records import CosmosEffects
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.inbox import effect
from cosmos_outbox.inbox.effect import (
    BEGIN,
    OLD,
    WRITE_SECONDS,
    EffectInbox,
    EffectRecord,
    EffectRecords,
    EffectRules,
    EffectState,
)
from cosmos_outbox.inbox.errors import (
    AlreadyProcessed,
    EffectFailed,
    EffectRefused,
    EffectRejected,
    EffectUnavailable,
    NotApplied,
    RecordChanged,
    StoreUnavailable,
)
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from devstack.testing import Service
from tests.support.azure import EFFECTS, contacts_database
from tests.support.effects import LIVES, RULES, Clock, FakeRecords, Outbound, inbox_over
from tests.support.emulators import Gap
from tests.support.inbox import NOON, Faults, delivery, read, skip_marker

ONCE = replace(RULES, repeatable=False)
SECOND = timedelta(seconds=1)


@dataclass
class World:
    """One event, and any number of processes with a subscriber."""

    records: EffectRecords
    outbound: Outbound = field(default_factory=Outbound)
    clock: Clock = field(default_factory=Clock)
    rules: EffectRules = RULES
    event: Event = field(
        default_factory=lambda: Event(str(uuid4()), AggregateKey("contact", "7"), "Mailed", 1, NOON, {})
    )

    @property
    def inbox(self) -> EffectInbox:
        """Another process."""
        return inbox_over(self.records, self.outbound, self.clock, self.rules)

    async def state(self) -> EffectState | None:
        found = await self.records.find(self.event.id)
        return found.state if found else None

    async def starts(self) -> EffectRecord:
        """Another call has started it, and died."""
        found = await self.records.find(self.event.id)
        at, version = self.clock(), found.version if found else None
        return await self.records.write(
            EffectRecord(self.event.id, EffectState.STARTED, at, "theirs", version)
        )


@pytest.fixture
async def records(cosmos_server: Service) -> AsyncIterator[EffectRecords]:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        yield CosmosEffects(Container(client, database.id, EFFECTS), "mails", int(LIVES.total_seconds()))


@pytest.fixture
def world(records: EffectRecords) -> World:
    return World(records)


@pytest.fixture
def once(records: EffectRecords) -> World:
    return World(records, rules=ONCE)


@pytest.mark.parametrize("repeatable", [True, False])
async def test_an_effect_runs_once_however_often_its_message_comes(
    records: EffectRecords, repeatable: bool
) -> None:
    world = World(records, rules=replace(RULES, repeatable=repeatable))
    for _ in range(3):
        await world.inbox.handle(world.event)
    await world.inbox.handle(replace(world.event, republished=True))
    assert world.outbound.asked == [world.event.id]
    assert await world.state() is EffectState.DONE


@pytest.mark.known_gap(Gap.BATCH_IGNORES_ETAG)
async def test_a_record_is_created_once_and_replaced_at_its_version(world: World) -> None:
    first = await world.starts()
    with pytest.raises(RecordChanged):
        await world.records.write(replace(first, version=None))
    second = await world.records.write(replace(first, state=EffectState.FREE))
    with pytest.raises(RecordChanged):
        await world.records.write(replace(first, state=EffectState.DONE))
    assert await world.records.find(world.event.id) == second


# -- repeatable


@pytest.mark.parametrize("error", [EffectRejected("no such address"), TimeoutError()])
async def test_a_repeatable_failure_leaves_no_record_and_waits(world: World, error: Exception) -> None:
    world.outbound.raises = [error]
    with pytest.raises(EffectFailed):
        await world.inbox.handle(world.event)
    assert await world.state() is None
    await world.inbox.handle(world.event)
    assert world.outbound.asked == [world.event.id] * 2


@pytest.mark.parametrize("repeatable", [True, False])
async def test_an_outage_of_the_called_service_is_passed_on(records: EffectRecords, repeatable: bool) -> None:
    world = World(records, rules=replace(RULES, repeatable=repeatable))
    world.outbound.raises = [EffectUnavailable("closed", retry_after_seconds=7)]
    with pytest.raises(EffectUnavailable) as away:
        await world.inbox.handle(world.event)
    assert away.value.retry_after_seconds == 7
    assert await world.state() is (None if repeatable else EffectState.FREE)
    await world.inbox.handle(world.event)
    assert await world.state() is EffectState.DONE


async def test_a_handler_has_a_limited_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs(event: Event) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(effect, "EFFECT_SECONDS", 0.01)
    with pytest.raises(EffectFailed, match="TimeoutError"):
        await replace(world.inbox, effect=hangs).handle(world.event)


# -- repeatable=False


async def test_a_start_names_the_call_and_comes_before_the_handler(once: World) -> None:
    seen: list[EffectRecord | None] = []

    async def looks(event: Event) -> None:
        seen.append(await once.records.find(event.id))

    await replace(once.inbox, effect=looks).handle(once.event)
    assert seen[0] is not None
    assert (seen[0].state, len(seen[0].call)) == (EffectState.STARTED, 32)


async def test_of_two_calls_at_once_one_runs(once: World) -> None:
    results = await asyncio.gather(*(once.inbox.handle(once.event) for _ in range(2)), return_exceptions=True)
    assert once.outbound.asked == [once.event.id]
    assert [type(each) for each in results if each is not None] in (
        [RecordChanged],
        [EffectFailed],
        [],
    )


async def test_a_young_start_of_another_call_waits_and_an_old_one_is_listed(once: World) -> None:
    await once.starts()
    for inbox_call in (once.inbox.handle, once.inbox.apply):
        with pytest.raises(EffectFailed, match="may be running"):
            await inbox_call(once.event)
    with pytest.raises(NotApplied, match="may be running"):
        await once.inbox.give_up(once.event, "late")
    once.clock.now += OLD - SECOND
    with pytest.raises(EffectFailed):
        await once.inbox.handle(once.event)
    once.clock.now += SECOND
    with pytest.raises(EffectRefused, match="may have been done"):
        await once.inbox.handle(once.event)
    assert once.outbound.asked == []


async def test_an_operator_runs_what_may_have_been_done_again(once: World) -> None:
    await once.starts()
    once.clock.now += OLD
    await once.inbox.apply(once.event)
    await once.inbox.apply(once.event)
    assert once.outbound.asked == [once.event.id]
    assert await once.state() is EffectState.DONE


async def test_what_surely_was_not_done_is_put_back(once: World) -> None:
    once.outbound.raises = [EffectRejected("no such address")]
    with pytest.raises(EffectFailed, match="no such address"):
        await once.inbox.handle(once.event)
    assert await once.state() is EffectState.FREE
    once.clock.now += LIVES  # its record is seen, so its age does not matter
    await once.inbox.handle(once.event)
    assert await once.state() is EffectState.DONE


async def test_an_unknown_failure_is_listed_at_once(once: World) -> None:
    once.outbound.raises = [RuntimeError("a bug")]
    with pytest.raises(EffectRefused, match=r"may have been done: RuntimeError in effect"):
        await once.inbox.handle(once.event)
    once.clock.now += OLD
    with pytest.raises(EffectRefused):
        await once.inbox.handle(once.event)
    assert once.outbound.asked == [once.event.id]


MOST = LIVES - timedelta(days=1, seconds=120)


@pytest.mark.parametrize(
    ("age", "listed"), [(MOST - SECOND, False), (MOST, True), (-timedelta(hours=13), True)], ids=str
)
async def test_an_old_message_without_a_record_is_listed(once: World, age: timedelta, listed: bool) -> None:
    once.clock.now += age
    if listed:
        with pytest.raises(EffectRefused, match="older than records live"):
            await once.inbox.handle(once.event)
        await once.inbox.apply(once.event)
    else:
        await once.inbox.handle(once.event)
    assert once.outbound.asked == [once.event.id]


# -- giving up


@pytest.mark.parametrize("repeatable", [True, False])
async def test_what_is_given_up_does_not_run(records: EffectRecords, repeatable: bool) -> None:
    world = World(records, rules=replace(RULES, repeatable=repeatable))
    for _ in range(2):
        await world.inbox.give_up(world.event, "late")
    await world.inbox.handle(world.event)
    await world.inbox.apply(world.event)
    assert world.outbound.asked == []
    assert await world.state() is EffectState.DISCARDED


async def test_an_old_start_is_given_up_at_its_version(once: World) -> None:
    await once.starts()
    once.clock.now += OLD
    await once.inbox.give_up(once.event, "late")
    assert await once.state() is EffectState.DISCARDED


async def test_what_is_done_is_not_given_up(world: World) -> None:
    await world.inbox.handle(world.event)
    with pytest.raises(AlreadyProcessed):
        await world.inbox.give_up(world.event, "late")


# -- limits, and what has no effect


@pytest.mark.parametrize("repeatable", [True, False])
@pytest.mark.parametrize("late", [True, False])
async def test_no_handler_begins_later_than_the_longest_call(repeatable: bool, late: bool) -> None:
    """The store answers late: to a look, or to a start."""
    world, records = World(FakeRecords(), rules=replace(RULES, repeatable=repeatable)), FakeRecords()

    @dataclass
    class Slow(FakeRecords):
        async def find(self, event_id: str) -> EffectRecord | None:
            if repeatable:
                world.clock.now += BEGIN + late * SECOND
            return await records.find(event_id)

        async def write(self, record: EffectRecord) -> EffectRecord:
            if record.state is EffectState.STARTED:
                world.clock.now += BEGIN + late * SECOND
            return await records.write(record)

    world.records = Slow()
    if late:
        with pytest.raises(EffectUnavailable, match="too long to begin"):
            await world.inbox.handle(world.event)
        assert not records.stored or records.stored[world.event.id].state is EffectState.FREE
    else:
        await world.inbox.handle(world.event)
    assert world.outbound.asked == [world.event.id] * (not late)


async def test_a_write_is_repeated_for_a_limited_time() -> None:
    away = dict.fromkeys(range(1, 6), (StoreUnavailable, False))
    world = World(FakeRecords(Faults(away)))
    await world.inbox.handle(world.event)
    assert world.outbound.asked == [world.event.id]
    began, world = (
        world.clock.now,
        World(FakeRecords(Faults(dict.fromkeys(range(1, 99), (StoreUnavailable, False))))),
    )
    with pytest.raises(StoreUnavailable):
        await world.inbox.handle(world.event)
    assert timedelta(seconds=WRITE_SECONDS) <= world.clock.now - NOON <= timedelta(seconds=WRITE_SECONDS + 1)
    assert began > NOON


@pytest.mark.parametrize(
    ("event", "runs"),
    [
        (Event("1", AggregateKey("thing", "7"), "Mailed", 1, NOON, {}), True),
        (Event("2", AggregateKey("thing", "7"), "Mailed", None, NOON, {}), True),
        (Event("3", AggregateKey("thing", "7"), "Seen", 1, NOON, {}), False),
        (Event("4", AggregateKey("thing", "7"), "Mailed", 1, NOON - SECOND, {}), False),
        (skip_marker(1), False),
    ],
    ids=["of a kind", "without a sequence", "of another kind", "from before", "a skip marker"],
)
def test_an_event_without_an_effect_is_not_read(event: Event, runs: bool) -> None:
    rules = replace(RULES, begin=NOON)
    assert (rules.reading(read)(delivery(event)) is not None) is runs
    everything = replace(rules, kinds=None, begin=None)
    assert (everything.reading(read)(delivery(event)) is not None) is not event.is_skip

"""The sweep finds a lost last event in the real store, once, and an operator resets what is ahead after a restore."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from uuid import uuid4

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.inbox.documents import SourceDocuments
from cosmos_outbox.cosmos.inbox.effects import CosmosEffects
from cosmos_outbox.cosmos.inbox.walk_lists import CosmosLists
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.cosmos.store.writes import Write
from cosmos_outbox.inbox.effect_operator import EffectOperator
from cosmos_outbox.inbox.effect_sweep import EffectSweep
from cosmos_outbox.inbox.effects import EffectInbox
from cosmos_outbox.inbox.errors import EffectNotDone
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import SYSTEM
from cosmos_outbox.lists import continuation
from devstack.testing import Service
from tests.support.azure import CONTACTS, EFFECTS, PARKED, contacts_database
from tests.support.effects import ITEMS_LIVE, RULES, Outbound
from tests.support.stored_events import StoredEvents


@dataclass
class World:
    sweep: EffectSweep
    source: StoredEvents
    sources: Container
    outbound: Outbound
    operator: EffectOperator

    async def publish(self, *actions: str, last: int | None = None) -> list[Event]:
        """Events of the one aggregate, whose messages are lost; its document says how far it has come."""
        key = self.source.key
        events = [
            Event(str(uuid4()), key, action, place, SYSTEM.now(), {})
            for place, action in enumerate(actions, start=1)
        ]
        for each in events:
            await self.source.put(each)
        await self.put(last or len(events))
        return events

    async def put(self, last: int) -> None:
        name = self.source.key.id
        item = {
            "id": name,
            "partitionKey": name,
            "type": "contact",
            "data": {"lastSequence": last, "deleted": False},
        }
        await self.sources.execute(name, [Write.upsert(item)])

    async def run(self) -> None:
        await self.sweep.run(seconds=30)


@pytest.fixture
async def world(cosmos_server: Service) -> AsyncIterator[World]:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_server.connection_string) as client,
    ):
        contacts, parked, effects = (
            Container(client, database.id, each) for each in (CONTACTS, PARKED, EFFECTS)
        )
        source = StoredEvents(contacts, contacts, parked, AggregateKey("contact", str(uuid4())))
        outbound = Outbound()
        items = CosmosEffects(effects, "mails", int(ITEMS_LIVE.total_seconds()))
        inbox = EffectInbox(items, source, outbound.effect, RULES)
        documents = SourceDocuments.of_library("contact")
        lists = CosmosLists(effects, contacts, documents, "effects-mails", 0)
        sweep = EffectSweep(inbox, lists, young=timedelta(seconds=-5), pause=timedelta())
        operator = EffectOperator(
            inbox, "mails", "contact", partial(continuation.seal, "s"), partial(continuation.unseal, "s")
        )
        yield World(sweep, source, contacts, outbound, operator)


async def test_a_lost_last_event_is_found_once(world: World) -> None:
    one, two, _ = await world.publish("Mailed", "Mailed", "Seen")
    for _ in range(2):
        await world.run()
    assert world.outbound.asked == [one.id, two.id]
    item = await world.sweep.inbox.items.read(world.source.key, fenced=True)
    assert item is not None
    assert item.last == 3


async def test_what_a_round_cannot_settle_is_looked_at_by_the_next(world: World) -> None:
    [one] = await world.publish("Mailed")
    world.outbound.raises = [EffectNotDone("no such address")]
    await world.run()
    _, progress = await world.sweep.progress()
    assert progress is not None
    assert progress.left == (world.source.key,)
    await world.run()
    assert world.outbound.asked == [one.id, one.id]
    _, progress = await world.sweep.progress()
    assert progress is not None
    assert progress.left == ()


async def test_a_round_is_made_once_an_hour_and_a_late_one_is_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await replace(world.sweep, young=timedelta(seconds=5)).run(seconds=30)
    hourly = replace(world.sweep, pause=timedelta(hours=1))
    [one] = await world.publish("Mailed")
    await hourly.run(seconds=30)
    assert world.outbound.asked == []
    later = replace(hourly.inbox, clock=lambda: SYSTEM.now() + timedelta(days=6))
    await replace(hourly, inbox=later).run(seconds=30)
    assert world.outbound.asked == [one.id]
    assert "the sweep of effects is late" in caplog.text


async def test_after_a_restore_what_is_ahead_goes_on_behind_its_source(world: World) -> None:
    events = await world.publish("Mailed", "Mailed", "Mailed")
    await world.run()
    await world.put(1)
    assert await world.operator.reset() == 1
    assert await world.operator.reset() == 0
    item = await world.sweep.inbox.items.read(world.source.key, fenced=True)
    assert item is not None
    assert item.last == 1
    assert world.outbound.asked == [each.id for each in events]

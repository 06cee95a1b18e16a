"""Whatever a document holds: the real store parks it, the real topic takes or refuses its message."""

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cosmos.aggregates.documents import digest
from cosmos_outbox.cosmos.maintenance.event_list import Span, Window
from cosmos_outbox.cosmos.relay.originals import CosmosOriginals
from cosmos_outbox.cosmos.relay.parked_documents import ParkedDocuments
from cosmos_outbox.cosmos.relay.parking import Parking
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.relay.relay import Relay
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.operations.republish import Republishing, RepublishingProgress
from cosmos_outbox.outbox.errors import StillUnsendable
from devstack.testing import Service
from tests.contract.conftest import ServiceBusBroker
from tests.support.any_document import any_document, drawn
from tests.support.azure import CONTACTS, PARKED, contacts_database, cosmos_connection
from tests.support.feed import EVENTS, contact_id, event_document

CONTACTS_IN_PAGE = 15


@dataclass
class World:
    lot: CosmosParkingLot
    originals: CosmosOriginals
    broker: ServiceBusBroker

    async def give_up(self, aggregate: AggregateKey) -> None:
        """An operator's last resort; who does not wait for the time in which a relay may still be sending."""
        now = utc_now()

        async def pause(seconds: float) -> None:
            nonlocal now
            now += timedelta(seconds=seconds)

        parking = Parking(self.lot, self.broker.publisher, self.originals, clock=lambda: now, pause=pause)
        for _ in range(10):
            try:
                if (await parking.replay(aggregate)).done:
                    return
            except StillUnsendable:
                [(first, _)] = await self.lot.waiting(aggregate, 1)
                await parking.discard(first.id, "it is poison")
        pytest.fail(f"{aggregate} is still parked")


@pytest.fixture
async def world(cosmos_server: Service, servicebus_broker: ServiceBusBroker) -> AsyncIterator[World]:
    async with (
        contacts_database(cosmos_server) as database,
        CosmosClient.from_connection_string(cosmos_connection(cosmos_server)) as client,
    ):
        documents = ParkedDocuments(EVENTS)
        lot = CosmosParkingLot(Container(client, database.id, PARKED), "test", documents, ttl_seconds=600)
        yield World(lot, CosmosOriginals(Container(client, database.id, CONTACTS), EVENTS), servicebus_broker)


def signed(item: dict[str, Any]) -> dict[str, Any]:
    """With the digest that its writer would have stored, where there is one: else it is read again."""
    try:
        return item | {"digest": digest(item)}
    except ValueError:
        return item


@pytest.mark.parametrize(
    "seed", [*(pytest.param(each, marks=pytest.mark.long) for each in (0, 1, 2, 1404137325)), None]
)
async def test_a_document_costs_its_aggregate_alone_and_can_be_given_up(
    world: World, seed: int | None
) -> None:
    rng = random.Random(drawn(seed))
    items = [signed(event_document("healthy", sequence)) for sequence in (1, 2, 3)]
    for number in range(CONTACTS_IN_PAGE):
        items.append(signed(any_document(rng, f"c{number}", 1)))
        items.append(signed(event_document(f"c{number}", 2)))
    rng.shuffle(items)
    events = EVENTS.events(items)

    forwarded = await Relay(world.broker.publisher, world.lot, world.originals).forward(events)

    assert forwarded.sent + forwarded.parked == len(events)
    ids = [event_document("healthy", sequence)["id"] for sequence in (1, 2, 3)]
    assert await world.broker.received(contact_id("healthy"), 3) == ids

    async def window(span: Span) -> Window:
        return Window(events, span.to)

    publisher, progress = world.broker.publisher, RepublishingProgress()
    again = Republishing(window, world.lot, world.originals, publisher, uuid4(), 60.0, 1.0)
    async for _ in again.publish(Span(0, 1), progress):
        pass
    assert progress.published >= 3

    for block in await world.lot.list_blocked():
        await world.give_up(block.aggregate)
    assert await world.lot.list_blocked() == []

"""The form that is published is the one that was committed: stored, sent, and sent again, over the real SDKs."""

import json
from typing import Any, ClassVar, Self
from uuid import uuid4

import pytest
from azure.servicebus import ServiceBusReceivedMessage

from cosmos_outbox import DomainEvent, WireModel
from cosmos_outbox.cosmos.maintenance.event_list import CosmosEventHistory, Span
from cosmos_outbox.cosmos.relay.originals import CosmosOriginals
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.relay.relay import Relay
from cosmos_outbox.cosmos.store.client import ContainerProxy
from cosmos_outbox.cosmos.store.consistent_reads import renew_tokens
from cosmos_outbox.operations.republish import Republishing, RepublishingProgress
from cosmos_outbox.outbox.errors import ChangeTooLarge
from tests.contract.conftest import CosmosStore, ServiceBusBroker
from tests.support.feed import EVENTS
from tests.support.parcels import NOON, OSLO, Address, Parcel, ParcelState


def body(message: ServiceBusReceivedMessage) -> bytes:
    return b"".join(message.body)


async def test_what_is_stored_is_what_is_sent_and_sent_again(
    store: CosmosStore, lot: CosmosParkingLot, servicebus_broker: ServiceBusBroker
) -> None:
    parcel = Parcel(ParcelState(id=uuid4(), created_at=NOON, address=OSLO, weight_in_grams=1500), is_new=True)
    async with store.open() as work:
        work.add(parcel)
        await work.commit()
    async with store.open() as work:
        stored = (await work.get(Parcel, parcel.aggregate_id)).aggregate
        stored.change(address=Address(street="Kaigaten 2", city="Bergen"))
        stored.lose(by="a van driver")
        await work.commit()

    events = await store.events(parcel.key)
    _, moved, lost = [dict(event.data) for event in events]
    assert (moved["goesTo"], moved["kilos"], "address" in moved) == ("Bergen", 1.5, False)
    assert (lost["where"], "by" in lost) == ("Bergen", False)
    assert [event.schema_version for event in events] == [1, 2, 1]

    container = store.container
    originals = CosmosOriginals(container, EVENTS)
    relay = Relay(servicebus_broker.publisher, lot, originals)
    assert (await relay.forward(EVENTS.events([event.document for event in events]))).sent == 3
    sent = [body(each) for each in await servicebus_broker.topic.receive(parcel.aggregate_id, 3, of="parcel")]
    assert [json.loads(each) for each in sent] == [dict(event.data) for event in events]

    database, name = store.names
    proxy: ContainerProxy = container._client.get_database_client(database).get_container_client(name)
    token = await renew_tokens(container, proxy)
    times = [event.document["_ts"] for event in events]
    history = CosmosEventHistory(container, EVENTS, token, 200)
    again = Republishing(history.window, lot, originals, servicebus_broker.publisher, uuid4(), 60.0, 20.0)
    async for _ in again.publish(Span(min(times), max(times) + 1), RepublishingProgress()):
        pass
    second = [
        body(each) for each in await servicebus_broker.topic.receive(parcel.aggregate_id, 3, of="parcel")
    ]
    assert second == sent


async def test_the_size_of_the_form_counts(store: CosmosStore) -> None:
    class Long(WireModel):
        schema_version: ClassVar[int] = 2
        text: str

        @classmethod
        def of(cls, event: DomainEvent, state: ParcelState) -> Self:
            return cls(text="x" * (2 << 20))

    class LongParcel(Parcel):
        published_forms: ClassVar[Any] = {"ParcelSent": Long}

    parcel = LongParcel(ParcelState(id=uuid4(), created_at=NOON, address=OSLO), is_new=True)
    async with store.open() as work:
        work.add(parcel)
        with pytest.raises(ChangeTooLarge):
            await work.commit()

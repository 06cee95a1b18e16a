"""What subscribers get over the wire, from a change to the topic, fits docs/use/events/."""

import json
from datetime import timedelta
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage
from jsonschema import Draft202012Validator

from cosmos_outbox.cosmos.relay.originals import CosmosOriginals
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.outbox.relay import Relay
from domain.contact import Contact
from domain.values import ContactDetails, Name
from tests.contract.conftest import CosmosStore, ServiceBusBroker
from tests.support.contacts import DETAILS, NOON
from tests.support.feed import EVENTS
from tests.support.paths import ROOT

FOLDER = ROOT / "docs" / "use" / "events"


def text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def check(message: ServiceBusReceivedMessage) -> str:
    """The name of the event in a message that fits the contract."""
    properties = {text(name): text(value) for name, value in (message.application_properties or {}).items()}
    told = json.loads((FOLDER / "asyncapi.json").read_text())["components"]["schemas"][
        "applicationProperties"
    ]
    Draft202012Validator(told).validate(properties)
    assert set(properties) <= set(told["properties"])
    file = FOLDER / "schemas" / f"{message.subject}.v{properties['schemaVersion']}.json"
    body = json.loads(b"".join(message.body))
    Draft202012Validator(json.loads(file.read_text())).validate(body)
    return str(body["action"])


async def test_the_events_of_a_contacts_life_fit_their_schemas(
    store: CosmosStore, lot: CosmosParkingLot, servicebus_broker: ServiceBusBroker
) -> None:
    contact = Contact.create(DETAILS, at=NOON)
    async with store.open() as work:
        work.add(contact)
        await work.commit()
    async with store.open() as work:
        stored = (await work.get(Contact, contact.aggregate_id)).aggregate
        jane = ContactDetails(
            name=Name(first_name="Jane", last_name="Roe"), email="j@contoso.com", description="x"
        )
        stored.revise(jane, at=NOON + timedelta(hours=1))
        await work.commit()
    async with store.open() as work:
        stored = (await work.get(Contact, contact.aggregate_id)).aggregate
        stored.delete(at=NOON + timedelta(days=1))
        await work.commit()

    documents = [event.document for event in await store.events(contact.key)]
    originals = CosmosOriginals(store.container, EVENTS)
    await Relay(servicebus_broker.publisher, lot, originals).forward(EVENTS.events(documents))

    received = await servicebus_broker.topic.receive(contact.aggregate_id, 6)
    assert [check(message) for message in received] == [
        "ContactCreatedEvent",
        "ContactNameUpdatedEvent",
        "ContactEmailUpdatedEvent",
        "ContactDescriptionUpdatedEvent",
        "ContactCompanyUpdatedEvent",
        "ContactDeletedEvent",
    ]

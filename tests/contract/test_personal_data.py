"""A month after a person was deleted nothing personal of them is left in any container, without a command.

docs/operate/personal-data.md says how long each place keeps what. devstack is in memory, in virtual time: the timers of
the function app run once a day, and two things fail at once.
"""

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import pytest
from azure.cosmos.aio import DatabaseProxy

from cosmos_outbox.composition.transports import Clients
from cosmos_outbox.http import KeyedRequest
from cosmos_outbox.inbox.message import Delivery
from cosmos_outbox.inbox.set_aside import Collected
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.service import Wired
from cosmos_outbox.servicebus.sessions import DeadLetters
from cosmos_outbox.testing.messages import message_of
from domain.contact import Contact
from domain.values import Company, ContactDetails, Name
from infra.bootstrap import service
from outbox_simulation.engine.bus_publisher import BusPublisher
from tests.contract.in_memory import CosmosInMemory, MemoryLoop, cosmos_in_memory
from tests.support.azure import contacts_database
from tests.support.contacts import ORIGIN
from tests.support.feed import EVENTS
from tests.support.functions import functions
from tests.support.use_cases import subscriber_of

SECRETS = ("Xanthippe", "Quirinalis", "xq@contoso.example", "Hemlockstraat", "likes hemlock")
DETAILS = ContactDetails(
    name=Name(first_name=SECRETS[0], last_name=SECRETS[1]),
    email=SECRETS[2],
    description=SECRETS[4],
    company=Company(company_name=f"{SECRETS[0]} & Co", street=SECRETS[3]),
)
EMPTIED = {"id", "createdAt", "modifiedAt", "deletedAt", "deleted", "lastSequence"}
DAY = 86_400
TIMERS = sorted(
    name
    for name, function in functions().items()
    if function.get_trigger().get_dict_repr()["type"] == "timerTrigger"  # type: ignore[union-attr]
)
PERSONAL = {"contacts", "directory", "parked-events", "set-aside"}
"""The containers that hold something personal while a person lives."""


def test_a_month_after_the_deletion_nothing_personal_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object, **__: object) -> Collected:
        return Collected(0, emptied=True)

    monkeypatch.setattr(DeadLetters, "collect", nothing)  # of the broker, which keeps its own time
    loop = MemoryLoop()
    with cosmos_in_memory(loop) as cosmos:
        loop.root_is_now()  # with the clocks in it
        loop.run(_a_month(cosmos))


async def _a_month(cosmos: CosmosInMemory) -> None:
    server: Any = cosmos
    async with contacts_database(server) as database:
        bus = BusPublisher(limit=740)
        made = service.wire(_settings(cosmos, database), Clients(publisher=lambda *_: bus))
        async with made.resources:
            world = World(made, database, bus)
            with service.taken_from(world.application):
                await world.live_and_die()


def _settings(cosmos: CosmosInMemory, database: DatabaseProxy) -> Mapping[str, str]:
    broker = "Endpoint=sb://x.invalid;SharedAccessKeyName=k;SharedAccessKey=a2V5;UseDevelopmentEmulator=true;"
    return {"COSMOS": cosmos.connection_string, "COSMOS_DATABASE": database.id, "SERVICEBUS": broker}


@dataclass
class World:
    """The contact service, whose broker refuses long messages."""

    application: Wired
    database: DatabaseProxy
    bus: BusPublisher
    delivered: set[str] = field(default_factory=set)

    async def live_and_die(self) -> None:
        sent, parked, late, unheard, aside = [await self.create() for _ in range(5)]
        await self.lengthen(parked)
        await self.forward(sent, parked, unheard, aside)
        await self.deliver(sent, parked, unheard)
        await self.set_aside(aside)
        assert set(await self.found()) == PERSONAL, "the strings are found before"

        for each in (sent, parked, unheard, aside):
            await self.delete(each)
        await self.lengthen(late)
        await self.delete(late)
        for each in (sent, parked, late, unheard, aside):
            assert await self.tombstone(each) == EMPTIED
        await self.forward(sent, parked, unheard, aside)
        await self.deliver(sent, parked)  # the message of the third one is lost
        assert await self.entry(sent) is None
        await self.pass_days(2)
        assert await self.entry(unheard) is None, "found without its message"

        await self.pass_days(7)
        await self.forward(late)  # the relay was away, and parks when its events are about to expire
        assert "parked-events" in await self.found()
        await self.pass_days(10)
        await asyncio.sleep(2 * DAY)  # nothing runs when the first one is to be discarded
        await self.pass_days(9)
        assert await self.found() == {}, "30 days after the deletion"

    async def create(self) -> UUID:
        """With a key, so that there is a record of the first answer."""
        at, key = utc_now(), KeyedRequest("a caller", uuid4().hex, "a body")

        def make(new_id: UUID) -> Contact:
            return Contact.create(DETAILS, at=at, id=new_id)

        receipt, _ = await self.application.aggregates.create_once(make, key, ORIGIN)
        return receipt.aggregate.id

    async def lengthen(self, contact: UUID) -> None:
        """So that the event cannot be sent."""
        text = f"{SECRETS[4]} " * 33
        await self.application.aggregates.change(
            Contact, str(contact), lambda each: each.describe(text, at=utc_now()), ORIGIN
        )

    async def delete(self, contact: UUID) -> None:
        """With a key, and twice: the first answer is lost."""
        key = KeyedRequest("a caller", uuid4().hex, "")
        for _ in range(2):
            await self.application.aggregates.change_once(
                Contact, str(contact), lambda each: each.delete(at=utc_now()), key, ORIGIN
            )

    async def forward(self, *contacts: UUID) -> None:
        """What a relay does with a page."""
        items = [await self.items("contacts", str(each)) for each in contacts]
        await self.application.relay.relay.forward(EVENTS.events([item for each in items for item in each]))

    async def deliver(self, *contacts: UUID) -> None:
        receiver = subscriber_of(self.application).receiver
        for contact in contacts:
            for event in EVENTS.events(await self.items("contacts", str(contact))):
                assert isinstance(event, OutboxEvent)
                sent = message_of(event)
                await receiver.receive(
                    Delivery(
                        "contact-directory", sent.id, len(self.delivered) + 1, sent.body, sent.properties
                    )
                )
                self.delivered.add(event.id)

    async def set_aside(self, contact: UUID) -> None:
        """A message that nobody can read, with all that it holds."""
        body = json.dumps({"contactId": str(contact), "text": SECRETS}).encode()
        receiver = subscriber_of(self.application).receiver
        await receiver.receive(Delivery("contact-directory", "m", 99, body, {"aggregateType": "contact"}))

    async def pass_days(self, days: int) -> None:
        """With the timers running."""
        for _ in range(days):
            await asyncio.sleep(DAY)
            for name in TIMERS:
                await functions()[name].get_user_function()(timer=None)

    async def found(self) -> dict[str, Sequence[str]]:
        """The strings that are in each container; the body of a message is in base64."""
        found: dict[str, Sequence[str]] = {}
        async for container in self.database.list_containers():
            items = await self.items(container["id"])
            bodies = [base64.b64decode(each["body"]).decode() for each in items if each.get("body")]
            text = json.dumps(items) + "".join(bodies)
            if secrets := [each for each in SECRETS if each.casefold() in text.casefold()]:
                found[container["id"]] = secrets
        return found

    async def items(self, container: str, partition_key: str | None = None) -> list[dict[str, Any]]:
        proxy = self.database.get_container_client(container)
        found = [item async for item in proxy.query_items("SELECT * FROM c")]
        return [each for each in found if partition_key in (None, each.get("partitionKey"))]

    async def tombstone(self, contact: UUID) -> set[str]:
        [item] = [each for each in await self.items("contacts", str(contact)) if each["type"] == "contact"]
        return {*item["data"]}

    async def entry(self, contact: UUID) -> Any:
        [item] = await self.items("directory", str(contact))
        return item["data"]

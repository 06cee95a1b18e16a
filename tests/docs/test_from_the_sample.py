"""What docs/use/from-the-sample.md says of the documents of Microsoft's C# sample, with those of its article."""

import re
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from azure.cosmos.aio import ContainerProxy

from cosmos_outbox.cosmos.aggregates.documents import EventReader
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.servicebus.message import session_of
from devstack.testing import Service
from domain.values import ContactDetails
from tests.support.azure import CONTACTS, contacts_database
from tests.support.contacts import ORIGIN
from tests.support.paths import ROOT
from tests.support.use_cases import contacts_of, wire

PAGE = (ROOT / "docs" / "use" / "from-the-sample.md").read_text()
[SCRIPT] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
ID = "b5e2e7aa-4982-4735-9422-c39a7c4af5c2"
CONTACT: dict[str, Any] = {
    "id": ID, "partitionKey": ID, "type": "contact",
    "data": {
        "name": {"firstName": "John", "lastName": "Doe"}, "description": "This is a contact",
        "email": "johndoe@contoso.com",
        "company": {
            "companyName": "Contoso", "street": "Street", "houseNumber": "1a", "postalCode": "092821",
            "city": "Palo Alto", "country": "US",
        },
        "createdAt": "2021-09-22T11:07:37.3022907+02:00", "deleted": False, "id": ID,
    },
    "ttl": -1,
}  # fmt: skip
EVENT: dict[str, Any] = {
    "id": "d6a5f4b2-84c3-4ac7-ae22-6f4025ba9ca0", "partitionKey": ID, "type": "domainEvent",
    "data": {
        "name": {"firstName": "Jane", "lastName": "Doe"}, "contactId": ID, "action": "ContactNameUpdatedEvent",
        "id": "d6a5f4b2-84c3-4ac7-ae22-6f4025ba9ca0", "createdAt": "2021-09-22T11:37:37.3022907+02:00",
    },
    "ttl": 120,
}  # fmt: skip


@pytest.fixture
async def moved(
    cosmos_server: Service, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[ContainerProxy, dict[str, str]]]:
    """The container with a contact of the sample, and the settings."""
    async with contacts_database(cosmos_server) as database:
        container = database.get_container_client(CONTACTS)
        await container.create_item(CONTACT)
        settings = {"COSMOS": cosmos_server.connection_string, "COSMOS_DATABASE": database.id}
        monkeypatch.setenv("COSMOS", settings["COSMOS"])
        yield container, settings


def renamed(before: ContactDetails) -> ContactDetails:
    return before.model_copy(update={"email": "jane@contoso.com"})


async def test_a_contact_is_changed_once_it_is_numbered(
    moved: tuple[ContainerProxy, dict[str, str]],
) -> None:
    container, settings = moved
    application = wire(settings | {"SERVICEBUS": "Endpoint=sb://b"})
    async with application.outbox.resources:
        contacts = contacts_of(application)
        with pytest.raises(ValueError, match="is stored without lastSequence"):
            await contacts.revise(UUID(ID), renamed, ORIGIN)

        lines = SCRIPT.replace('"tobp"', f'"{settings["COSMOS_DATABASE"]}"').replace(
            '"data"', f'"{CONTACTS}"'
        )
        assert lines.count(settings["COSMOS_DATABASE"]) == 1
        exec(lines, {})
        await contacts.revise(UUID(ID), renamed, ORIGIN)
    stored = await container.read_item(ID, ID)
    assert (stored["data"]["email"], stored["data"]["lastSequence"]) == ("jane@contoso.com", 1)


def test_an_event_of_the_sample_is_sent_in_the_session_that_it_had() -> None:
    event = EventReader(untyped="contact").event(EVENT | {"_etag": "x", "_ts": 1, "_lsn": 1})
    assert isinstance(event, OutboxEvent)
    assert (event.id, event.sequence) == (EVENT["id"], None)
    assert session_of(event.aggregate, None) == ID

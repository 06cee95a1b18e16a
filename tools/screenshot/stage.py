"""Fills a service with sample data: traffic, parked contacts and messages that are set aside."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from azure.cosmos.aio import CosmosClient, DatabaseProxy
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from devstack.testing import Stack, eventually

DETAILS = {
    "name": {"firstName": "John", "lastName": "Doe"},
    "email": "johndoe@contoso.com",
    "description": "met in Oslo",
    "company": {"companyName": "Contoso", "city": "Oslo", "country": "NO"},
}
TOO_LARGE = 300_000
"""The number of characters: more than the topic takes in a message."""


class Stage:
    """The contact service of a stack, and the sample data in it."""

    def __init__(
        self, stack: Stack, http: aiohttp.ClientSession, database: DatabaseProxy, topic: str
    ) -> None:
        self.url = stack.functions.address.rstrip("/") + "/api"
        self._stack = stack
        self._http = http
        self._database = database
        self._topic = topic

    async def call(self, method: str, path: str, **body: Any) -> Any:
        """Returns the JSON answer of a call that succeeds."""
        async with self._http.request(method, f"{self.url}/{path}", json=body or None) as answer:
            answer.raise_for_status()
            return await answer.json()

    async def create(self, **details: Any) -> str:
        """Creates a contact and returns its id."""
        return str((await self.call("POST", "contacts", **(DETAILS | details)))["id"])

    async def park(self, *, behind: int = 0) -> str:
        """Creates a contact with an event that the topic never takes, and ``behind`` more behind it; returns its id."""
        contact_id = await self.create()
        event_id = str(uuid.uuid4())
        item = {
            "id": event_id, "partitionKey": contact_id, "type": "domainEvent", "aggregateType": "contact",
            "ttl": 86_400,
            "data": {"id": event_id, "contactId": contact_id, "action": "ContactDescriptionUpdatedEvent", "sequence": 2,
                     "createdAt": "2026-03-01T12:00:00Z", "description": "x" * TOO_LARGE},
        }  # fmt: skip
        container = self._database.get_container_client("contacts")
        await container.create_item(item)
        await eventually(lambda: self._parked(contact_id, 1), within=30)
        stored = await container.read_item(contact_id, contact_id)
        stored["data"]["lastSequence"] = 2  # counts the event that was written past the API
        await container.replace_item(contact_id, stored)
        for number in range(behind):
            await self.call("PATCH", f"contacts/{contact_id}", description=f"change {number}")
        await eventually(lambda: self._parked(contact_id, 1 + behind), within=30)
        return contact_id

    async def refuse_a_message(self) -> None:
        """Sends a message that is no event, so that it is set aside."""
        junk = str(uuid.uuid4())
        async with (
            ServiceBusClient.from_connection_string(self._stack.servicebus.connection_string) as client,
            client.get_topic_sender(self._topic) as sender,
        ):
            await sender.send_messages(ServiceBusMessage(b"junk", message_id=junk, session_id=junk))
        await eventually(lambda: self._set_aside("refused"), within=30)

    async def break_an_entry(self) -> Callable[[], Awaitable[None]]:
        """Damages an entry, so that a message of its contact is set aside; returns the function that repairs it."""
        contact_id = await self.create()
        entries = self._database.get_container_client("directory")

        async def entry() -> dict[str, Any] | None:
            found = [item async for item in entries.query_items("SELECT * FROM c", partition_key=contact_id)]
            return dict(found[0]) if found else None

        whole = await eventually(entry, within=30)
        assert whole is not None
        placeless = {name: value for name, value in whole.items() if name != "lastSequence"}
        await entries.replace_item(whole["id"], placeless)
        await self.call("PATCH", f"contacts/{contact_id}", name={"firstName": "Jane"})
        await eventually(lambda: self._set_aside("waiting"), within=30)

        async def repair() -> None:
            await entries.replace_item(whole["id"], whole)

        return repair

    async def traffic(self, *, pause: float = 0.02) -> None:
        """Creates and changes contacts until cancelled."""
        while True:
            contact_id = await self.create()
            await self.call(
                "PATCH", f"contacts/{contact_id}", name={"firstName": "Jane"}, description="again"
            )
            await asyncio.sleep(pause)

    async def _parked(self, contact_id: str, count: int) -> bool:
        items = (await self.call("GET", "stuck?pageSize=100"))["items"]
        return [item["aggregateId"] for item in items if item["kind"] == "event"].count(contact_id) >= count

    async def _set_aside(self, state: str) -> bool:
        return bool((await self.call("GET", "subscribers"))["items"][0]["setAside"].get(state))


@asynccontextmanager
async def staged(stack: Stack, topic: str, *, key: str = "") -> AsyncIterator[Stage]:
    """Yields a stack's stage with the contact service; ``topic`` is the name of its topic, ``key`` its admin key."""
    headers = {"x-functions-key": key} if key else {}
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30), headers=headers) as http,
        CosmosClient.from_connection_string(stack.cosmos.connection_string) as client,
    ):
        yield Stage(stack, http, client.get_database_client("contacts"), topic)

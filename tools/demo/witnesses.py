"""Observes each side of the service with an official client: HTTP, the stored documents, a subscriber.

The demo's subscriber has a subscription of its own, so that it never takes a message from the app's function.
"""

import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import aiohttp
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.servicebus.message import session_of
from cosmos_outbox.settings.transports import SESSIONS
from devstack.administration import administration_client
from devstack.local_azure import LocalAzure
from tools.demo.narrator import Narrator

SUBSCRIPTION = "demo"
ARRIVES_WITHIN_SECONDS = 10.0


@dataclass(frozen=True)
class Answer:
    """A response of the API."""

    status: int
    etag: str
    location: str
    body: Any


class Api:
    """Calls the service over HTTP and shows each call."""

    def __init__(self, session: aiohttp.ClientSession, narrator: Narrator) -> None:
        self._session = session
        self._narrator = narrator

    async def call(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Make one call. ``headers`` are in snake_case, such as ``if_match``."""
        sent = {name.replace("_", "-").title(): value for name, value in headers.items()}
        if method == "PATCH":
            sent["Content-Type"] = "application/merge-patch+json"
        self._narrator.show(
            " ".join([method, path, *(f"[{name}: {value}]" for name, value in sent.items())]), body
        )
        async with self._session.request(method, path, json=body, headers=sent) as response:
            content = await response.json(content_type=None) if response.content_length else None
            answer = Answer(
                response.status,
                response.headers.get("ETag", ""),
                response.headers.get("Location", ""),
                content,
            )
        self._narrator.show(
            f"-> {answer.status}" + (f" [ETag: {answer.etag}]" if answer.etag else ""), content
        )
        return answer


class Store:
    """Reads the container."""

    def __init__(self, container: ContainerProxy) -> None:
        self._container = container

    async def documents(self, contact_id: str) -> list[dict[str, Any]]:
        """Returns all documents in a contact's partition: the contact first, then its events in order."""
        found = [
            item async for item in self._container.query_items("SELECT * FROM c", partition_key=contact_id)
        ]
        return sorted(found, key=lambda item: int(item["data"].get("sequence", 0)))


class Subscriber:
    """Holds one contact's session and keeps the received messages in their order."""

    def __init__(self, receiver: ServiceBusReceiver, sender: ServiceBusSender) -> None:
        self.received: list[ServiceBusReceivedMessage] = []
        self._receiver = receiver
        self._sender = sender

    async def next(self, count: int) -> list[ServiceBusReceivedMessage]:
        """Returns the next ``count`` messages; fewer if no message comes for 10 s."""
        got: list[ServiceBusReceivedMessage] = []
        while len(got) < count:
            batch = await self._receiver.receive_messages(
                count - len(got), max_wait_time=ARRIVES_WITHIN_SECONDS
            )
            if not batch:
                break
            for message in batch:
                await self._receiver.complete_message(message)
            got += batch
        self.received += got
        return got

    async def send_again(self, message: ServiceBusReceivedMessage) -> None:
        """Publishes a message again, as a publisher does when the first answer was lost."""
        copy = ServiceBusMessage(
            b"".join(message.body),
            message_id=message.message_id,
            session_id=message.session_id,
            subject=message.subject,
            content_type=message.content_type,
            correlation_id=message.correlation_id,
            application_properties=message.application_properties,
        )
        await self._sender.send_messages(copy, timeout=ARRIVES_WITHIN_SECONDS)


def sequences(messages: Iterable[ServiceBusReceivedMessage]) -> list[int]:
    """Returns the sequence of each message's event."""
    return [int(json.loads(b"".join(message.body))["sequence"]) for message in messages]


class Witnesses:
    """The clients of all sides of one stack."""

    def __init__(self, stack: LocalAzure, api: Api, store: Store, servicebus: ServiceBusClient) -> None:
        self.api = api
        self.store = store
        self._topic = stack.settings.app.servicebus.topics[0].name
        self._servicebus = servicebus

    @contextlib.asynccontextmanager
    async def subscriber(self, contact_id: str) -> AsyncIterator[Subscriber]:
        """Yields a subscriber that holds the session of the contact's events, which no other contact shares."""
        receiver = self._servicebus.get_subscription_receiver(
            self._topic, SUBSCRIPTION, session_id=session_of(AggregateKey("contact", contact_id), SESSIONS)
        )
        async with receiver, self._servicebus.get_topic_sender(self._topic) as sender:
            yield Subscriber(receiver, sender)


@contextlib.asynccontextmanager
async def opened(stack: LocalAzure, narrator: Narrator) -> AsyncIterator[Witnesses]:
    """Yields clients of the stack's services, and the demo's subscription, which gets what is published from now on."""
    assert stack.functions
    assert stack.cosmos_connection
    assert stack.servicebus_connection
    await _make_subscription(stack)
    contacts, timeout = (
        stack.settings.app.cosmos.containers[0],
        aiohttp.ClientTimeout(total=ARRIVES_WITHIN_SECONDS),
    )
    async with (
        aiohttp.ClientSession(stack.functions.addresses[0], timeout=timeout) as http,
        CosmosClient.from_connection_string(stack.cosmos_connection) as cosmos,
        ServiceBusClient.from_connection_string(stack.servicebus_connection) as servicebus,
    ):
        container = cosmos.get_database_client(contacts.database).get_container_client(contacts.name)
        yield Witnesses(stack, Api(http, narrator), Store(container), servicebus)


async def _make_subscription(stack: LocalAzure) -> None:
    assert stack.servicebus_admin_connection
    async with administration_client(stack.servicebus_admin_connection) as admin:
        await admin.create_subscription(
            stack.settings.app.servicebus.topics[0].name,
            SUBSCRIPTION,
            requires_session=True,
            lock_duration=timedelta(minutes=5),
        )

"""The cost of the outbox compared with the raw SDKs, both measured in the same run against devstack.

``python -m tools.benchmarks.outbox [--contacts N]`` compares writing a contact with its event to the bare transactional
batch, and forwarding a backlog to sending the same messages with the bare SDK, batched and one by one.
"""

from infra import installed

if __name__ == "__main__":
    installed.require("benchmark", "requirements-dev.txt")

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from devstack.testing import Service, running
from domain.contact import Contact
from infra.bootstrap import Application, wire
from infra.contacts.documents import CONTACTS as NAMES
from infra.cosmos.documents import DIGEST, aggregate_item, digest, event_item
from infra.servicebus.message import CloudEvents, message_from_event
from infra.settings import load
from outbox.feed import OutboxEvent
from tests.support.azure import CONTACTS, LEASES, PARKED, Topic
from tests.support.contacts import DETAILS, NOON, ORIGIN
from tests.support.feed import EVENTS, event_document

EVENTS_EACH = 5


async def timed(action: Callable[[], Awaitable[Any]]) -> float:
    began = time.perf_counter()
    await action()
    return time.perf_counter() - began


def report(name: str, count: int, ours: float, raw: float, raw_name: str) -> None:
    print(
        f"{name:<34}{count / ours:>8.0f}/s   {raw_name:<28}{count / raw:>8.0f}/s   ours/raw time {ours / raw:>5.2f}"
    )


async def deploy(cosmos: Service, topic: Topic) -> None:
    async with CosmosClient.from_connection_string(cosmos.connection_string) as client:
        database = await client.create_database("bench")
        await database.create_container(CONTACTS, PartitionKey("/partitionKey"), default_ttl=-1)
        await database.create_container(LEASES, PartitionKey("/id"))
        await database.create_container(PARKED, PartitionKey("/partitionKey"), default_ttl=-1)
    await topic.create()


async def writes(application: Application, cosmos: Service, count: int) -> None:
    """Writes one contact with its event: through the use case, and as a bare batch of the same two documents."""
    async with CosmosClient.from_connection_string(cosmos.connection_string) as client:
        container = client.get_database_client("bench").get_container_client(CONTACTS)

        async def raw() -> None:
            for _ in range(count):
                state, event = _documents()
                await container.execute_item_batch([("create", (state,)), ("create", (event,))], state["id"])

        async def ours() -> None:
            for _ in range(count):
                await application.contacts.create(DETAILS, ORIGIN)

        await ours()
        await raw()
        report(
            "create a contact with its event", count, await timed(ours), await timed(raw), "bare batch of two"
        )


def _documents() -> tuple[dict[str, Any], dict[str, Any]]:
    contact = Contact.create(DETAILS, at=NOON)
    changes = contact.changes()
    assert changes is not None
    event = event_item(contact, changes.events[0], ORIGIN, ttl=60)
    return aggregate_item(contact, changes.state, ttl=-1), event


Pages = list[list[dict[str, Any]]]


def backlog(contacts: int) -> Pages:
    """The events of several contacts, in feed pages of 100 items."""
    written = {"_ts": int(time.time())}
    names = [str(uuid4()) for _ in range(contacts)]
    items = [
        _committed(event_document(name, sequence) | written)
        for name in names
        for sequence in range(1, EVENTS_EACH + 1)
    ]
    return [items[start : start + 100] for start in range(0, len(items), 100)]


def _committed(item: dict[str, Any]) -> dict[str, Any]:
    """With the digest that a commit stores: without it the relay would read each document again."""
    return item | {DIGEST: digest(item)}


def messages(items: list[dict[str, Any]]) -> list[ServiceBusMessage]:
    events = [event for event in EVENTS.events(items) if isinstance(event, OutboxEvent)]
    return [
        message_from_event(event, service=CloudEvents(NAMES.source), partitioned=False) for event in events
    ]


async def relay(application: Application, pages: Pages) -> None:
    for page in pages:
        forwarded = await application.outbox.forward(page)
        assert forwarded.sent == len(page), "an event that is parked is no measurement"


async def bare_batches(sender: ServiceBusSender, pages: Pages) -> None:
    for page in pages:
        for start in range(0, len(page), EVENTS_EACH):
            await sender.send_messages(messages(page[start : start + EVENTS_EACH]))


async def bare_messages(sender: ServiceBusSender, pages: Pages) -> None:
    for page in pages:
        for message in messages(page):
            await sender.send_messages(message)


async def forwards(application: Application, servicebus: Service, topic: Topic, contacts: int) -> None:
    """Sends the same backlog in three ways, one feed page after the other."""
    count = contacts * EVENTS_EACH
    async with (
        ServiceBusClient.from_connection_string(servicebus.connection_string) as client,
        client.get_topic_sender(topic.name) as sender,
    ):
        await relay(application, backlog(40))
        elapsed = await timed(partial(relay, application, backlog(contacts)))
        batched = await timed(partial(bare_batches, sender, backlog(contacts)))
        single = await timed(partial(bare_messages, sender, backlog(contacts)))
    report(f"forward, {EVENTS_EACH} events a contact", count, elapsed, batched, "bare SDK, a batch a contact")
    report("", count, elapsed, single, "bare SDK, one by one")


async def measure(cosmos: Service, servicebus: Service, contacts: int) -> None:
    topic = Topic(servicebus)
    await deploy(cosmos, topic)
    application = wire(
        load(
            {
                "COSMOS": cosmos.connection_string,
                "COSMOS_DATABASE": "bench",
                "SERVICEBUS": servicebus.connection_string,
                "SERVICEBUS_TOPIC": topic.name,
            }
        )
    )
    async with application.outbox.resources:
        await writes(application, cosmos, contacts)
        await forwards(application, servicebus, topic, contacts)


def main() -> None:
    """Start both servers, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m tools.benchmarks.outbox", description=__doc__)
    parser.add_argument("--contacts", type=int, default=400)
    given = parser.parse_args()
    print(f"outbox against the bare SDKs, on devstack, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder:
        data = {name: Path(folder) / name for name in ("cosmos", "servicebus")}
        with (
            running(Service("cosmos", data["cosmos"])) as cosmos,
            running(Service("servicebus", data["servicebus"])) as servicebus,
        ):
            asyncio.run(measure(cosmos, servicebus, given.contacts))


if __name__ == "__main__":
    main()

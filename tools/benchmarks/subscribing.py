"""Measures how fast waiting events are applied: by the worker, the function on devstack's host, and a bare consumer.

The first two keep the contact directory. The bare consumer has no sessions, stores a document for each message and
completes it: it keeps no order, and sees no gap.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import uuid4

from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from azure.servicebus.aio import ServiceBusClient

from cosmos_outbox.cosmos.store.client import TrackingTransport
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import CloudEvents
from cosmos_outbox.servicebus.message import message_from_event
from cosmos_outbox.worker import subscriber
from devstack.administration import administration_client
from devstack.local_settings import read_values, sample_file
from devstack.testing import Process, Service, eventually
from tests.support.use_cases import wire
from tools.benchmarks.bed import ROOT, Bed
from tools.benchmarks.measured import Part, Row
from tools.benchmarks.relaying import NewBed, Say

BACKLOGS = {1: 1_200, 10: 300}
"""The number of contacts, by the events of each."""
WANTED = {1: 0.7, 10: 0.8}
"""The rate of the worker, over that of the bare consumer."""
WANTED_OF_HOST = 0.4
REPEATS = 3
BARE = "bare"
"""The subscription of the bare consumer: without sessions."""
_LOOK_SECONDS = 0.05
_PATIENCE_SECONDS = 240.0
CONTACT = {"name": {"firstName": "Jane", "lastName": "Doe"}, "email": "jane@contoso.com", "description": ""}


async def rates(new_bed: NewBed, say: Say) -> Part:
    """Measures both, over the number of events of a contact; the median of three runs."""
    rows = []
    for each, contacts in BACKLOGS.items():
        found = []
        for number in range(REPEATS):
            say(f"subscriber: {contacts} contacts with {each} event(s), run {number + 1} of {REPEATS}")
            found.append(await _run(new_bed, contacts, each))
        mine, host, bare = (statistics.median(column) for column in zip(*found, strict=True))
        ratio, ratio_of_host = (statistics.median(each[side] / each[2] for each in found) for side in (0, 1))
        name = f"{contacts} contacts with {each} event{'s' if each > 1 else ''}"
        rows += [
            Row(
                f"subscriber worker, {name}",
                f"{mine:.0f}/s",
                f"{bare:.0f}/s: bare SDK, no sessions",
                ratio,
                WANTED[each],
            ),
            Row(
                f"subscriber function on devstack, {name}",
                f"{host:.0f}/s",
                f"{bare:.0f}/s: bare SDK, no sessions",
                ratio_of_host,
                WANTED_OF_HOST,
            ),
        ]
        say("subscriber: requests for an applied event")
        asked = await _requests(new_bed(), contacts // 10, each)
        rows.append(Row(f"Cosmos DB requests an event, {name}", f"{asked:.2f}", "", asked, 2.1, at_most=True))
    return Part(rows, [])


async def _run(new_bed: NewBed, contacts: int, each: int) -> tuple[float, float, float]:
    """Returns events a second: of the worker, of the function, of the bare consumer."""
    found = []
    for work in (worker, _host, bare_consumer):
        bed = new_bed()
        await deploy(bed)
        await _fill(bed, contacts, each)
        with work(bed):
            found.append(await _drained(bed, BARE if work is bare_consumer else bed.topic.subscription))
        if work is not bare_consumer:
            await _all_applied(bed, contacts, each)
    ours, host, bare = found
    return ours, host, bare


async def deploy(bed: Bed) -> None:
    """Creates what the contact service and the bare consumer need."""
    await bed.deploy()
    async with CosmosClient.from_connection_string(bed.cosmos.connection_string) as client:
        database = client.get_database_client(bed.database)
        for name in ("directory", "set-aside", "claims"):
            await database.create_container(name, PartitionKey("/partitionKey"), default_ttl=-1)
    async with administration_client(bed.servicebus.admin_connection_string) as admin:
        await admin.create_subscription(bed.topic.name, BARE)


async def _fill(bed: Bed, contacts: int, each: int) -> None:
    """Sends the events of contacts that are changed in turn, as the relay does, and stores these contacts.

    A walk that comes in the middle of a run finds each entry's source.
    """
    ids = [str(uuid4()) for _ in range(contacts)]
    await _store(bed, [_contact(each_id, each) for each_id in ids])
    events = [_event(contact, sequence) for sequence in range(1, each + 1) for contact in ids]
    send = partial(message_from_event, service=CloudEvents("/contacts"), partitioned=False)
    async with (
        ServiceBusClient.from_connection_string(bed.servicebus.connection_string) as client,
        client.get_topic_sender(bed.topic.name) as sender,
    ):
        for start in range(0, len(events), 100):
            await sender.send_messages([send(event) for event in events[start : start + 100]])


async def _store(bed: Bed, documents: Sequence[dict[str, Any]]) -> None:
    async with bed.contacts() as container:
        waiting = iter(documents)

        async def writer() -> None:
            for document in waiting:
                await container.create_item(document)

        await asyncio.gather(*(writer() for _ in range(16)))


def _contact(contact: str, last: int) -> dict[str, Any]:
    now = utc_now().isoformat()
    name = CONTACT["name"] if last == 1 else {"firstName": f"J{last}", "lastName": "Doe"}
    times = {"createdAt": now, "modifiedAt": None, "deletedAt": None, "deleted": False}
    data = CONTACT | {"id": contact, "name": name, "company": None, "lastSequence": last} | times
    return {"id": contact, "partitionKey": contact, "type": "contact", "data": data, "ttl": -1}


def _event(contact: str, sequence: int) -> OutboxEvent:
    action = "ContactCreatedEvent" if sequence == 1 else "ContactNameUpdatedEvent"
    now, event_id = utc_now(), str(uuid4())
    payload = (
        {"contact": CONTACT | {"createdAt": utc_now().isoformat()}}
        if sequence == 1
        else {"name": {"firstName": f"J{sequence}", "lastName": "Doe"}}
    )
    head = {"id": event_id, "contactId": contact, "action": action, "sequence": sequence}
    data = {**head, "createdAt": now.isoformat(), **payload}
    return OutboxEvent(event_id, AggregateKey("contact", contact), action, now, sequence=sequence, data=data)


async def _drained(bed: Bed, subscription: str) -> float:
    """Returns messages a second, from the time when the first are gone until none is left."""
    counts: list[tuple[float, int]] = []
    until = time.perf_counter() + _PATIENCE_SECONDS
    async with administration_client(bed.servicebus.admin_connection_string) as admin:
        while not counts or counts[-1][1]:
            assert time.perf_counter() < until, f"{counts[-1:]} are left in {subscription}"
            properties = await admin.get_subscription_runtime_properties(bed.topic.name, subscription)
            left = properties.active_message_count or 0
            if not counts or left != counts[-1][1]:
                counts.append((time.perf_counter(), left))
            await asyncio.sleep(_LOOK_SECONDS)
    (began, most), (ended, none) = counts[1], counts[-1]
    return (most - none) / (ended - began)


async def _all_applied(bed: Bed, contacts: int, each: int) -> None:
    """Waits until each entry has its contact's last event."""
    query = "SELECT VALUE COUNT(1) FROM c WHERE c.type = 'entry' AND c.lastSequence = @each"
    async with CosmosClient.from_connection_string(bed.cosmos.connection_string) as client:
        entries = client.get_database_client(bed.database).get_container_client("directory")
        parameters = [{"name": "@each", "value": each}]

        async def all_applied() -> bool:
            [applied] = [int(str(count)) async for count in entries.query_items(query, parameters=parameters)]
            return applied == contacts

        await eventually(all_applied, what=f"{contacts} entries have sequence {each}")


@contextmanager
def _process(bed: Bed, *arguments: str) -> Iterator[None]:
    command = [sys.executable, "-m", *arguments]
    process = Process("subscriber", bed.folder / "subscriber.log", command, _settings(bed), ROOT).start()
    try:
        yield
    finally:
        process.terminate()


def _settings(bed: Bed) -> dict[str, str]:
    return bed.settings | {"SERVICEBUS_SUBSCRIPTION": bed.topic.subscription, "BARE_SUBSCRIPTION": BARE}


@contextmanager
def worker(bed: Bed) -> Iterator[None]:
    """``cosmos-outbox subscriber``."""
    with _process(bed, "cosmos_outbox", "subscriber"):
        yield


@contextmanager
def bare_consumer(bed: Bed) -> Iterator[None]:
    """A program that stores a document for each message."""
    with _process(bed, "tools.benchmarks.bare_consumer"):
        yield


@contextmanager
def _host(bed: Bed) -> Iterator[None]:
    """With the relay's functions beside it, which find nothing to do."""
    empty, data = bed.folder / "no.settings.json", bed.folder / f"functions-{bed.database}"
    empty.write_text('{"Values": {}}')
    environment = read_values(sample_file(ROOT)) | _settings(bed)
    options = f"--app={ROOT}", f"--settings={empty}", "--stop-seconds=1"
    host = Service("functions", data, *options, environment=environment)
    host.start()
    try:
        yield
    finally:
        host.terminate()


async def _requests(bed: Bed, contacts: int, each: int) -> float:
    """Requests to Cosmos DB for an applied event, counted in a worker in this process."""
    await deploy(bed)
    await _fill(bed, contacts, each)
    application, stop, asked, send = wire(_settings(bed)), asyncio.Event(), 0, TrackingTransport.send

    async def counted(*given: object, **named: object) -> object:
        nonlocal asked
        asked += 1
        return await send(*given, **named)  # type: ignore[arg-type]  # passed on as they came

    TrackingTransport.send = counted  # type: ignore[method-assign]
    try:
        working = asyncio.create_task(subscriber.run(application, stop))
        await _drained(bed, bed.topic.subscription)
        stop.set()
        await working
    finally:
        TrackingTransport.send = send  # type: ignore[method-assign]
    await _all_applied(bed, contacts, each)
    return asked / (contacts * each)

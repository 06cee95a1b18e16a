"""Measures the time from a commit's answer until the event is accepted, and applied, in one process for all three.

The commit wakes the relay: its poll is so slow here that a forgotten wake would show. The subscriber's part is measured
for an open session, as that of an aggregate that changes again within half a second, and for one that has to be opened.
Beside it the same by hand with the SDKs: a batch, a message, a receiver of sessions and a stored document.
"""

import asyncio
import contextlib
import json
import random
import time
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient
from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError

from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.aggregate import Origin
from cosmos_outbox.service import Service, Wired
from cosmos_outbox.settings.names import Names
from cosmos_outbox.worker.running import running
from devstack.testing import eventually
from examples.fastapi.directory import FORM, entry_of, project
from examples.fastapi.person import Details, Person
from tools.benchmarks.bare import message
from tools.benchmarks.bed import Bed, backlog
from tools.benchmarks.latency import compared
from tools.benchmarks.measured import Part, Row
from tools.benchmarks.relaying import NewBed, Say

COUNT = 50
_ORIGIN = Origin("benchmark")
_DIRECTORY = "directory"


@dataclass
class _Noted:
    """Wraps an object, and records when one of its calls ended."""

    of: Any
    call: str
    ended: list[float] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.of, name)
        if name != self.call:
            return found

        async def noted(*given: Any, **named: Any) -> Any:
            result = await found(*given, **named)
            self.ended.append(time.perf_counter())
            return result

        return noted


@dataclass(frozen=True)
class _Times:
    """The milliseconds since the commit's answer."""

    accepted: list[float] = field(default_factory=list)
    applied: list[float] = field(default_factory=list)


async def latencies(new_bed: NewBed, say: Say) -> Part:
    """Measures an open session, and one that has to be opened."""
    rows: list[Row] = []
    for name, is_open in (("session open", True), ("session to be opened", False)):
        say(f"in one process: {COUNT} events, one at a time, {name}")
        ours, bare = (
            await _measure(new_bed(), is_open=is_open),
            await _measure_bare(new_bed(), is_open=is_open),
        )
        rows += compared(f"one process, {name}: commit to accepted", ours.accepted, bare.accepted, 15)
        rows += compared(f"one process, {name}: commit to applied", ours.applied, bare.applied, 6)
    return Part(rows, [])


async def _measure(bed: Bed, *, is_open: bool) -> _Times:
    service = Service(
        "people", [Person], Names(database=bed.database, container="people", topic=bed.topic.name)
    )
    board = service.read_model(_DIRECTORY, of=Person, form=FORM, state_of=entry_of, project=project)
    await _deploy(bed)
    times = _Times()
    settings = bed.settings | {"RELAY_POLL_DELAY_MS": "60000", "COSMOS_DATABASE": bed.database}
    async with running(service, environment=settings, slots=4) as at_work:
        wired = at_work.wired
        relay = wired.relay.relay
        sent = _Noted(relay.publisher, "publish")
        object.__setattr__(relay, "publisher", sent)  # frozen, but a benchmark has to wrap it
        inbox = wired.read_model(board).inbox
        put = _Noted(inbox.entries, "put")
        object.__setattr__(inbox, "entries", put)
        person = await _added(wired)
        await eventually(lambda: put.ended, within=90, what="the relay and the subscriber are up")
        for number in range(COUNT):
            await asyncio.sleep(random.uniform(0.05, 0.3))  # noqa: S311 - no secret
            sent.ended.clear()
            put.ended.clear()
            if is_open:
                await _renamed(wired, person, f"Number {number}")
            else:
                await _added(wired)
            committed = time.perf_counter()
            await eventually(lambda: sent.ended and put.ended, within=30)
            times.accepted.append((sent.ended[0] - committed) * 1000)
            times.applied.append((put.ended[0] - committed) * 1000)
    return times


async def _measure_bare(bed: Bed, *, is_open: bool) -> _Times:
    await _deploy(bed)
    times, applied, person = _Times(), list[float](), str(uuid4())
    async with (
        CosmosClient.from_connection_string(bed.cosmos.connection_string) as cosmos,
        ServiceBusClient.from_connection_string(bed.servicebus.connection_string) as servicebus,
        servicebus.get_topic_sender(bed.topic.name) as sender,
    ):
        database = cosmos.get_database_client(bed.database)
        people, entries = database.get_container_client("people"), database.get_container_client(_DIRECTORY)

        async def receive() -> None:
            while True:
                async with servicebus.get_subscription_receiver(
                    bed.topic.name, _DIRECTORY, session_id=NEXT_AVAILABLE_SESSION
                ) as receiver:
                    with contextlib.suppress(OperationTimeoutError):
                        while messages := await receiver.receive_messages(
                            1, max_wait_time=0.5 if is_open else 0.05
                        ):
                            data = json.loads(b"".join(messages[0].body))
                            key = data["contactId"]
                            await entries.upsert_item({"id": key, "partitionKey": key, "data": data["name"]})
                            applied.append(time.perf_counter())
                            await receiver.complete_message(messages[0])

        receiving = asyncio.create_task(receive())
        for number in range(COUNT + 1):
            await asyncio.sleep(random.uniform(0.05, 0.3))  # noqa: S311 - no secret
            applied.clear()
            [document] = backlog(1, 1)
            if is_open:
                document["aggregateId"] = document["data"]["contactId"] = person
            await people.execute_item_batch([("create", (document,))], document["partitionKey"])
            committed = time.perf_counter()
            await sender.send_messages([message(document)])
            accepted = time.perf_counter()
            await eventually(lambda: applied, within=30)
            if number:  # the first opens the connections
                times.accepted.append((accepted - committed) * 1000)
                times.applied.append((applied[0] - committed) * 1000)
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)
    return times


async def _added(wired: Wired) -> str:
    person = Person.add(Details(name="Ada", email="ada@contoso.com"), at=utc_now())
    return (await wired.aggregates.create(person, _ORIGIN)).aggregate.aggregate_id


async def _renamed(wired: Wired, person: str, name: str) -> None:
    def rename(each: Person) -> None:
        each.change(Details(name=name, email="ada@contoso.com"), at=utc_now())

    await wired.aggregates.change(Person, person, rename, _ORIGIN)


async def _deploy(bed: Bed) -> None:
    async with CosmosClient.from_connection_string(bed.cosmos.connection_string) as client:
        database = await client.create_database(bed.database)
        for name in ("people", "people-parked", "people-claims", "people-set-aside", _DIRECTORY):
            await database.create_container(name, PartitionKey("/partitionKey"), default_ttl=-1)
        await database.create_container("people-leases", PartitionKey("/id"), default_ttl=-1)
    await bed.topic.create(_DIRECTORY)

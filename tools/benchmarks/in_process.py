"""Measures the time from a commit's answer until the event is accepted, and applied, in one process for all three.

The commit wakes the relay: its poll is so slow here that a forgotten wake would show. The subscriber's part is measured
for an open session, as that of an aggregate that changes again within half a second, and for one that has to be opened.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from azure.cosmos import PartitionKey
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.unit_of_work import Origin
from cosmos_outbox.service import Service, Wired
from cosmos_outbox.settings.names import Names
from cosmos_outbox.worker.running import running
from devstack.testing import eventually
from examples.fastapi.directory import FORM, entry_of, project
from examples.fastapi.person import Details, Person
from tools.benchmarks.bed import Bed
from tools.benchmarks.measured import Part, Row
from tools.benchmarks.relaying import NewBed, Say

COUNT = 100
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
    rows = []
    for name, is_open, wanted in (("session open", True, 25), ("session to be opened", False, 1000)):
        say(f"in one process: {COUNT} events, one at a time, {name}")
        times = await _measure(new_bed(), is_open=is_open)
        rows += [
            _row(f"one process, {name}: commit to accepted", times.accepted, 25),
            _row(f"one process, {name}: commit to applied", times.applied, wanted),
        ]
    return Part(rows, [])


def _row(name: str, times: Sequence[float], wanted: float) -> Row:
    p50, p99 = statistics.median(times), sorted(times)[int(len(times) * 0.99) - 1]
    return Row(f"{name}: p50", f"{p50:.1f} ms, p99 {p99:.0f} ms", "", p50, wanted, " ms", at_most=True)


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
            await eventually(lambda: put.ended, within=30)
            times.accepted.append((sent.ended[0] - committed) * 1000)
            times.applied.append((put.ended[0] - committed) * 1000)
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

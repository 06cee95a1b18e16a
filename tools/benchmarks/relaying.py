"""Measures how fast a backlog is sent: by the relay worker, and by the bare SDK with the same messages."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from azure.servicebus.aio import ServiceBusClient

from devstack.testing import Process, eventually
from tests.support.use_cases import wire
from tools.benchmarks import bare
from tools.benchmarks.bed import ROOT, Arrivals, Bed, backlog
from tools.benchmarks.cosmos import memory_mb
from tools.benchmarks.measured import Chart, Part, Row, Series

NewBed = Callable[[], Bed]
Say = Callable[[str], None]

EVENTS_EACH = (1, 5, 20)
ROUND_TRIPS_MS = (1, 20, 50)
REPEATS = 2
"""The runs of each; the quicker one counts on either side, as the one that was disturbed least."""

BACKLOG = 20_000
LARGE_BACKLOG = 100_000
SESSIONS = 150
"""The number of sessions: few, since each takes a round trip after the one before."""


async def _rates(new_bed: NewBed, each: int, count: int = BACKLOG) -> tuple[float, float]:
    """Returns events in a second: the worker's, and the bare SDK's in batches of 100."""
    bed = new_bed()
    await bed.deploy()
    await bed.store(backlog(count // each, each))
    async with (
        ServiceBusClient.from_connection_string(bed.servicebus.connection_string) as client,
        client.get_topic_sender(bed.topic.name) as sender,
    ):
        documents = backlog(count // each, each)
        await bare.send_batches(sender, documents[:100])
        began = time.perf_counter()
        await bare.send_batches(sender, documents[100:])
        raw = (len(documents) - 100) / (time.perf_counter() - began)
    return (await relayed(bed, count)).rate, raw


async def best(measure: Callable[[], Awaitable[tuple[float, float]]]) -> tuple[float, float]:
    """Returns the better of each of the two rates."""
    ours, raw = zip(*[await measure() for _ in range(REPEATS)], strict=True)
    return max(ours), max(raw)


async def relayed(bed: Bed, count: int, **settings: str) -> Arrivals:
    watching = asyncio.create_task(bed.arrivals(count))
    await asyncio.sleep(0)
    with bed.worker(**settings):
        return await watching


async def throughput(new_bed: NewBed, say: Say) -> Part:
    """Measures the throughput over the number of events of a contact."""
    ours, raw, ratios = [], [], {}
    for each in EVENTS_EACH:
        say(f"relay: {BACKLOG} events, {each} of each contact")
        mine, theirs = await best(partial(_rates, new_bed, each))
        ours.append((float(each), mine))
        raw.append((float(each), theirs))
        ratios[each] = (mine, theirs)
    rows = [
        Row(
            f"relay worker, backlog of {each} event{'s' if each > 1 else ''} a contact",
            f"{ratios[each][0]:.0f}/s",
            f"{ratios[each][1]:.0f}/s: bare SDK, batches of 100",
            ratios[each][0] / ratios[each][1],
            wanted,
        )
        for each, wanted in ((5, 0.9), (1, 0.9))
    ]
    chart = Chart(
        "throughput",
        "Events a second, over the events of a contact",
        "events of each contact in the backlog",
        "events a second",
        [Series("relay worker", ours), Series("bare SDK, batches of 100", raw)],
        logarithmic=True,
    )
    return Part(rows, [chart])


async def far_away(new_bed: NewBed, say: Say) -> Part:
    """Measures the throughput over the round trip to the broker."""
    ours, raw = [], []
    for milliseconds in ROUND_TRIPS_MS:
        say(f"relay: a broker {milliseconds} ms away")
        mine, theirs = await best(partial(_rates_from_afar, new_bed, milliseconds))
        ours.append((float(milliseconds), mine))
        raw.append((float(milliseconds), theirs))
    at = ROUND_TRIPS_MS.index(20)
    row = Row(
        "the same backlog, broker 20 ms away",
        f"{ours[at][1]:.0f}/s",
        f"{raw[at][1]:.0f}/s: bare SDK, one session after another",
        ours[at][1] / raw[at][1],
        25,
    )
    chart = Chart(
        "round-trip",
        "Events a second, over the round trip to the broker",
        "round trip in milliseconds",
        "events a second",
        [Series("relay worker", ours), Series("bare SDK, one session after another", raw)],
        logarithmic=True,
    )
    return Part([row], [chart])


async def _rates_from_afar(new_bed: NewBed, milliseconds: int) -> tuple[float, float]:
    """Returns events in a second, five of each contact: the worker's, and the bare SDK's, one session after another."""
    bed = new_bed()
    await bed.deploy()
    with proxy(bed.servicebus.port, milliseconds / 2) as port:
        connection = bed.servicebus.connection_string.replace(f":{bed.servicebus.port};", f":{port};")
        async with (
            ServiceBusClient.from_connection_string(connection) as client,
            client.get_topic_sender(bed.topic.name) as sender,
        ):
            documents = backlog(SESSIONS, 5)
            await bare.send_sessions(sender, documents[:5], 5)
            began = time.perf_counter()
            await bare.send_sessions(sender, documents[5:], 5)
            raw = (len(documents) - 5) / (time.perf_counter() - began)
        await bed.store(backlog(BACKLOG // 5, 5))
        return (await relayed(bed, BACKLOG, SERVICEBUS=connection)).rate, raw


@contextmanager
def proxy(port: int, milliseconds: float) -> Iterator[int]:
    """Yields the port of a proxy that delays each way by this time."""
    command = [sys.executable, "-m", "tools.benchmarks.proxy", str(port), str(milliseconds)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:  # noqa: S603 - our own
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


async def large_backlog(new_bed: NewBed, say: Say) -> Part:
    """Checks whether a hundred thousand waiting events take ten times as long as ten thousand."""
    say(f"relay: {LARGE_BACKLOG} events are stored")
    bed = new_bed()
    await bed.deploy()
    await bed.store(backlog(LARGE_BACKLOG // 5, 5))
    say(f"relay: {LARGE_BACKLOG} events are relayed")
    watching = asyncio.create_task(bed.arrivals(LARGE_BACKLOG))
    await asyncio.sleep(0)
    with bed.worker() as worker:
        early = await _memory_when_warm(bed, worker)
        arrivals = await watching
        late = memory_mb(worker.pid)
    began, counts = arrivals.times[0], arrivals.counts
    times = [moment - began for moment in arrivals.times]
    half = next(at for at, count in enumerate(counts) if count >= LARGE_BACKLOG / 2)
    slower = (
        (times[-1] - times[half]) / (counts[-1] - counts[half]) * (counts[half] - counts[0]) / times[half]
    )
    rows = [
        Row(
            f"{LARGE_BACKLOG} waiting events: time of the second half",
            f"{times[-1]:.1f} s in all",
            "over the time of the first half",
            slower,
            1.2,
            at_most=True,
        ),
        Row(
            "the same: memory of the relay",
            f"{late:.0f} MB at most",
            f"{early:.0f} MB after the first page",
            late / early,
            1.5,
            at_most=True,
        ),
    ]
    points = [(count, seconds) for seconds, count in zip(times, counts, strict=True)]
    chart = Chart(
        "backlog",
        "Time over backlog",
        "events relayed",
        "seconds",
        [Series("relay worker", [(float(count), seconds) for count, seconds in points])],
    )
    return Part(rows, [chart])


async def _memory_when_warm(bed: Bed, worker: Process) -> float:
    """Returns the worker's memory once it has sent the first page."""
    before = (await bed.traffic())["messages"]

    async def has_sent() -> bool:
        return (await bed.traffic())["messages"] > before

    await eventually(has_sent, within=60, what="a page is sent")
    return memory_mb(worker.pid)


async def one_page(new_bed: NewBed, say: Say) -> Part:
    """Counts the sends of a page of a hundred contacts."""
    say("relay: one page of 100 events of 100 contacts")
    bed = new_bed()
    await bed.deploy()
    page: list[dict[str, Any]] = [
        each | {"_lsn": number, "_ts": int(time.time())} for number, each in enumerate(backlog(100, 1))
    ]
    application = wire(bed.settings)
    async with application.outbox.resources:
        before = await bed.traffic()
        forwarded = await application.relay.forwarding.forward(page)
        after = await bed.traffic()
    assert forwarded.sent == len(page)
    sends = after["transfers"] - before["transfers"]
    row = Row(
        "one feed page of 100 events of 100 contacts", f"{sends}", "sends", sends, 1, " send", at_most=True
    )
    return Part([row], [])

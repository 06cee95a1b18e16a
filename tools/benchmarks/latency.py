"""Measures the time from a commit's answer until a subscriber has the event, with no other load.

Beside it the same for a program that polls the feed as often, with the SDKs alone.
"""

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from azure.servicebus.aio import ServiceBusClient

from devstack.administration import administration_client
from devstack.testing import eventually
from tools.benchmarks.bed import Bed, backlog
from tools.benchmarks.measured import Chart, Part, Row, Series
from tools.benchmarks.relaying import NewBed, Say

POLL_DELAYS_MS = (50, 100, 500)
COUNT = 100
_ALL = "all"


async def latencies(new_bed: NewBed, say: Say) -> Part:
    """Returns the distribution for each poll delay."""
    lines, at_100, bare = [], [0.0], [0.0]
    for delay in POLL_DELAYS_MS:
        say(f"latency: {COUNT} events, one at a time, poll delay {delay} ms")
        bed = new_bed()
        times = sorted(await _measure(bed, bed.worker(RELAY_POLL_DELAY_MS=str(delay))))
        lines.append(
            Series(f"{delay} ms", [(100 * (n + 1) / len(times), each) for n, each in enumerate(times)])
        )
        if delay == 100:
            at_100, bed = times, new_bed()
            bare = await _measure(bed, bed.bare_relay(delay))
    rows = compared("commit to subscriber, idle, poll delay 100 ms", at_100, bare, 1.25, 1.5)
    chart = Chart(
        "latency",
        "From the commit to a subscriber, by poll delay",
        "share of the events, in percent",
        "milliseconds at most",
        lines,
    )
    return Part(rows, [chart])


def compared(name: str, ours: Sequence[float], bare: Sequence[float], *wanted: float) -> list[Row]:
    """Returns the rows of the median and of the slowest hundredth, of times in milliseconds."""
    rows = []
    for share, most in zip((0.5, 0.99), wanted, strict=False):
        mine, theirs = (sorted(each)[max(0, int(len(each) * share) - 1)] for each in (ours, bare))
        shown = f"{theirs:.1f} ms: the SDKs alone"
        rows.append(
            Row(f"{name}: p{share * 100:.0f}", f"{mine:.1f} ms", shown, mine / theirs, most, at_most=True)
        )
    return rows


async def _measure(bed: Bed, relay: AbstractContextManager[object]) -> list[float]:
    await bed.deploy()
    async with administration_client(bed.servicebus.admin_connection_string) as admin:
        await admin.create_subscription(bed.topic.name, _ALL)
    arrived: dict[str, float] = {}
    committed: dict[str, float] = {}
    async with (
        ServiceBusClient.from_connection_string(bed.servicebus.connection_string) as client,
        client.get_subscription_receiver(bed.topic.name, _ALL) as receiver,
        bed.contacts() as container,
    ):

        async def receive() -> None:
            while len(arrived) < COUNT + 1:
                for message in await receiver.receive_messages(1, max_wait_time=10):
                    arrived[str(message.message_id)] = time.perf_counter()
                    await receiver.complete_message(message)

        receiving = asyncio.create_task(receive())
        with relay:
            await _commit(container, committed)
            await eventually(lambda: arrived, within=30, what="the worker is up")
            for _ in range(COUNT):
                await asyncio.sleep(random.uniform(0.05, 0.3))  # noqa: S311 - no secret
                await _commit(container, committed)
            await receiving
    _, *rest = committed
    return [(arrived[event] - committed[event]) * 1000 for event in rest]


async def _commit(container: Any, committed: dict[str, float]) -> None:
    [document] = backlog(1, 1)
    await container.execute_item_batch([("create", (document,))], document["partitionKey"])
    committed[document["id"]] = time.perf_counter()

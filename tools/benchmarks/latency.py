"""Measures the time from a commit's answer until a subscriber has the event, with no other load."""

import asyncio
import random
import statistics
import time
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
    lines, at_100 = [], [0.0]
    for delay in POLL_DELAYS_MS:
        say(f"latency: {COUNT} events, one at a time, poll delay {delay} ms")
        times = sorted(await _measure(new_bed(), delay))
        lines.append(
            Series(f"{delay} ms", [(100 * (n + 1) / len(times), each) for n, each in enumerate(times)])
        )
        if delay == 100:
            at_100 = times
    p50, p99 = statistics.median(at_100), at_100[int(len(at_100) * 0.99) - 1]
    name = "commit to subscriber, idle, poll delay 100 ms"
    rows = [
        Row(f"{name}: p50", f"{p50:.0f} ms", "", p50, 150, " ms", at_most=True),
        Row(f"{name}: p99", f"{p99:.0f} ms", "", p99, 400, " ms", at_most=True),
    ]
    chart = Chart(
        "latency",
        "From the commit to a subscriber, by poll delay",
        "share of the events, in percent",
        "milliseconds at most",
        lines,
    )
    return Part(rows, [chart])


async def _measure(bed: Bed, delay: int) -> list[float]:
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
        with bed.worker(RELAY_POLL_DELAY_MS=str(delay)):
            await _commit(container, committed)
            await eventually(lambda: arrived, within=30, what="the worker is up")
            for _ in range(COUNT):
                await asyncio.sleep(random.uniform(0.05, 0.05 + delay / 1000))  # noqa: S311 - no secret
                await _commit(container, committed)
            await receiving
    _, *rest = committed
    return [(arrived[event] - committed[event]) * 1000 for event in rest]


async def _commit(container: Any, committed: dict[str, float]) -> None:
    [document] = backlog(1, 1)
    await container.execute_item_batch([("create", (document,))], document["partitionKey"])
    committed[document["id"]] = time.perf_counter()

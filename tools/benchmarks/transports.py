"""Measures how fast each transport takes a page of events, and its bare SDK with as many concurrent sends, in turn.

Neither a store nor a relay is involved. The receivers are this machine's: Azurite, devstack's broker, and a receiver of
webhooks in this process, which costs both sides the same.
"""

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from uuid import uuid4

import aiohttp
from azure.servicebus.aio import ServiceBusClient

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import STRUCTURED, Accepted, AggregateEvents, CloudEvents, Publisher
from cosmos_outbox.servicebus.publisher import ServiceBusPublisher
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.transports import Webhook
from cosmos_outbox.storagequeue.client import queue_service
from cosmos_outbox.storagequeue.publisher import StorageQueuePublisher
from cosmos_outbox.webhook.publisher import WebhookPublisher
from devstack.testing import Service
from devstack.testing.service import running
from tests.support.azure import Topic
from tests.support.feed import EVENTS
from tests.support.receiver import SECRET, receiving
from tools.benchmarks import bare
from tools.benchmarks.bed import backlog
from tools.benchmarks.measured import Part, Row
from tools.benchmarks.relaying import NewBed, Say

CONTACTS, EACH = 200, 5
ROUNDS = 5
UNDER_WAY = 32
SINGLES = 200
"""The number of events that are sent alone, one after the other, for the latency."""
SECONDS = 120.0
WANTED = {"Service Bus topic": 0.7, "Storage queue": 0.8, "webhook": 0.75}
_SERVICE = CloudEvents("/contacts")

Bare = Callable[[Sequence[dict[str, Any]]], Awaitable[None]]
Sides = tuple[Publisher, Bare]


async def rates(new_bed: NewBed, say: Say) -> Part:
    """Returns each transport's events in a second over its SDK's, and the latency of an event that is sent alone."""
    bed = new_bed()
    rows: list[Row] = []
    transports: dict[str, AbstractAsyncContextManager[Sides]] = {
        "Service Bus topic": _servicebus(bed.servicebus),
        "Storage queue": _storagequeue(Service("storage", bed.folder / "storage")),
        "webhook": _webhook(),
    }
    for name, sides in transports.items():
        say(f"transports: {name}")
        async with sides as (publisher, send):
            alone = await _alone(publisher)
            await _sent(send, backlog(1, 1))
            rounds = []
            for _ in range(ROUNDS):
                ours = await _publish(publisher, backlog(CONTACTS, EACH))
                rounds.append((ours, await _sent(send, backlog(CONTACTS, EACH))))
        ours, raw = (CONTACTS * EACH / statistics.median(seconds) for seconds in zip(*rounds, strict=True))
        ratio = statistics.median(theirs / mine for mine, theirs in rounds)
        rows.append(
            Row(
                f"{name}, {EACH} events of {CONTACTS} contacts; one alone: p50 {alone * 1000:.1f} ms",
                f"{ours:.0f}/s", f"{raw:.0f}/s: bare SDK", ratio, WANTED[name],
            )
        )  # fmt: skip
    return Part(rows, [])


async def _alone(publisher: Publisher) -> float:
    """Returns the median latency in seconds of an event that is sent alone."""
    await _publish(publisher, backlog(1, 1))  # opens the connection
    return statistics.median([await _publish(publisher, backlog(1, 1)) for _ in range(SINGLES)])


async def _sent(send: Bare, documents: Sequence[dict[str, Any]]) -> float:
    """Returns the seconds that it takes."""
    began = time.perf_counter()
    await send(documents)
    return time.perf_counter() - began


async def _publish(publisher: Publisher, documents: Sequence[dict[str, Any]]) -> float:
    """Returns the seconds that it takes."""
    groups: dict[AggregateKey, list[OutboxEvent]] = {}
    for document in documents:
        event = EVENTS.event(document | {"_lsn": 1, "_ts": 1})
        assert isinstance(event, OutboxEvent)
        groups.setdefault(event.aggregate, []).append(event)
    began = time.perf_counter()
    page = [AggregateEvents(key, events) for key, events in groups.items()]
    outcomes = await publisher.publish(page, monotonic() + SECONDS)
    assert all(isinstance(each, Accepted) for each in outcomes), outcomes
    return time.perf_counter() - began


async def _side_by_side(
    documents: Sequence[dict[str, Any]], send: Callable[[dict[str, Any]], Awaitable[object]]
) -> None:
    waiting = iter(documents)

    async def sender() -> None:
        for each in waiting:
            await send(each)

    await asyncio.gather(*(sender() for _ in range(UNDER_WAY)))


@asynccontextmanager
async def _servicebus(server: Service) -> AsyncIterator[Sides]:
    topic = Topic(server)
    await topic.create()
    async with ServiceBusClient.from_connection_string(server.connection_string) as client:
        publisher = ServiceBusPublisher(
            client, topic.name, service=_SERVICE, partitioned=False, senders=UNDER_WAY
        )
        async with client.get_topic_sender(topic.name) as sender:
            await bare.send_batches(sender, backlog(1, 1))

            async def send(documents: Sequence[dict[str, Any]]) -> None:
                await bare.send_batches(sender, list(documents))

            yield publisher, send
        await publisher.close()


@asynccontextmanager
async def _storagequeue(server: Service) -> AsyncIterator[Sides]:
    with running(server):
        async with queue_service(Connection(connection_string=server.connection_string), None) as client:
            queue = await client.create_queue(f"q-{uuid4().hex}")

            async def send(documents: Sequence[dict[str, Any]]) -> None:
                await _side_by_side(documents, lambda each: queue.send_message(_body(each).decode()))

            publisher = StorageQueuePublisher(
                client, [queue.queue_name], service=_SERVICE, encoded=True, senders=UNDER_WAY
            )
            yield publisher, send


@asynccontextmanager
async def _webhook() -> AsyncIterator[Sides]:
    async with receiving() as receiver, aiohttp.ClientSession() as session:
        headers = {"content-type": STRUCTURED}

        async def post(document: dict[str, Any]) -> None:
            async with session.post(receiver.url, data=_body(document), headers=headers) as answer:
                answer.raise_for_status()

        async def send(documents: Sequence[dict[str, Any]]) -> None:
            await _side_by_side(documents, post)

        target = Webhook(receiver.url, [SECRET], request_seconds=30, concurrency=UNDER_WAY)
        publisher = WebhookPublisher(target, service=_SERVICE)
        yield publisher, send
        await publisher.close()


def _body(document: dict[str, Any]) -> bytes:
    event = EVENTS.event(document | {"_lsn": 1, "_ts": 1})
    assert isinstance(event, OutboxEvent)
    return _SERVICE.structured(event)

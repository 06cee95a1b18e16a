"""The contract of publishers over every transport, and what the library's own promise beyond it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import ServiceBusConnectionError

from cosmos_outbox import testing
from cosmos_outbox.cosmos.relay.pages import VerifiedPage
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.relay.relay import Relay
from cosmos_outbox.outbox.errors import FailureReason, NotDelivered
from cosmos_outbox.outbox.feed import by_aggregate
from cosmos_outbox.outbox.publisher import CloudEvents, Refused, Unknown
from cosmos_outbox.servicebus.publisher import ServiceBusPublisher
from devstack.testing import Service
from tests.contract.conftest import (
    Broker,
    ServiceBusBroker,
    StorageQueueBroker,
    WebhookBroker,
    service_bus,
    storage_queue,
    webhook,
)
from tests.support.azure import Queue, Topic
from tests.support.memory import committed
from tests.support.publishing import event, publish

OWN_LOOP = pytest.mark.needs_a_socket("each test has a loop of its own")


@OWN_LOOP
class TestTopic(testing.PublisherContract):
    large = ServiceBusBroker.much
    server: Service

    @pytest.fixture(autouse=True)
    def _served(self, servicebus_server: Service) -> None:
        self.server = servicebus_server

    def topic(self) -> Topic:
        return Topic(self.server)

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[testing.Broker]:
        async with service_bus(self.topic()) as broker:
            broker.of = "thing"
            yield testing.Broker(broker.publisher, broker.received, broker.away)


@OWN_LOOP
@pytest.mark.long
class TestQueue(TestTopic):
    def topic(self) -> Topic:
        return Queue(self.server)


@OWN_LOOP
@pytest.mark.long
class TestStorageQueue(testing.PublisherContract):
    large = StorageQueueBroker.much
    server: Service

    @pytest.fixture(autouse=True)
    def _served(self, storage_server: Service) -> None:
        self.server = storage_server

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[testing.Broker]:
        async with storage_queue(self.server) as broker:
            yield testing.Broker(broker.publisher, broker.received, broker.away)


class TestWebhook(testing.PublisherContract):
    large = WebhookBroker.much

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[testing.Broker]:
        async with webhook() as broker:
            yield testing.Broker(broker.publisher, broker.received, broker.away)


async def test_a_broker_that_cannot_be_reached_is_named_so(broker: Broker) -> None:
    async with broker.away() as publisher:
        [outcome] = await publish(publisher, [event("a", 1)])
    assert isinstance(outcome, Unknown)
    assert "cannot be reached" in outcome.reason


async def test_what_does_not_exist_makes_events_wait(broker: Broker) -> None:
    async with broker.missing() as publisher:
        [outcome] = await publish(publisher, [event("a", 1), event("a", 2)])
    assert isinstance(outcome, Unknown)
    assert (outcome.accepted, outcome.why) == (0, FailureReason.BROKER_REFUSES)
    assert broker.absent in outcome.reason


def one_by_one(broker: ServiceBusBroker) -> ServiceBusPublisher:
    """As for a partitioned topic: each message is a send of its own."""
    return ServiceBusPublisher(
        broker.client, broker.topic.name, service=CloudEvents("/test"), partitioned=True, senders=6
    )


async def test_one_at_a_time_arrives_in_order_too(servicebus_broker: ServiceBusBroker) -> None:
    single = one_by_one(servicebus_broker)
    events = [event("a", 1), event("a", 2), event("a", 3, "x" * 300_000), event("a", 4)]
    [outcome] = await publish(single, events)
    await single.close()
    assert isinstance(outcome, Refused)
    assert outcome.accepted == 2
    assert await servicebus_broker.received("a", 2) == ["a-1", "a-2"]


async def test_a_failure_has_the_number_accepted_before_it(
    servicebus_broker: ServiceBusBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = ServiceBusSender.send_messages
    calls = iter([send, send])

    async def third_fails(self: ServiceBusSender, *arguments: object, **options: object) -> None:
        call = next(calls, None)
        if call is None:
            raise ServiceBusConnectionError
        await call(self, *arguments, **options)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(ServiceBusSender, "send_messages", third_fails)
    [outcome] = await publish(
        servicebus_broker.publisher, [event("a", sequence, "x" * 150_000) for sequence in range(1, 5)]
    )
    assert isinstance(outcome, Unknown)
    assert outcome.accepted == 2
    monkeypatch.undo()
    assert await servicebus_broker.received("a", 2) == ["a-1", "a-2"]


async def test_a_page_slower_than_its_blocks_validity_is_sent_in_attempts(
    servicebus_broker: ServiceBusBroker, lot: CosmosParkingLot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt begins behind what the topic has: else a slow topic would get the same beginning for ever."""
    send = ServiceBusSender.send_messages

    async def slow(self: ServiceBusSender, *arguments: object, **options: object) -> None:
        await asyncio.sleep(0.3)
        await send(self, *arguments, **options)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(ServiceBusSender, "send_messages", slow)
    single = one_by_one(servicebus_broker)
    relay = Relay(single, lot, committed(lot), reading_seconds=1.5)
    events, attempts = [event("a", sequence) for sequence in range(1, 9)], 0
    for attempt in range(1, 21):
        attempts = attempt
        with contextlib.suppress(NotDelivered):
            await relay.forward_committed(VerifiedPage(events, by_aggregate(events)))
            break
    await single.close()
    assert 1 < attempts < 20
    assert await servicebus_broker.received("a", 8) == [f"a-{sequence}" for sequence in range(1, 9)]

"""A publisher hands over one contact's events in order, once, and says which can never be sent."""

import pytest
from azure.servicebus.aio import ServiceBusClient

from application.ports import OutboxEvent
from devstack.testing import Service
from domain.errors import NotDelivered
from infra.servicebus.publisher import ServiceBusPublisher
from tests.contract.conftest import Broker, ServiceBusBroker
from tests.support.azure import servicebus_connection
from tests.support.contacts import NOON


def event(contact: str, sequence: int, text: str = "") -> OutboxEvent:
    return OutboxEvent(
        id=f"{contact}-{sequence}", contact_id=contact, action="Changed", sequence=sequence, created_at=NOON,
        correlation_id="c", lsn=sequence, document={"data": {"sequence": sequence, "text": text}},
    )  # fmt: skip


async def test_events_arrive_in_the_order_given(broker: Broker) -> None:
    events = [event("a", sequence) for sequence in range(1, 31)]
    assert await broker.publisher.publish("a", events) is None
    assert await broker.received("a", 30) == [f"a-{sequence}" for sequence in range(1, 31)]


async def test_what_is_sent_again_arrives_once(broker: Broker) -> None:
    await broker.publisher.publish("a", [event("a", 1), event("a", 2)])
    await broker.publisher.publish("a", [event("a", 1), event("a", 2), event("a", 3)])
    assert await broker.received("a", 3) == ["a-1", "a-2", "a-3"]


async def test_more_than_one_batch_holds_arrives_in_order(broker: Broker) -> None:
    events = [event("a", sequence, "x" * 100_000) for sequence in range(1, 8)]
    assert await broker.publisher.publish("a", events) is None
    assert await broker.received("a", 7) == [f"a-{sequence}" for sequence in range(1, 8)]


@pytest.mark.parametrize("large", [1, 2, 3])
async def test_it_stops_at_the_first_that_is_too_large(broker: Broker, large: int) -> None:
    events = [event("a", sequence) for sequence in range(1, 4)]
    events[large - 1] = event("a", large, "x" * 300_000)

    refusal = await broker.publisher.publish("a", events)

    assert refusal is not None
    assert refusal.event == events[large - 1]
    assert await broker.received("a", large - 1) == [f"a-{sequence}" for sequence in range(1, large)]


async def test_a_topic_that_does_not_exist_makes_events_wait(servicebus_server: Service) -> None:
    connection = servicebus_connection(servicebus_server)
    async with ServiceBusClient.from_connection_string(connection, retry_total=0) as client:
        publisher = ServiceBusPublisher(client, "no-such-topic", partitioned=False)
        with pytest.raises(NotDelivered, match="SERVICEBUS"):
            await publisher.publish("a", [event("a", 1)])
        await publisher.close()


async def test_a_broker_that_is_not_there_makes_events_wait(servicebus_server: Service) -> None:
    connection = servicebus_connection(servicebus_server).replace(f":{servicebus_server.port};", ":1;")
    async with ServiceBusClient.from_connection_string(connection, retry_total=0) as client:
        publisher = ServiceBusPublisher(client, "topic", partitioned=False)
        with pytest.raises(NotDelivered, match="cannot be reached"):
            await publisher.publish("a", [event("a", 1)])
        await publisher.close()


async def test_one_at_a_time_arrives_in_order_too(servicebus_broker: ServiceBusBroker) -> None:
    single = ServiceBusPublisher(servicebus_broker.client, servicebus_broker.topic.name, partitioned=True)
    refusal = await single.publish(
        "a", [event("a", 1), event("a", 2), event("a", 3, "x" * 300_000), event("a", 4)]
    )
    await single.close()
    assert refusal is not None
    assert refusal.event.id == "a-3"
    assert await servicebus_broker.received("a", 2) == ["a-1", "a-2"]

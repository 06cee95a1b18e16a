"""Dead letters become records, each before it leaves the queue, and under the id that its message always had."""

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from cosmos_outbox.inbox.errors import StoreUnavailable
from cosmos_outbox.inbox.message import Delivery
from cosmos_outbox.inbox.set_aside import Collected
from cosmos_outbox.servicebus.client import servicebus_client
from cosmos_outbox.servicebus.delivery import delivery_of
from cosmos_outbox.servicebus.sessions import DeadLetters
from cosmos_outbox.settings.connections import Connection
from devstack.administration import administration_client
from devstack.testing import Service, eventually
from tests.support.azure import Topic

SUBSCRIPTION = "directory"


@pytest.fixture
async def queue(servicebus_server: Service) -> AsyncIterator[DeadLetters]:
    topic = Topic(servicebus_server)
    await topic.create()
    async with administration_client(servicebus_server.admin_connection_string) as admin:
        await admin.create_subscription(
            topic.name,
            SUBSCRIPTION,
            requires_session=True,
            max_delivery_count=1,
            lock_duration=timedelta(seconds=5),
        )
    async with servicebus_client(Connection(servicebus_server.connection_string), None) as client:
        yield DeadLetters(client, topic.name, SUBSCRIPTION)
    await topic.delete()


async def buried(queue: DeadLetters, count: int) -> list[Delivery]:
    """Send messages and let each fail; the deliveries as the subscriber first saw them."""
    async with queue.client.get_topic_sender(queue.topic) as sender:
        await sender.send_messages(
            [
                ServiceBusMessage(
                    b"body %d" % number,
                    message_id=f"m{number}",
                    session_id="c",
                    application_properties={"sequence": number, "aggregateType": "contact"},
                )
                for number in range(count)
            ]
        )
    seen: list[Delivery] = []
    async with queue.client.get_subscription_receiver(
        queue.topic, queue.subscription, session_id="c", max_wait_time=5
    ) as receiver:
        for _ in range(count):
            [message] = await receiver.receive_messages(1)
            seen.append(delivery_of(message, b"".join(message.body), SUBSCRIPTION))
            await receiver.abandon_message(message)
    return seen


async def test_dead_letters_become_records_under_their_messages_ids(queue: DeadLetters) -> None:
    seen, kept = await buried(queue, 3), []

    async def keep(delivery: Delivery, reason: str) -> None:
        kept.append((delivery, reason))

    assert await queue.collect(keep, seconds=20) == Collected(3, emptied=True)
    assert [delivery.record_id for delivery, _ in kept] == [delivery.record_id for delivery in seen]
    assert [(each.body, each.properties) for each, _ in kept] == [
        (each.body, each.properties) for each in seen
    ]
    assert {reason for _, reason in kept} == {"dead letter: MaxDeliveryCountExceeded"}
    assert kept[0][0].properties == {"sequence": 0, "aggregateType": "contact"}
    assert await queue.collect(keep, seconds=20) == Collected(0, emptied=True)


async def test_a_dead_letter_stays_until_its_record_is_stored(queue: DeadLetters) -> None:
    await buried(queue, 1)
    kept: list[Any] = []

    async def away(*_: object) -> None:
        raise StoreUnavailable("away")

    async def keep(*given: object) -> None:
        kept.append(given)

    with pytest.raises(StoreUnavailable):
        await queue.collect(away, seconds=20)

    async def collected() -> int:
        return (await queue.collect(keep, seconds=20)).messages

    await eventually(collected)  # its lock has to expire
    assert len(kept) == 1


async def test_a_broker_that_is_away_is_the_inboxs_error(servicebus_server: Service) -> None:
    text = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=v;UseDevelopmentEmulator=true;"
    async with ServiceBusClient.from_connection_string(text, retry_total=0) as client:
        with pytest.raises(StoreUnavailable, match="dead letters cannot be read"):
            async with asyncio.timeout(30):
                await DeadLetters(client, "t", "s").collect(_nothing, seconds=20)


@pytest.mark.needs_a_socket("that is listened at, and says nothing")
@pytest.mark.filterwarnings("ignore:.*StreamWriter:pytest.PytestUnraisableExceptionWarning")
async def test_of_a_broker_that_does_not_answer_in_time_nothing_is_known() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        at = f"sb://127.0.0.1:{silent.getsockname()[1]}"
        text = f"Endpoint={at};SharedAccessKeyName=k;SharedAccessKey=v;UseDevelopmentEmulator=true;"
        async with ServiceBusClient.from_connection_string(text) as client:
            found = await DeadLetters(client, "t", "s").collect(_nothing, seconds=0.3)
        gc.collect()  # what the SDK left open ends with the test that may leave it open
    assert found == Collected(0, emptied=False)


async def test_a_collecting_whose_time_is_over_keeps_no_message_from_the_next(queue: DeadLetters) -> None:
    await buried(queue, 12)
    kept: list[Delivery] = []

    async def slow(delivery: Delivery, _: str) -> None:
        await asyncio.sleep(0.05)
        kept.append(delivery)

    first = await queue.collect(slow, seconds=0.2)
    assert not first.emptied
    assert first.messages == len(kept)
    second = await queue.collect(slow, seconds=20)
    assert second == Collected(12 - first.messages, emptied=True), "none is locked by a client that is gone"


async def _nothing(*_: object) -> None:
    raise AssertionError("nothing was received")


async def test_dead_letters_with_amqp_value_bodies_are_collected_too(queue: DeadLetters) -> None:
    values: list[Any] = ["text", 7, {"a": b"1"}, [1, 2]]
    async with queue.client.get_topic_sender(queue.topic) as sender:
        for number, value in enumerate(values):
            properties = AmqpMessageProperties(message_id=f"m{number}", group_id="c")
            await sender.send_messages(AmqpAnnotatedMessage(value_body=value, properties=properties))
    async with queue.client.get_subscription_receiver(
        queue.topic, queue.subscription, session_id="c", max_wait_time=5
    ) as receiver:
        for _ in values:
            [message] = await receiver.receive_messages(1)
            await receiver.dead_letter_message(message, reason="no use")
    kept: list[bytes] = []

    async def keep(delivery: Delivery, reason: str) -> None:
        kept.append(delivery.body)

    assert (await queue.collect(keep, seconds=20)).messages == len(values)
    assert sorted(kept) == [b"7", b"[1, 2]", b"text", b"{b'a': b'1'}"]

"""Settlement, locks and what the SDK shows of a message, through azure-servicebus."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusClient as SyncClient,
)
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    ServiceBusError,
)

from devstack.testing import Service, eventually
from servicebus.support import administration, client, new_queue


@pytest.fixture
async def sdk(servicebus_server: Service) -> AsyncIterator[ServiceBusClient]:
    async with client(servicebus_server) as connected:
        yield connected


async def test_a_message_arrives_as_sent_with_the_brokers_own_properties(
    servicebus_server: Service, sdk: ServiceBusClient
) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    async with new_queue(servicebus_server) as queue, sdk.get_queue_sender(queue) as sender:
        await sender.send_messages(
            ServiceBusMessage(
                b"body",
                message_id="id",
                subject="subject",
                correlation_id="correlation",
                content_type="application/json",
                to="to",
                reply_to="reply",
                time_to_live=timedelta(minutes=5),
                application_properties={"text": "t", "number": 7, "flag": True},
            )
        )
        async with sdk.get_queue_receiver(queue, max_wait_time=5) as receiver:
            (message,) = await receiver.receive_messages()

            assert b"".join(message.body) == b"body"
            assert message.message_id == "id"
            assert (message.subject, message.correlation_id) == ("subject", "correlation")
            assert (message.content_type, message.to, message.reply_to) == ("application/json", "to", "reply")
            assert message.time_to_live == timedelta(minutes=5)
            assert message.application_properties == {b"text": b"t", b"number": 7, b"flag": True}
            assert message.sequence_number == 1
            assert message.delivery_count == 0
            assert message.state is ServiceBusMessageState.ACTIVE
            assert message.enqueued_time_utc is not None
            assert before < message.enqueued_time_utc
            assert message.locked_until_utc is not None
            assert (
                timedelta(seconds=50)
                < message.locked_until_utc - message.enqueued_time_utc
                < timedelta(seconds=70)
            )
            assert message.dead_letter_reason is None
            await receiver.complete_message(message)


async def test_a_decimal_property_is_read_by_the_sdk_that_sent_it(
    servicebus_server: Service, sdk: ServiceBusClient
) -> None:
    """The SDK writes IEEE 754's form and reads .NET's, in which the service sends it on."""
    properties: Any = {"price": Decimal("-1.50"), "none": Decimal(0), "large": Decimal("1e9"), "text": "t"}
    async with new_queue(servicebus_server) as queue:
        async with sdk.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage("m", application_properties=properties))
            beyond: Any
            for beyond in (Decimal("1e29"), Decimal("1e-29")):
                with pytest.raises(ServiceBusError, match="unable to process"):
                    await sender.send_messages(
                        ServiceBusMessage("m", application_properties={"beyond": beyond})
                    )
        async with sdk.get_queue_receiver(queue, max_wait_time=5) as receiver:
            (received,) = await receiver.receive_messages(4)

            assert received.application_properties == {
                name.encode(): value.encode() if isinstance(value, str) else value
                for name, value in properties.items()
            }
            assert str(received.application_properties[b"price"]) == "-1.50"
            await receiver.abandon_message(received)


async def test_abandoned_messages_return_in_order_and_end_as_dead_letters(
    servicebus_server: Service, sdk: ServiceBusClient
) -> None:
    async with new_queue(servicebus_server, max_delivery_count=2) as queue:
        async with sdk.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage(text) for text in ("first", "second")])
        async with sdk.get_queue_receiver(queue, max_wait_time=5) as receiver:
            for delivery_count in (0, 1):
                (message,) = await receiver.receive_messages()
                assert (str(message), message.delivery_count) == ("first", delivery_count)
                await receiver.abandon_message(message)
            (message,) = await receiver.receive_messages()
            assert str(message) == "second"
            await receiver.dead_letter_message(message, reason="why", error_description="because")
        async with sdk.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            first, second = await dead.receive_messages(2, max_wait_time=5)

            assert (str(first), first.dead_letter_reason) == ("first", "MaxDeliveryCountExceeded")
            assert (str(second), second.dead_letter_reason) == ("second", "why")
            assert second.dead_letter_error_description == "because"
            assert second.sequence_number == 2
            assert second.dead_letter_source is None  # as in Azure: only once a dead letter was forwarded
            await dead.complete_message(first)
        async with administration(servicebus_server) as admin:
            counts = await admin.get_queue_runtime_properties(queue)
            assert (counts.active_message_count, counts.dead_letter_message_count) == (0, 1)


async def test_a_lock_that_ran_out_cannot_settle_and_a_renewed_one_can(
    servicebus_server: Service, sdk: ServiceBusClient
) -> None:
    async with new_queue(servicebus_server, lock_duration=timedelta(seconds=1)) as queue:
        async with sdk.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage("lost"), ServiceBusMessage("kept")])
        async with (
            sdk.get_queue_receiver(queue, max_wait_time=5) as receiver,
            sdk.get_queue_receiver(queue, max_wait_time=5) as other,
        ):
            lost, kept = await receiver.receive_messages(2)
            locked_until = kept.locked_until_utc

            (again,) = await other.receive_messages()  # waits until the first lock is over
            renewal_of_lost = receiver.renew_message_lock(lost)

            assert str(again) in ("lost", "kept")
            assert again.delivery_count == 1
            renewed = await other.renew_message_lock(again)
            assert locked_until is not None
            assert renewed > locked_until
            with pytest.raises(MessageLockLostError):
                await renewal_of_lost
            with pytest.raises(MessageLockLostError):
                await receiver.complete_message(lost)
            await other.complete_message(again)


async def test_a_deferred_message_is_received_by_its_number(
    servicebus_server: Service, sdk: ServiceBusClient
) -> None:
    async with new_queue(servicebus_server) as queue:
        async with sdk.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage("later"))
        async with sdk.get_queue_receiver(queue, max_wait_time=5) as receiver:
            (message,) = await receiver.receive_messages()
            await receiver.defer_message(message)
            (peeked,) = await receiver.peek_messages(sequence_number=1)
            assert peeked.state is ServiceBusMessageState.DEFERRED

            (deferred,) = await receiver.receive_deferred_messages(message.sequence_number or 0)
            await receiver.complete_message(deferred)

            with pytest.raises(MessageNotFoundError):
                await receiver.receive_deferred_messages(message.sequence_number or 0)


async def test_peeking_pages_through_without_locking(
    servicebus_server: Service, sdk: ServiceBusClient
) -> None:
    async with new_queue(servicebus_server) as queue:
        async with sdk.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage(str(number)) for number in range(5)])
        async with sdk.get_queue_receiver(queue, max_wait_time=5) as receiver:
            first = await receiver.peek_messages(2)
            second = await receiver.peek_messages(10)
            again = await receiver.peek_messages(1, sequence_number=3)

            assert [str(m) for m in first + second] == ["0", "1", "2", "3", "4"]
            assert [m.sequence_number for m in again] == [3]
            assert len(await receiver.receive_messages(5)) == 5


async def test_receive_and_delete_leaves_nothing(servicebus_server: Service, sdk: ServiceBusClient) -> None:
    async with new_queue(servicebus_server) as queue, administration(servicebus_server) as admin:
        async with sdk.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage(str(number)) for number in range(3)])
        async with sdk.get_queue_receiver(
            queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver:
            messages = await receiver.receive_messages(3, max_wait_time=5)

        assert [str(message) for message in messages] == ["0", "1", "2"]
        assert (await admin.get_queue_runtime_properties(queue)).total_message_count == 0


async def test_scheduled_messages_come_when_due_and_can_be_cancelled(
    servicebus_server: Service, sdk: ServiceBusClient
) -> None:
    async with new_queue(servicebus_server) as queue, administration(servicebus_server) as admin:
        async with sdk.get_queue_sender(queue) as sender:
            soon = datetime.now(UTC) + timedelta(seconds=1.5)
            kept, cancelled = await sender.schedule_messages(
                [ServiceBusMessage("kept"), ServiceBusMessage("no")], soon
            )
            assert (await admin.get_queue_runtime_properties(queue)).scheduled_message_count == 2
            await sender.cancel_scheduled_messages(cancelled)
            with pytest.raises(ServiceBusError):
                await sender.cancel_scheduled_messages(cancelled)
        async with sdk.get_queue_receiver(queue) as receiver:
            messages = await receiver.receive_messages(2, max_wait_time=5)

        assert [str(message) for message in messages] == ["kept"]
        assert messages[0].sequence_number not in (kept, cancelled)
        assert messages[0].enqueued_time_utc is not None
        assert messages[0].enqueued_time_utc >= soon - timedelta(seconds=0.1)


async def test_expired_messages_are_dead_lettered(servicebus_server: Service, sdk: ServiceBusClient) -> None:
    async with (
        new_queue(servicebus_server, dead_lettering_on_message_expiration=True) as queue,
        administration(servicebus_server) as admin,
    ):
        async with sdk.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage("short", time_to_live=timedelta(milliseconds=300)))

        async def is_dead() -> bool:
            counts = await admin.get_queue_runtime_properties(queue)
            return (counts.active_message_count, counts.dead_letter_message_count) == (0, 1)

        await eventually(is_dead)
        async with sdk.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
            (message,) = await dead.receive_messages(max_wait_time=5)
            assert message.dead_letter_reason == "TTLExpiredException"


async def test_the_synchronous_client_works_too(servicebus_server: Service) -> None:
    async with new_queue(servicebus_server, requires_session=True) as queue:
        await asyncio.to_thread(_send_and_receive, servicebus_server.connection_string, queue)


def _send_and_receive(connection: str, queue: str) -> None:
    with SyncClient.from_connection_string(connection) as sdk:
        with sdk.get_queue_sender(queue) as sender:
            batch = sender.create_message_batch()
            batch.add_message(ServiceBusMessage("sync", session_id="sync-session"))
            sender.send_messages(batch)
        with sdk.get_queue_receiver(queue, session_id="sync-session", max_wait_time=5) as receiver:
            (message,) = receiver.receive_messages()
            receiver.session.set_state(b"seen")
            assert receiver.session.get_state() == b"seen"
            receiver.session.set_state(None)
            receiver.complete_message(message)
            assert str(message) == "sync"

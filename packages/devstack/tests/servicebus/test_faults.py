"""Faults happen when they are asked for, and only on a server that allows them."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    ServiceBusAuthenticationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.composites import read_as
from devstack.testing import Service, running
from devstack.testing.amqp import message, raw_client
from servicebus.support import administration, client, new_queue, new_subscription
from servicebus.test_security import put_token, sas


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("faulty") / "data"
    with running(Service("servicebus", folder, "--faults")) as service:
        yield service


@pytest.fixture(autouse=True)
async def healed(faulty: Service) -> AsyncIterator[None]:
    """No test leaves a fault behind."""
    yield
    await faulty.faults.clear()


async def test_a_dropped_answer_is_a_stored_message_and_the_retry_a_duplicate(faulty: Service) -> None:
    # Raw, because azure-servicebus leaves its socket open when the server drops the connection.
    async with new_subscription(faulty, {"requires_duplicate_detection": True}) as (topic, subscription):
        await faulty.faults.add("drop-after-commit")
        async with raw_client(faulty.port) as raw:
            raw.transfer(await raw.attach_sender(topic), message(message_id="id"))
            assert await raw.closed() is None
        async with raw_client(faulty.port) as raw:
            assert await raw.deliver(await raw.attach_sender(topic), message(message_id="id")) == p.Accepted()
        async with administration(faulty) as admin:
            counts = await admin.get_subscription_runtime_properties(topic, subscription)
            assert counts.active_message_count == 1


async def test_a_request_that_fails_before_the_commit_leaves_nothing(faulty: Service) -> None:
    async with new_queue(faulty) as queue:
        await faulty.faults.add("fail-before-commit")
        async with raw_client(faulty.port) as raw:
            sender = await raw.attach_sender(queue)
            raw.transfer(sender, message())
            raw.transfer(sender, message())  # in the same packet: never looked at
            assert await raw.closed() is None
        async with administration(faulty) as admin:
            assert (await admin.get_queue_runtime_properties(queue)).active_message_count == 0
        assert await faulty.faults.pending() == []


async def test_a_server_is_busy_for_as_long_as_asked(faulty: Service) -> None:
    async with (
        new_queue(faulty) as queue,
        client(faulty, retry_total=0) as sdk,
        sdk.get_queue_sender(queue) as sender,
    ):
        await faulty.faults.add("throttle", count=1000, for_seconds=60)
        with pytest.raises(ServiceBusServerBusyError):
            await sender.send_messages(ServiceBusMessage("no"))
        await faulty.faults.clear()

        await sender.send_messages(ServiceBusMessage("yes"))


async def test_a_full_topic_refuses_and_the_sdk_does_not_try_again(faulty: Service) -> None:
    async with (
        new_queue(faulty) as queue,
        client(faulty) as sdk,
        sdk.get_queue_sender(queue) as sender,
    ):
        await faulty.faults.add("full")
        with pytest.raises(ServiceBusQuotaExceededError):
            await sender.send_messages(ServiceBusMessage("no"))
        await sender.send_messages(ServiceBusMessage("yes"))


async def test_a_fault_may_meet_only_a_share_of_the_sends(faulty: Service) -> None:
    refused = 0
    async with (
        new_queue(faulty) as queue,
        client(faulty) as sdk,
        sdk.get_queue_sender(queue) as sender,
    ):
        await faulty.faults.add("full", count=None, share=0.5)
        for _ in range(60):
            try:
                await sender.send_messages(ServiceBusMessage("perhaps"))
            except ServiceBusQuotaExceededError:
                refused += 1
        await faulty.faults.clear()
    assert 5 < refused < 55


async def test_a_mix_of_sessions_can_be_refused_and_what_was_sent_is_counted(faulty: Service) -> None:
    async with (
        new_subscription(faulty) as (topic, _),
        client(faulty) as sdk,
        sdk.get_topic_sender(topic) as sender,
    ):
        before = await faulty.faults.traffic()
        await faulty.faults.add("refuse-mixed", count=None)
        mixed = [ServiceBusMessage("x", session_id=session) for session in ("a", "a", "b")]
        with pytest.raises(ServiceBusError, match="amqp:not-allowed"):
            await sender.send_messages(mixed)
        await sender.send_messages(mixed[:2])
        await sender.send_messages(mixed[2])
        after = await faulty.faults.traffic()

    assert {name: after[name] - before[name] for name in after} == {"transfers": 3, "messages": 6}


async def test_tokens_can_be_refused(faulty: Service) -> None:
    async with new_queue(faulty) as queue, client(faulty, retry_total=0) as sdk:
        await faulty.faults.add("unauthorized")
        with pytest.raises(ServiceBusAuthenticationError):
            await sdk.get_queue_sender(queue).send_messages(ServiceBusMessage("no"))

        async with sdk.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage("yes"))


async def test_links_can_be_detached_and_connections_dropped(faulty: Service) -> None:
    async with new_queue(faulty) as queue, raw_client(faulty.port) as raw:
        await raw.attach_sender(queue)
        await faulty.faults.add("detach", condition="amqp:link:detach-forced")
        error = read_as(p.ErrorField, (await raw.expect(p.Detach)).error)
        assert error is not None
        assert error.condition == "amqp:link:detach-forced"
        await faulty.faults.add("disconnect")
        assert await raw.closed() is None


async def test_a_detach_meets_the_links_to_entities_and_their_management_alone(faulty: Service) -> None:
    """The service detaches links of an entity. ``$cbs`` is none: a client whose token link ends cannot come back."""
    async with new_queue(faulty) as queue, raw_client(faulty.port) as raw:
        token = sas(f"sb://localhost/{queue}")
        assert await put_token(raw, token, queue) == 202
        sender = await raw.attach_sender(queue)
        receiver = (await raw.attach_receiver(f"{queue}/$management")).handle

        await faulty.faults.add("detach")

        assert {(await raw.expect(p.Detach)).handle for _ in range(2)} == {sender, receiver}
        assert await put_token(raw, token, queue) == 202


async def test_answers_can_be_slow(faulty: Service) -> None:
    async with new_queue(faulty) as queue, raw_client(faulty.port) as raw:
        sender = await raw.attach_sender(queue)
        await faulty.faults.add("slow", seconds=0.5)
        raw.transfer(sender, message())
        with pytest.raises(TimeoutError):
            await raw.expect(p.Disposition, patience=0.2)

        assert (await raw.expect(p.Disposition)).settled


async def test_a_disabled_entity_refuses_senders_and_receivers(faulty: Service) -> None:
    async with (
        new_queue(faulty) as queue,
        administration(faulty) as admin,
        client(faulty, retry_total=0) as sdk,
    ):
        properties = await admin.get_queue(queue)
        properties.status = "Disabled"
        await admin.update_queue(properties)

        with pytest.raises(MessagingEntityDisabledError):
            await sdk.get_queue_sender(queue).send_messages(ServiceBusMessage("no"))
        with pytest.raises(MessagingEntityDisabledError):
            await sdk.get_queue_receiver(queue).receive_messages(max_wait_time=5)


async def test_a_server_without_the_option_has_no_faults(servicebus_server: Service) -> None:
    with pytest.raises(ValueError, match="401"):
        await servicebus_server.faults.add("throttle")


async def test_a_fault_that_is_not_understood_changes_nothing(faulty: Service) -> None:
    for kind, order in (
        ("explode", {}),
        ("slow", {"seconds": -1}),
        ("retry-with", {}),
        ("slow", {"typo": 1}),
    ):
        with pytest.raises(ValueError, match="400"):
            await faulty.faults.add(kind, **order)
    assert await faulty.faults.pending() == []

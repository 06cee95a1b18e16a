"""Sessions: order, one holder, renewal, loss, state, and the time-out of a receiver that takes any."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.composites import read_as
from devstack.servicebus.codec.decode import decode
from devstack.servicebus.codec.message import ParsedMessage
from devstack.servicebus.codec.values import Symbol, Timestamp, UInt
from devstack.testing import Service
from devstack.testing.amqp import RawClient, message, raw_client
from servicebus.support import client, new_queue, new_subscription

TIMEOUT = Symbol("com.microsoft:timeout")
FILTER = Symbol("com.microsoft:session-filter")


@pytest.fixture
async def sdk(servicebus_server: Service) -> AsyncIterator[ServiceBusClient]:
    async with client(servicebus_server) as connected:
        yield connected


@pytest.fixture
async def raw(servicebus_server: Service) -> AsyncIterator[RawClient]:
    async with raw_client(servicebus_server.port) as connected:
        yield connected


@pytest.fixture
async def queue(servicebus_server: Service) -> AsyncIterator[str]:
    async with new_queue(servicebus_server, requires_session=True) as name:
        yield name


async def fill(raw: RawClient, queue: str, *sessions: str, count: int = 1) -> None:
    sender = await raw.attach_sender(queue)
    for session in sessions:
        for number in range(count):
            await raw.deliver(sender, message(f"{session}{number}".encode(), session_id=session))


async def hold(raw: RawClient, queue: str, session: str | None, *, credit: int = 0) -> p.Attach:
    answer = await raw.attach_receiver(queue, session=session)
    assert answer.source is not None, read_as(p.ErrorField, (await raw.expect(p.Detach)).error)
    if credit:
        raw.credit(answer.handle, credit)
    return answer


def session_of(answer: p.Attach) -> Any:
    source = read_as(p.Source, answer.source)
    assert source is not None
    assert source.filter is not None
    return source.filter[FILTER]


def delivery_count(parsed: ParsedMessage) -> Any:
    header, _ = decode(parsed.raw)
    return header.value[4]


async def refusal(raw: RawClient) -> str:
    error = read_as(p.ErrorField, (await raw.expect(p.Detach)).error)
    assert error is not None
    return error.condition


async def test_a_session_is_in_order_across_abandon_and_a_new_receiver(
    servicebus_server: Service, sdk: ServiceBusClient
) -> None:
    async with new_subscription(servicebus_server, requires_session=True) as (topic, subscription):
        async with sdk.get_topic_sender(topic) as sender:
            for number in range(4):
                await sender.send_messages(ServiceBusMessage(str(number), session_id="s"))
        async with sdk.get_subscription_receiver(
            topic, subscription, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5
        ) as receiver:
            assert receiver.session.session_id == "s"
            zero, one = await receiver.receive_messages(2)
            await receiver.complete_message(zero)
            await receiver.abandon_message(one)
        async with sdk.get_subscription_receiver(
            topic, subscription, session_id="s", max_wait_time=5
        ) as receiver:
            messages = await receiver.receive_messages(4)

            assert [(str(m), m.delivery_count) for m in messages] == [("1", 1), ("2", 0), ("3", 0)]


async def test_a_session_has_one_holder_whose_lock_is_renewed_until_lost(
    servicebus_server: Service, sdk: ServiceBusClient
) -> None:
    async with new_queue(
        servicebus_server, requires_session=True, lock_duration=timedelta(seconds=3)
    ) as queue:
        async with sdk.get_queue_sender(queue) as sender:
            await sender.send_messages(ServiceBusMessage("m", session_id="s"))
        async with sdk.get_queue_receiver(queue, session_id="s", max_wait_time=5) as receiver:
            (taken,) = await receiver.receive_messages()
            before = receiver.session.locked_until_utc
            renewed = await receiver.session.renew_lock()
            assert before is not None
            assert renewed > before
            async with client(servicebus_server, retry_total=0) as other:
                with pytest.raises(SessionCannotBeLockedError):
                    async with other.get_queue_receiver(queue, session_id="s", max_wait_time=1):
                        pytest.fail("two receivers hold one session")

            await asyncio.sleep((renewed - datetime.now(UTC)).total_seconds() + 0.1)

            with pytest.raises(SessionLockLostError):
                await receiver.complete_message(taken)
        async with sdk.get_queue_receiver(queue, session_id="s", max_wait_time=5) as receiver:
            (again,) = await receiver.receive_messages()
            assert again.delivery_count == 1


async def test_no_free_session_is_a_time_out(servicebus_server: Service, queue: str) -> None:
    async with client(servicebus_server, retry_total=0) as sdk:
        with pytest.raises(OperationTimeoutError):
            async with sdk.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.5):
                pytest.fail("there is no session")


async def test_a_lost_session_detaches_its_link_with_the_reason(
    servicebus_server: Service, raw: RawClient
) -> None:
    async with new_queue(
        servicebus_server, requires_session=True, lock_duration=timedelta(milliseconds=300)
    ) as queue:
        await fill(raw, queue, "s")
        await hold(raw, queue, "s")

        assert await refusal(raw) == "com.microsoft:session-lock-lost"
        await hold(raw, queue, "s")


async def test_any_session_takes_each_session_once(queue: str, raw: RawClient) -> None:
    await fill(raw, queue, "a", "b", "c")

    sessions = [session_of(await hold(raw, queue, None)) for _ in range(3)]

    assert sorted(sessions) == ["a", "b", "c"]
    answer = await raw.attach_receiver(queue, session=None, properties={TIMEOUT: UInt(100)})
    assert answer.source is None
    assert await refusal(raw) == "com.microsoft:timeout"


async def test_a_receiver_that_waits_gets_the_session_when_it_comes(
    servicebus_server: Service, queue: str, raw: RawClient
) -> None:
    async with raw_client(servicebus_server.port) as waiting:
        attach = asyncio.create_task(waiting.attach_receiver(queue, session=None))
        await fill(raw, queue, "late")

        assert session_of(await attach) == "late"


async def test_a_closed_link_frees_its_session_at_once_and_counts_nothing(
    servicebus_server: Service, queue: str, raw: RawClient
) -> None:
    await fill(raw, queue, "s", count=2)
    async with raw_client(servicebus_server.port) as holder:
        await hold(holder, queue, "s", credit=5)
        assert [(await holder.receive()).body for _ in range(2)] == [b"s0", b"s1"]
    answer = await raw.attach_receiver(queue, session="s")
    while answer.source is None:  # the other connection's end may not have arrived yet
        assert await refusal(raw) == "com.microsoft:session-cannot-be-locked"
        answer = await raw.attach_receiver(queue, session="s")
    raw.credit(answer.handle, 5)

    deliveries = [await raw.receive() for _ in range(2)]

    assert [delivery.body for delivery in deliveries] == [b"s0", b"s1"]
    assert [delivery_count(delivery.message) for delivery in deliveries] == [0, 0]


async def test_the_settlement_of_a_freed_session_is_refused(queue: str, raw: RawClient) -> None:
    await fill(raw, queue, "s")
    first = await hold(raw, queue, "s", credit=1)
    delivery = await raw.receive()
    raw.send(p.Detach(first.handle, closed=True))
    await raw.expect(p.Detach)
    second = await hold(raw, queue, "s")

    status, _, condition = await raw.request(
        f"{queue}/$management",
        "com.microsoft:update-disposition",
        {"disposition-status": "completed", "lock-tokens": [UUID(bytes_le=delivery.tag)], "session-id": "s"},
    )

    assert (status, condition) == (410, "com.microsoft:session-lock-lost")
    raw.credit(second.handle, 1)
    assert (await raw.receive()).body == b"s0"


async def test_session_state_belongs_to_the_holder(queue: str, raw: RawClient) -> None:
    node = f"{queue}/$management"
    await fill(raw, queue, "s")
    status, _, condition = await raw.request(node, "com.microsoft:get-session-state", {"session-id": "s"})
    assert (status, condition) == (410, "com.microsoft:session-lock-lost")
    await hold(raw, queue, "s")

    empty = await raw.request(node, "com.microsoft:get-session-state", {"session-id": "s"})
    stored = await raw.request(
        node, "com.microsoft:set-session-state", {"session-id": "s", "session-state": b"at 7"}
    )
    read = await raw.request(node, "com.microsoft:get-session-state", {"session-id": "s"})

    assert empty[:2] == (200, {"session-state": None})
    assert stored[0] == 200
    assert read[:2] == (200, {"session-state": b"at 7"})


async def test_sessions_are_listed_by_messages_and_by_state(queue: str, raw: RawClient) -> None:
    node = f"{queue}/$management"
    everything = Timestamp(253_402_300_800_000)
    assert (await raw.request(node, "com.microsoft:get-message-sessions", _page(everything)))[0] == 204
    await fill(raw, queue, "b", "a")
    before = Timestamp(int((datetime.now(UTC) - timedelta(seconds=5)).timestamp() * 1000))
    await hold(raw, queue, "c")
    await raw.request(node, "com.microsoft:set-session-state", {"session-id": "c", "session-state": b"x"})

    all_sessions = await raw.request(node, "com.microsoft:get-message-sessions", _page(everything))
    with_state = await raw.request(node, "com.microsoft:get-message-sessions", _page(before))

    assert all_sessions[1]["sessions-ids"] == ["a", "b", "c"]
    assert with_state[1]["sessions-ids"] == ["c"]


async def test_without_session_a_queue_refuses_and_a_subscription_dead_letters(
    servicebus_server: Service, sdk: ServiceBusClient, queue: str, raw: RawClient
) -> None:
    sender = await raw.attach_sender(queue)
    outcome = await raw.deliver(sender, message())
    assert isinstance(outcome, p.Rejected)
    assert outcome.error is not None
    assert outcome.error.condition == "amqp:not-allowed"

    async with new_subscription(servicebus_server, requires_session=True) as (topic, subscription):
        assert await raw.deliver(await raw.attach_sender(topic), message(b"none")) == p.Accepted()
        async with sdk.get_subscription_receiver(
            topic, subscription, sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=5
        ) as dead:
            (found,) = await dead.receive_messages()
            assert str(found) == "none"


async def test_the_kind_of_receiver_must_fit_the_entity(
    servicebus_server: Service, queue: str, raw: RawClient
) -> None:
    async with new_queue(servicebus_server) as plain:
        for name, session in ((queue, False), (plain, "s")):
            answer = await raw.attach_receiver(name, session=session)
            assert answer.source is None
            assert await refusal(raw) == "amqp:not-allowed"


def _page(updated: Timestamp) -> dict[str, Any]:
    return {"last-updated-time": updated, "skip": 0, "top": 100}

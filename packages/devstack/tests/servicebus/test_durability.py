"""SIGKILL loses nothing that was acknowledged and brings nothing back that was settled."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from devstack.servicebus.amqp.engine import Engine
from devstack.servicebus.amqp.store import Store
from devstack.servicebus.broker.description import Description
from devstack.servicebus.broker.queue import Queue
from devstack.servicebus.broker.sessions import SessionLock
from devstack.servicebus.codec import encode as e
from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.errors import AmqpError
from devstack.servicebus.codec.message import BATCH_FORMAT, parse
from devstack.testing import Service, eventually, running
from devstack.testing.amqp import RawClient, batch, message, raw_client
from servicebus.support import administration, client

pytestmark = pytest.mark.long  # tests/contract goes through the same calls, quickly


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Service]:
    folder = tmp_path / "data"
    with running(Service("servicebus", folder)) as service:
        yield service


async def receive_all(raw: RawClient, path: str, count: int) -> list[bytes]:
    handle = (await raw.attach_receiver(path)).handle
    raw.credit(handle, 1000)
    bodies = [(await raw.receive()).body for _ in range(count)]
    assert await raw.nothing_arrives()
    return bodies


async def test_entities_messages_windows_and_state_outlive_a_kill(server: Service) -> None:
    async with administration(server) as admin:
        await admin.create_queue("plain", max_delivery_count=5)
        await admin.create_queue("sessions", requires_session=True)
        await admin.create_topic("topic", requires_duplicate_detection=True)
        await admin.create_subscription("topic", "all")
    async with raw_client(server.port) as raw:
        plain = await raw.attach_sender("plain")
        for text in (b"completed", b"abandoned", b"deferred", b"dead", b"locked", b"waiting"):
            await raw.deliver(plain, message(text))
        receiver = (await raw.attach_receiver("plain")).handle
        raw.credit(receiver, 5)
        taken = [await raw.receive() for _ in range(5)]
        await raw.settle(taken[0], p.Accepted())
        await raw.settle(taken[1], p.Modified(delivery_failed=True))
        await raw.settle(taken[2], p.Modified(delivery_failed=True, undeliverable_here=True))
        await raw.settle(taken[3], p.Rejected())
        topic = await raw.attach_sender("topic")
        await raw.deliver(topic, message(b"once", message_id="same"))
        sessions = await raw.attach_sender("sessions")
        await raw.deliver(sessions, message(b"in session", session_id="s"))
        await raw.attach_receiver("sessions", session="s")
        node, state = "sessions/$management", {"session-id": "s", "session-state": b"at 7"}
        assert (await raw.request(node, "com.microsoft:set-session-state", state))[0] == 200

        server.kill()
    server.start()

    async with raw_client(server.port) as raw:
        topic = await raw.attach_sender("topic")
        await raw.deliver(topic, message(b"twice", message_id="same"))
        assert await receive_all(raw, "topic/subscriptions/all", 1) == [b"once"]
        assert await receive_all(raw, "plain", 3) == [b"abandoned", b"locked", b"waiting"]
        assert await receive_all(raw, "plain/$deadletterqueue", 1) == [b"dead"]
        status, answer, _ = await raw.request(
            "plain/$management", "com.microsoft:peek-message", {"from-sequence-number": 3, "message-count": 1}
        )
        assert status == 200
        assert b"deferred" in answer["messages"][0]["message"]
        plain = await raw.attach_sender("plain")
        await raw.deliver(plain, message(b"new"))
    async with administration(server) as admin:
        assert (await admin.get_queue("plain")).max_delivery_count == 5
    async with (
        client(server) as sdk,
        sdk.get_queue_receiver("sessions", session_id="s", max_wait_time=5) as receiver_,
    ):
        assert await receiver_.session.get_state() == b"at 7"
        (found,) = await receiver_.receive_messages()
        assert str(found) == "in session"


async def test_numbers_are_not_given_twice_after_a_kill(server: Service) -> None:
    async with administration(server) as admin:
        await admin.create_queue("q")
    async with raw_client(server.port) as raw:
        await raw.deliver(await raw.attach_sender("q"), message(b"1"))
        receiver = (await raw.attach_receiver("q")).handle
        raw.credit(receiver, 1)
        await raw.settle(await raw.receive(), p.Accepted())
        server.kill()
    server.start()

    async with client(server) as sdk:
        async with sdk.get_queue_sender("q") as sender:
            await sender.send_messages(ServiceBusMessage("2"))
        async with sdk.get_queue_receiver("q", max_wait_time=5) as receiver_:
            (found,) = await receiver_.receive_messages()
            assert found.sequence_number == 2


async def test_a_scheduled_message_is_due_also_after_a_kill(server: Service) -> None:
    async with administration(server) as admin:
        await admin.create_queue("q")
    async with raw_client(server.port) as raw:
        due = e.described(
            0x72, e.encode_map([e.symbol("x-opt-scheduled-enqueue-time"), e.timestamp(_soon_ms())])
        )
        await raw.deliver(await raw.attach_sender("q"), due + message(b"scheduled"))
        server.kill()
    server.start()

    async with raw_client(server.port) as raw:
        assert await receive_all(raw, "q", 1) == [b"scheduled"]


def _soon_ms() -> int:
    return int((time.time() + 1.5) * 1000)


@pytest.mark.parametrize(
    "after", [0.05, *(pytest.param(after, marks=pytest.mark.long) for after in (0.15, 0.3))]
)
async def test_a_kill_during_send_and_complete_loses_and_brings_back_nothing(
    server: Service, after: float
) -> None:
    async with administration(server) as admin:
        await admin.create_queue("q")
    acknowledged: set[bytes] = set()
    sent: set[bytes] = set()
    completed: set[bytes] = set()

    async def send() -> None:
        async with raw_client(server.port) as raw:
            handle = await raw.attach_sender("q")
            number = 0
            while True:
                bodies = {b"%d" % (number + index) for index in range(5)}
                number += 5
                sent.update(bodies)
                outcome = await raw.deliver(handle, batch(*map(message, bodies)), message_format=BATCH_FORMAT)
                assert outcome == p.Accepted()
                acknowledged.update(bodies)

    async def complete() -> None:
        async with raw_client(server.port) as raw:
            handle = (await raw.attach_receiver("q")).handle
            raw.credit(handle, 1_000)
            while True:
                delivery = await raw.receive()
                if await raw.settle(delivery, p.Accepted()) == p.Accepted():
                    completed.add(delivery.body)

    work = [asyncio.create_task(send()), asyncio.create_task(complete())]
    await eventually(lambda: completed)
    await asyncio.sleep(after)
    server.kill()
    for task in work:
        with contextlib.suppress(EOFError, ConnectionError):
            await task
    server.start()

    stored: list[bytes] = []
    async with raw_client(server.port) as raw:
        handle = (await raw.attach_receiver("q")).handle
        raw.credit(handle, 100_000, drain=True)
        assert (await raw.expect(p.Flow)).drain, "which comes behind all that is there"
        while any(isinstance(kept, p.Transfer) for kept, _ in raw.backlog):
            stored.append((await raw.receive()).body)
    assert len(stored) == len(set(stored))
    assert not completed & set(stored)
    # A completion whose answer was lost may have been applied: at most the one that was under way.
    assert len(acknowledged - completed - set(stored)) <= 1
    assert set(stored) <= sent


async def test_a_second_server_on_the_same_folder_is_refused(server: Service) -> None:
    second = Service("servicebus", server.folder)

    with pytest.raises(AssertionError, match="is in use by another process"):
        second.start()


def test_a_damaged_file_is_named_and_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    file = folder / "servicebus.sqlite"
    file.write_bytes(b"this is no database" * 100)

    with pytest.raises(AssertionError, match=r"servicebus.sqlite is damaged or not a database"):
        Service("servicebus", folder).start()

    assert file.read_bytes() == b"this is no database" * 100


class Holder:
    """Holds a session, and lets it go when the queue is deleted, as the link of a receiver does."""

    def __init__(self, engine: Engine, queue: Queue, lock: SessionLock) -> None:
        self._engine, self._queue, self._lock = engine, queue, lock
        engine.add_reader(queue, self)

    def pump(self) -> None:
        """Takes nothing."""

    def entity_gone(self, error: AmqpError) -> None:
        del error
        self._queue.close_session(self._lock.session, self._engine.now())


async def test_what_the_reader_of_a_deleted_queue_held_is_gone_with_the_queue(tmp_path: Path) -> None:
    """Its message has expired by then: if the session ended in any other way, it would be a dead letter now."""
    now = 1000.0
    brief = e.described(0x70, e.encode_list([b"\x40", b"\x40", e.uint(1000)])) + message(session_id="s")
    with Store.opened(tmp_path) as store:
        engine = Engine(store, lambda: now)
        entity = engine.create(
            Description(path="q", kind="queue", requires_session=True, dead_letter_on_expiration=True)
        )
        engine.namespace.send(entity, [parse(brief)], engine.now())
        lock = entity.queue.sessions.accept("s", engine.now(), 60_000, lambda: None)
        assert lock is not None
        assert entity.queue.take(engine.now(), lock.session) is not None
        Holder(engine, entity.queue, lock)
        now += 2

        engine.delete("q")

    with Store.opened(tmp_path) as store:
        assert Engine(store).namespace.entities() == []

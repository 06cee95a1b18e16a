"""A subscriber outside Functions, over real sockets: at rest it is ready, silent and small, and it grows with work."""

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, _servicebus_session

from cosmos_outbox.inbox.message import Delivery
from cosmos_outbox.servicebus import sessions
from cosmos_outbox.servicebus.client import servicebus_client
from cosmos_outbox.servicebus.sessions import WAITING, Sessions
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.telemetry.liveness import SlotHealth
from devstack.testing import Service, eventually
from tests.support.azure import Topic

pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.needs_a_socket("a broker that is listened at, and says nothing"),
]
"""The SDK leaves the socket open of an opening that is cancelled, as a stop does, or that the broker ends."""

SLOTS = 8
WAIT_SECONDS, OPENING_SECONDS = 0.5, 4.0
"""Of a wait that ends without a session, and what an opening may take: the SDK's own repetitions take 13 s."""
FIRST_PAUSE = 0.2


@dataclass
class Wire:
    """Passes bytes on to the broker, and counts the connections. ``away``: it closes each at once."""

    port: int
    address: str = ""
    open: int = 0
    most: int = 0
    made: list[float] = field(default_factory=list)
    away: bool = False
    ends: set[asyncio.StreamWriter] = field(default_factory=set)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.made.append(time.monotonic())
        if not self.away:
            self.open += 1
            self.most = max(self.most, self.open)
            there, to_there = await asyncio.open_connection("127.0.0.1", self.port)
            self.ends.add(writer)
            await asyncio.gather(passed(reader, to_there), passed(there, writer))
            self.ends.discard(writer)
            self.open -= 1
        writer.close()

    def cut(self) -> None:
        """End what is connected, and whatever is connected from now on."""
        self.away = True
        for writer in self.ends:
            writer.close()


async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


@pytest.fixture
async def wire(servicebus_server: Service) -> AsyncIterator[Wire]:
    wire = Wire(servicebus_server.port)
    server = await asyncio.start_server(wire.connected, "127.0.0.1", 0)
    own = f":{server.sockets[0].getsockname()[1]}"
    wire.address = servicebus_server.connection_string.replace(f":{wire.port}", own)
    yield wire
    server.close()
    await eventually(lambda: wire.open == 0)


@dataclass
class Worker:
    """What a subscriber worker holds of one subscription, and the messages that it was given."""

    topic: Topic
    work: SlotHealth = field(default_factory=SlotHealth)
    received: dict[str, float] = field(default_factory=dict)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    cancels: int = 0
    """So many calls await something that somebody else has cancelled."""

    async def receive(self, delivery: Delivery) -> None:
        if self.cancels:
            self.cancels -= 1
            raise asyncio.CancelledError
        self.received[delivery.message_id] = time.monotonic()
        await self.go_on.wait()

    async def send(self, *names: str) -> float:
        async with (
            servicebus_client(Connection(self.topic.service.connection_string), None) as client,
            client.get_topic_sender(self.topic.name) as sender,
        ):
            for name in names:
                await sender.send_messages(ServiceBusMessage(b"x", message_id=name, session_id=name))
        return time.monotonic()


@pytest.fixture
async def worker(servicebus_server: Service, wire: Wire) -> AsyncIterator[Worker]:
    """With times so short that the end of a wait is seen often."""
    topic, stop = Topic(servicebus_server), asyncio.Event()
    await topic.create()
    worker = Worker(topic)
    worker.go_on.set()
    async with servicebus_client(Connection(wire.address), None, retries=0) as client:
        sessions = Sessions(client, topic.name, topic.subscription, WAIT_SECONDS, OPENING_SECONDS)
        serving = asyncio.create_task(sessions.serve(worker.receive, stop, worker.work, slots=SLOTS))
        yield worker
        stop.set()
        await serving
    await topic.delete()
    del client, sessions, serving
    gc.collect()  # what the SDK left open ends with the test that may leave it open


@pytest.mark.long
async def test_an_idle_worker_stays_ready_and_silent_then_receives_at_once(
    worker: Worker, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    rested, troubles = time.monotonic() + 2 * (WAIT_SECONDS + OPENING_SECONDS), set[str | None]()

    def has_rested() -> bool:
        troubles.add(worker.work.waiting_for)
        return time.monotonic() > rested

    await eventually(has_rested)
    assert (troubles, caplog.records) == ({None}, [])
    assert wire.most == WAITING
    assert len(wire.made) > 2 * WAITING, "each wait has its end"
    sent = await worker.send("after the rest")
    await eventually(lambda: worker.received)
    assert worker.received["after the rest"] - sent < 2


@pytest.mark.long
async def test_more_join_when_there_is_work_and_leave_when_it_is_done(worker: Worker, wire: Wire) -> None:
    worker.go_on.clear()
    names = {f"session {number}" for number in range(3 * SLOTS)}
    await worker.send(*names)
    await eventually(lambda: worker.work.sessions == SLOTS)
    assert wire.most == SLOTS, "no more than it may hold"
    worker.go_on.set()
    await eventually(lambda: worker.received.keys() == names)
    await eventually(
        lambda: (worker.work.sessions, wire.open, len(worker.work.beats)) == (0, WAITING, WAITING)
    )


async def test_cancellations_out_of_calls_end_no_slot(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    """More of them than there are slots: with each slot that ended, one less would handle messages."""
    worker.cancels = SLOTS + 2
    names = [f"m-{number}" for number in range(SLOTS + 2)]
    await worker.send(*names)
    await eventually(lambda: set(worker.received) == set(names))
    assert "messages wait: CancelledError was raised" in caplog.text


async def test_a_broker_that_refuses_is_asked_ever_more_rarely_and_logged_once(
    worker: Worker, wire: Wire, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, logger="cosmos_outbox")
    monkeypatch.setattr("cosmos_outbox.telemetry.liveness._FIRST_PAUSE_SECONDS", FIRST_PAUSE)
    await eventually(lambda: wire.open == WAITING)
    wire.away, before = True, len(wire.made)
    await eventually(lambda: len(wire.made) >= before + 5 * WAITING)
    assert worker.work.waiting_for is not None
    fifth = wire.made[before + 5 * WAITING - 1] - wire.made[before]
    assert fifth > 7 * FIRST_PAUSE, "each slot waits once, then as long as the outage has lasted: 1, 2, 4, 8"
    wire.away = False
    await worker.send("when it is back")
    await eventually(lambda: worker.received)
    await eventually(lambda: worker.work.waiting_for is None)
    logged = [
        (each.levelname, each.message) for each in caplog.records if each.name.startswith("cosmos_outbox")
    ]
    assert [level for level, _ in logged] == ["WARNING", "INFO"], logged


async def test_an_outage_of_many_sessions_is_logged_once_and_all_come_back(
    worker: Worker, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="cosmos_outbox")
    worker.go_on.clear()
    names = {f"session {number}" for number in range(SLOTS)}
    await worker.send(*names)
    await eventually(lambda: worker.received.keys() == names)
    wire.cut()
    worker.go_on.set()
    await eventually(lambda: worker.work.waiting_for is not None and worker.work.sessions == 0)
    assert worker.work.received == 0, "no message was completed"
    worker.received.clear()
    wire.away = False
    await eventually(lambda: worker.work.received == SLOTS)
    assert worker.received.keys() == names
    await eventually(lambda: (wire.open, len(worker.work.beats)) == (WAITING, WAITING))
    logged = [each.levelname for each in caplog.records if each.name.startswith("cosmos_outbox")]
    assert logged == ["WARNING", "INFO"], caplog.text


@pytest.mark.parametrize(("seconds", "where"), [(3_600, "ahead of"), (-3_600, "behind")])
async def test_a_wrong_clock_is_named_and_messages_are_handled(
    worker: Worker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    seconds: int,
    where: str,
) -> None:
    """The broker says by its own clock until when a lock lasts; the SDK compares that with this machine's."""
    wrong = timedelta(seconds=seconds)
    monkeypatch.setattr(_servicebus_session, "utc_now", lambda: datetime.now(UTC) + wrong)
    monkeypatch.setattr(sessions, "utc_now", lambda: datetime.now(UTC) + wrong)
    await worker.send("first")
    await eventually(lambda: "first" in worker.received)
    await worker.send("second")
    await eventually(lambda: worker.work.received >= 2)
    assert f"s {where} that of Service Bus: set the clock" in caplog.text

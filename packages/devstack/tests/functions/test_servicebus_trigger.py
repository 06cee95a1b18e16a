"""Deliveries, order, locks and settlement as the real host does them, against entities with the shortest
locks.

Most tests share one host and its entities, and know their own messages by their ids.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient

from devstack.testing import Service, eventually, running
from functions.support import make_host, recorded, with_host_json
from servicebus.support import administration, client, connection_string, unique

LOCK = timedelta(seconds=5)
"""The shortest that the service allows."""
LONGER_THAN_LOCK = LOCK.total_seconds() * 1.2
HOST_JSON = {"sessionIdleTimeout": "00:00:00.3", "maxConcurrentCalls": 3, "maxConcurrentSessions": 4}


@dataclass(frozen=True)
class Entities:
    """What the app's functions listen to."""

    topic: str
    subscription: str
    one: str
    many: str

    @classmethod
    async def create(cls, service: Service) -> "Entities":
        made = cls(unique("topic"), "all", unique("one"), unique("many"))
        properties: dict[str, Any] = {"lock_duration": LOCK, "max_delivery_count": 3}
        async with administration(service) as admin:
            await admin.create_topic(made.topic)
            await admin.create_subscription(
                made.topic, made.subscription, requires_session=True, **properties
            )
            await admin.create_queue(made.one, **properties)
            await admin.create_queue(made.many, **properties)
        return made


class App:
    """The bus app on its entities, in one host after the other."""

    def __init__(self, folder: Path, service: Service, entities: Entities) -> None:
        self._folder = folder
        self._service = service
        self.entities = entities
        self._hosts = 0

    def host(self, host_json: Mapping[str, Any], bindings: str, *arguments: str) -> Service:
        self._hosts += 1
        folder = self._folder / f"host{self._hosts}"
        settings = {
            "SERVICEBUS": connection_string(self._service.port),
            "RECORD": str(self._folder / "record"),
            "BINDINGS": bindings,
            "TOPIC": self.entities.topic,
            "SUBSCRIPTION": self.entities.subscription,
            "ONE": self.entities.one,
            "MANY": self.entities.many,
        }
        return make_host(folder, with_host_json(folder / "app", "bus", host_json), settings, *arguments)

    def calls(self, prefix: str) -> list[dict[str, Any]]:
        """Of functions that got a message whose id begins so, in order."""
        return [
            call
            for call in recorded(self._folder / "record")
            if "messages" in call and call["messages"][0]["message_id"].startswith(prefix)
        ]

    def received(self, prefix: str) -> list[tuple[str, int]]:
        """Ids and delivery counts."""
        messages = [message for call in self.calls(prefix) for message in call["messages"]]
        return [
            (message["message_id"].removeprefix(prefix), message["delivery_count"]) for message in messages
        ]

    def done(self, prefix: str) -> list[str]:
        calls = recorded(self._folder / "record")
        ids = [each for call in calls if call["what"].endswith("done") for each in call["ids"]]
        return [each.removeprefix(prefix) for each in ids if each.startswith(prefix)]


@pytest.fixture(scope="module")
def app(servicebus_server: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """All functions, in a host that runs."""
    entities = asyncio.run(Entities.create(servicebus_server))
    made = App(tmp_path_factory.mktemp("bus"), servicebus_server, entities)
    with running(made.host(HOST_JSON, "session one many")):
        yield made


@pytest.fixture
async def own_app(servicebus_server: Service, tmp_path: Path) -> App:
    """Entities that no host listens to yet."""
    return App(tmp_path, servicebus_server, await Entities.create(servicebus_server))


@pytest.fixture
async def bus(servicebus_server: Service) -> AsyncIterator[ServiceBusClient]:
    async with client(servicebus_server) as connected:
        yield connected


@pytest.fixture
def prefix() -> str:
    """Of the ids of a test's messages."""
    return unique("m") + "-"


def message(
    message_id: str, session: str | None = None, *, pause: float = 0, fail: int = 0
) -> ServiceBusMessage:
    """``pause`` seconds in the function, which fails at the first ``fail`` deliveries."""
    return ServiceBusMessage(
        f"body of {message_id}",
        message_id=message_id,
        session_id=session,
        application_properties={"pause": pause, "fail": fail},
    )


async def publish(bus: ServiceBusClient, app: App, *messages: ServiceBusMessage) -> None:
    """To the session subscription, in this order."""
    async with bus.get_topic_sender(app.entities.topic) as sender:
        for each in messages:
            await sender.send_messages(each)


async def enqueue(bus: ServiceBusClient, queue: str, messages: Sequence[ServiceBusMessage]) -> None:
    async with bus.get_queue_sender(queue) as sender:
        await sender.send_messages(list(messages))


async def in_queue(bus: ServiceBusClient, queue: str, prefix: str) -> list[str]:
    """What is in the queue, locked or not."""
    async with bus.get_queue_receiver(queue) as receiver:
        return ids(await receiver.peek_messages(max_message_count=100), prefix)


def ids(messages: Sequence[ServiceBusReceivedMessage], prefix: str) -> list[str]:
    return [
        str(each.message_id).removeprefix(prefix)
        for each in messages
        if str(each.message_id).startswith(prefix)
    ]


async def test_sessions_run_side_by_side_and_each_in_order(
    bus: ServiceBusClient, app: App, prefix: str
) -> None:
    sessions = [f"{prefix}{letter}" for letter in "abc"]
    for number in range(4):
        await publish(bus, app, *(message(f"{session}{number}", session, pause=0.1) for session in sessions))

    await eventually(lambda: len(app.done(prefix)) == 12)

    received = [each for each, _ in app.received(prefix)]
    assert [each for each in received if each[0] == "a"] == ["a0", "a1", "a2", "a3"]
    assert [each for each in received if each[0] == "b"] == ["b0", "b1", "b2", "b3"]
    assert [each for each in received if each[0] == "c"] == ["c0", "c1", "c2", "c3"]
    assert max(call["running"] for call in app.calls(prefix)) > 1


@pytest.mark.long
async def test_no_more_sessions_are_worked_on_than_allowed(
    bus: ServiceBusClient, app: App, prefix: str
) -> None:
    await publish(
        bus, app, *(message(f"{prefix}{number}", f"{prefix}{number}", pause=1) for number in range(6))
    )

    await eventually(lambda: len(app.done(prefix)) == 6)

    assert max(call["running"] for call in app.calls(prefix)) == 4


async def test_a_function_sees_what_the_sender_set(bus: ServiceBusClient, app: App, prefix: str) -> None:
    await publish(
        bus,
        app,
        ServiceBusMessage(
            '{"some": "json"}',
            message_id=f"{prefix}the id",
            session_id=f"{prefix}session",
            subject="the subject",
            content_type="application/json",
            correlation_id="the correlation",
            reply_to="the reply queue",
            to="the receiver",
            application_properties={"text": "é", "number": 7, "flag": True},
        ),
    )

    await eventually(lambda: app.done(prefix))

    seen = app.calls(prefix)[0]["messages"][0]
    assert seen["body"] == '{"some": "json"}'
    assert seen["session_id"] == f"{prefix}session"
    assert seen["subject"] == "the subject"
    assert seen["content_type"] == "application/json"
    assert seen["correlation_id"] == "the correlation"
    assert seen["reply_to"] == "the reply queue"
    assert seen["to"] == "the receiver"
    assert seen["application_properties"] == {"text": "é", "number": 7, "flag": True}
    assert seen["delivery_count"] == 1
    assert seen["sequence_number"] >= 1
    assert len(seen["lock_token"]) == 36
    assert seen["enqueued_time_utc"].startswith("20")


async def test_a_message_whose_function_raises_comes_again_before_the_next(
    bus: ServiceBusClient, app: App, prefix: str
) -> None:
    await publish(bus, app, message(f"{prefix}0", prefix, fail=2), message(f"{prefix}1", prefix))

    await eventually(lambda: "1" in app.done(prefix))

    assert app.received(prefix) == [("0", 1), ("0", 2), ("0", 3), ("1", 1)]


async def test_a_message_that_keeps_failing_is_dead_lettered_by_the_service(
    bus: ServiceBusClient, app: App, prefix: str
) -> None:
    await publish(bus, app, message(f"{prefix}0", prefix, fail=100), message(f"{prefix}1", prefix))

    await eventually(lambda: "1" in app.done(prefix))

    assert app.received(prefix) == [("0", 1), ("0", 2), ("0", 3), ("1", 1)]
    async with bus.get_subscription_receiver(
        app.entities.topic, app.entities.subscription, sub_queue=ServiceBusSubQueue.DEAD_LETTER
    ) as receiver:
        assert ids(await receiver.peek_messages(max_message_count=100), prefix) == ["0"]


@pytest.mark.long
async def test_locks_are_renewed_while_functions_run(bus: ServiceBusClient, app: App, prefix: str) -> None:
    await publish(bus, app, message(f"{prefix}session", prefix, pause=LONGER_THAN_LOCK))
    await enqueue(bus, app.entities.one, [message(f"{prefix}message", pause=LONGER_THAN_LOCK)])

    await eventually(lambda: len(app.done(prefix)) == 2)

    assert sorted(app.received(prefix)) == [("message", 1), ("session", 1)]
    await eventually(lambda: is_empty(bus, app.entities.one, prefix))


async def is_empty(bus: ServiceBusClient, queue: str, prefix: str) -> bool:
    return await in_queue(bus, queue, prefix) == []


async def test_messages_of_a_queue_run_side_by_side_up_to_the_limit(
    bus: ServiceBusClient, app: App, prefix: str
) -> None:
    await enqueue(bus, app.entities.one, [message(f"{prefix}{number}", pause=0.3) for number in range(8)])

    await eventually(lambda: len(app.done(prefix)) == 8)

    assert sorted(app.received(prefix)) == [(str(number), 1) for number in range(8)]
    assert max(call["running"] for call in app.calls(prefix)) == 3
    await eventually(lambda: is_empty(bus, app.entities.one, prefix))


async def test_a_function_that_takes_many_gets_a_batch(bus: ServiceBusClient, app: App, prefix: str) -> None:
    await enqueue(bus, app.entities.many, [message(f"{prefix}{number}") for number in range(5)])

    await eventually(lambda: len(app.done(prefix)) == 5)

    assert sorted(app.received(prefix)) == [(str(number), 1) for number in range(5)]
    assert max(len(call["messages"]) for call in app.calls(prefix)) > 1
    seen = [each for call in app.calls(prefix) for each in call["messages"]]
    assert [each["body"] for each in seen] == [f"body of {each['message_id']}" for each in seen]
    await eventually(lambda: is_empty(bus, app.entities.many, prefix))


async def test_a_batch_that_fails_comes_again_whole(bus: ServiceBusClient, app: App, prefix: str) -> None:
    await enqueue(bus, app.entities.many, [message(f"{prefix}0"), message(f"{prefix}1", fail=1)])

    await eventually(lambda: is_empty(bus, app.entities.many, prefix))

    whole = [call for call in app.calls(prefix) if len(call["messages"]) == 2]
    assert [[each["delivery_count"] for each in call["messages"]] for call in whole] == [[1, 1], [2, 2]]


@pytest.mark.long
async def test_a_stop_lets_the_function_end_and_what_is_done_does_not_come_again(
    bus: ServiceBusClient, own_app: App, prefix: str
) -> None:
    await enqueue(bus, own_app.entities.one, [message(f"{prefix}0", pause=1)])
    service = own_app.host(HOST_JSON, "one").start()
    await eventually(lambda: own_app.received(prefix))
    assert await asyncio.to_thread(service.terminate) == 0

    assert own_app.done(prefix) == ["0"]
    await eventually(lambda: is_empty(bus, own_app.entities.one, prefix))


@pytest.mark.long
async def test_a_session_message_comes_again_if_the_host_stops_in_its_function(
    bus: ServiceBusClient, own_app: App, prefix: str
) -> None:
    await publish(bus, own_app, message(f"{prefix}0", prefix, pause=1), message(f"{prefix}1", prefix))
    service = own_app.host(HOST_JSON, "session").start()
    await eventually(lambda: own_app.received(prefix))
    assert await asyncio.to_thread(service.terminate) == 0
    assert own_app.done(prefix) == ["0"]

    with running(own_app.host(HOST_JSON, "session")):
        await eventually(lambda: own_app.done(prefix) == ["0", "0", "1"])


@pytest.mark.long
async def test_a_retry_policy_is_applied_before_the_service_delivers_again(
    bus: ServiceBusClient, own_app: App, prefix: str
) -> None:
    await enqueue(bus, own_app.entities.one, [message(f"{prefix}0", fail=1)])
    with running(own_app.host(HOST_JSON, "one retry")) as service:
        await eventually(lambda: own_app.received(prefix)[-1:] == [("0", 2)])

    assert own_app.received(prefix) == [("0", 1), ("0", 1), ("0", 2)]
    assert "the retry policy of one is applied, and soon will not be" in service.log.read_text()


@pytest.mark.long
async def test_several_messages_of_a_session_at_once_when_host_json_says_so(
    bus: ServiceBusClient, own_app: App, prefix: str
) -> None:
    messages = [message(f"{prefix}{number}", prefix, pause=0.5) for number in range(6)]
    await publish(bus, own_app, *messages)
    with running(own_app.host(HOST_JSON | {"maxConcurrentCallsPerSession": "3"}, "session")):
        await eventually(lambda: len(own_app.done(prefix)) == 6)

    assert 1 < max(call["running"] for call in own_app.calls(prefix)) <= 3


@pytest.mark.long
async def test_what_is_cut_off_by_a_stop_or_a_crash_comes_again(
    bus: ServiceBusClient, own_app: App, prefix: str
) -> None:
    await publish(bus, own_app, message(f"{prefix}0", prefix, pause=2), message(f"{prefix}1", prefix))
    stopped = own_app.host(HOST_JSON, "session", "--drain-seconds=0.1").start()
    await eventually(lambda: len(own_app.received(prefix)) == 1)
    assert await asyncio.to_thread(stopped.terminate) == 0
    assert own_app.done(prefix) == []

    killed = own_app.host(HOST_JSON, "session").start()
    await eventually(lambda: len(own_app.received(prefix)) == 2)
    killed.kill()

    with running(own_app.host(HOST_JSON, "session")):
        await eventually(lambda: own_app.done(prefix) == ["0", "1"])
    assert [each for each, _ in own_app.received(prefix)] == ["0", "0", "0", "1"]


@pytest.mark.long
async def test_without_renewal_or_completion_a_message_comes_again(
    bus: ServiceBusClient, own_app: App, prefix: str
) -> None:
    await enqueue(bus, own_app.entities.one, [message(f"{prefix}0", pause=0)])
    host_json = {"autoCompleteMessages": False, "maxAutoLockRenewalDuration": "00:00:00"}

    with running(own_app.host(host_json, "one")):
        await eventually(lambda: own_app.done(prefix))
        assert await in_queue(bus, own_app.entities.one, prefix) == ["0"]
        await eventually(lambda: own_app.received(prefix) == [("0", 1), ("0", 2)])


def logged_outages(log: str) -> set[str]:
    """The functions that waited for Service Bus; none said the same twice while it did."""
    waited: set[str] = set()
    last: dict[str, str] = {}
    for function, text in re.findall(r"^\S+ (\w+)  (.*)$", log, re.MULTILINE):
        if "waiting for Service Bus" in text:
            assert last.get(function) != text
            last[function] = text
            waited.add(function)
        elif "is there again" in text:
            last.pop(function, None)
    return waited


@pytest.mark.long
async def test_the_host_waits_for_a_service_bus_that_is_away(tmp_path: Path, prefix: str) -> None:
    servicebus = Service("servicebus", tmp_path / "servicebus")
    with running(servicebus):
        app = App(tmp_path, servicebus, await Entities.create(servicebus))
        with running(app.host(HOST_JSON, "one session")) as host:
            servicebus.kill()
            await eventually(lambda: "waiting for Service Bus" in host.log.read_text())
            servicebus.start()
            async with client(servicebus) as bus:
                await enqueue(bus, app.entities.one, [message(f"{prefix}0")])
                await publish(bus, app, message(f"{prefix}1", prefix))
                await eventually(lambda: sorted(app.done(prefix)) == ["0", "1"])

    log = host.log.read_text()
    assert "Traceback" not in log
    assert logged_outages(log) == {"one", "session"}

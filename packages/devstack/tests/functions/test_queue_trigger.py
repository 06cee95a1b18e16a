"""Deliveries, failures and poison queues as the extension does them, against the real Azurite."""

import asyncio
import base64
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.storage.queue.aio import QueueClient, QueueServiceClient

from devstack.functions import queue_trigger
from devstack.functions.connections import Clients
from devstack.functions.host_json import QueuesOptions
from devstack.functions.indexing import FunctionInfo
from devstack.functions.invocation import Input
from devstack.functions.listener import Stop
from devstack.testing import Service, eventually, running
from functions.support import APPS, make_host, recorded

pytestmark = pytest.mark.long


@dataclass
class Queue:
    """A queue of one test, its poison queue, and hosts whose function listens to it."""

    name: str
    storage: Service
    service: QueueServiceClient
    folder: Path

    @property
    def client(self) -> QueueClient:
        return self.service.get_queue_client(self.name)

    async def send(self, name: str, **order: object) -> None:
        await self.client.send_message(encoded(json.dumps({"name": name, **order})))

    async def left(self, queue: str | None = None) -> int:
        """How many it holds, in sight or not."""
        try:
            found = await self.service.get_queue_client(queue or self.name).get_queue_properties()
        except ResourceNotFoundError:
            return 0
        return found.approximate_message_count or 0

    async def poison(self) -> list[str]:
        """As they were sent."""
        with contextlib.suppress(ResourceNotFoundError):
            poison = self.service.get_queue_client(f"{self.name}-poison")
            return [message.content for message in await poison.peek_messages(32)]
        return []

    @contextlib.contextmanager
    def host(self, host_json: Mapping[str, Any] | None = None, *arguments: str) -> Iterator[Service]:
        app = self.folder / "app"
        app.mkdir(exist_ok=True)
        (app / "function_app.py").write_text((APPS / "queue" / "function_app.py").read_text())
        content = {"version": "2.0", "extensions": {"queues": dict(host_json or {})}}
        (app / "host.json").write_text(json.dumps(content))
        settings = {
            "AzureWebJobsStorage": self.storage.connection_string,
            "QUEUE": self.name,
            "RECORD": str(self.folder / "record"),
        }
        with running(make_host(self.folder / "host", app, settings, *arguments)) as host:
            yield host

    def began(self) -> list[dict[str, Any]]:
        return [each for each in recorded(self.folder / "record") if each["what"] == "began"]

    def done(self) -> list[str]:
        return [each["name"] for each in recorded(self.folder / "record") if each["what"] == "done"]


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
async def queue(storage_server: Service, tmp_path: Path) -> AsyncIterator[Queue]:
    async with QueueServiceClient.from_connection_string(storage_server.connection_string) as service:
        made = Queue(f"q{uuid.uuid4().hex[:12]}", storage_server, service, tmp_path)
        await made.client.create_queue()
        yield made


async def test_a_queue_message_reaches_its_function_and_is_deleted_afterwards(queue: Queue) -> None:
    await queue.send("one")
    with queue.host():
        await eventually(lambda: queue.done() == ["one"])
        await eventually(lambda: _is_empty(queue))
    [seen] = queue.began()
    assert seen["count"] == 1
    assert seen["id"]
    assert seen["receipt"]
    now = datetime.now(UTC)
    inserted, expires, visible = (
        datetime.fromisoformat(seen[name]) for name in ("inserted", "expires", "next_visible")
    )
    assert now - timedelta(minutes=2) < inserted <= now
    assert expires - inserted == timedelta(days=7)
    assert timedelta(minutes=9) < visible - inserted < timedelta(minutes=12)


async def test_a_message_that_fails_comes_again_at_once(queue: Queue) -> None:
    await queue.send("twice", fail=2)
    with queue.host():
        await eventually(lambda: queue.done() == ["twice"])
        await eventually(lambda: _is_empty(queue))
    assert [each["count"] for each in queue.began()] == [1, 2, 3]
    assert await queue.poison() == []


async def test_one_that_keeps_failing_is_moved_to_the_poison_queue_as_it_was(queue: Queue) -> None:
    await queue.send("never", fail=99)
    await queue.send("other")
    with queue.host({"maxDequeueCount": 3}):
        await eventually(lambda: _is_empty(queue))
        assert await queue.poison() == [encoded('{"name": "never", "fail": 99}')]
    assert [each["count"] for each in queue.began() if each["name"] == "never"] == [1, 2, 3]
    assert queue.done() == ["other"]


async def test_one_that_fails_waits_as_long_as_host_json_says(queue: Queue) -> None:
    await queue.send("later", fail=1)
    with queue.host({"visibilityTimeout": "00:00:03"}):
        await eventually(lambda: queue.done() == ["later"])
    first, second = (datetime.fromisoformat(each["next_visible"]) for each in queue.began())
    assert second - first >= timedelta(seconds=2.5)


async def test_an_unreadable_message_goes_to_poison_without_a_call_or_delay(queue: Queue) -> None:
    await queue.client.send_message("no base64!")
    await queue.send("after")
    with queue.host() as host:
        await eventually(lambda: _is_empty(queue))
        assert await queue.poison() == ["no base64!"]
    assert queue.done() == ["after"]
    assert "is not in base64, which messageEncoding in host.json asks for" in host.log.read_text()


async def test_without_an_encoding_a_text_is_read_as_it_is(queue: Queue) -> None:
    await queue.client.send_message('{"name": "plain"}')
    with queue.host({"messageEncoding": "none"}):
        await eventually(lambda: queue.done() == ["plain"])


async def test_what_killed_its_host_too_often_is_moved_without_a_call(queue: Queue) -> None:
    await queue.send("deadly")
    for _ in range(2):
        await eventually(lambda: _read_for_a_second(queue))
    with queue.host({"maxDequeueCount": 2}):
        await eventually(lambda: _is_empty(queue))
        assert await queue.poison() == [encoded('{"name": "deadly"}')]
    assert queue.began() == []


async def test_a_poison_queue_has_none_of_its_own(queue: Queue) -> None:
    """What fails there stays out of sight: nothing else would end the loop."""
    queue.name += "-poison"
    await queue.client.create_queue()
    await queue.send("hopeless", fail=99)
    await queue.send("after")
    with queue.host({"maxDequeueCount": 1}):
        await eventually(lambda: queue.done() == ["after"])
        await eventually(lambda: _holds_one(queue))
    assert [each["name"] for each in queue.began() if each["name"] == "hopeless"] == ["hopeless"]
    assert await queue.left(f"{queue.name}-poison") == 0


async def test_only_so_many_run_at_once(queue: Queue) -> None:
    for number in range(12):
        await queue.send(str(number), pause=0.4)
    with queue.host({"batchSize": 4, "newBatchThreshold": 2}):
        await eventually(lambda: len(queue.done()) == 12)
    assert max(each["running"] for each in queue.began()) in (4, 5, 6)


async def test_a_missing_queue_is_waited_for_and_logged_once(queue: Queue) -> None:
    await queue.client.delete_queue()
    with queue.host() as host:
        await eventually(lambda: "nobody has made it yet" in host.log.read_text())
        await queue.client.create_queue()
        await queue.send("first")
        await eventually(lambda: queue.done() == ["first"])
        await eventually(lambda: f"Queue Storage ({queue.name}) is there again" in host.log.read_text())
    assert host.log.read_text().count("nobody has made it yet") == 1


async def test_what_runs_when_the_host_stops_may_end_and_counts(queue: Queue) -> None:
    await queue.send("slow", pause=1.5)
    with queue.host(None, "--stop-seconds=20"):
        await eventually(queue.began)
    assert queue.done() == ["slow"]
    assert await queue.left() == 0


async def test_a_message_stays_out_of_sight_while_its_function_runs(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host's ten minutes are two seconds here, and the function takes five."""
    monkeypatch.setattr(queue_trigger, "VISIBILITY_SECONDS", 2)
    monkeypatch.setenv("AzureWebJobsStorage", queue.storage.connection_string)
    await queue.send("long")
    calls = _SlowCalls()
    clients = Clients()
    trigger = {"type": "queueTrigger", "name": "message", "queueName": queue.name, "connection": ""}
    function = FunctionInfo("work", trigger, retry=None, disabled=False)
    listener = queue_trigger.QueueTrigger(function, calls, clients, QueuesOptions(max_polling_interval=0.2))
    async with contextlib.AsyncExitStack() as ending:
        ending.push_async_callback(clients.close)
        task = asyncio.create_task(listener.run())
        await eventually(lambda: calls.ended == 1)
        await eventually(lambda: _is_empty(queue))
        await listener.stop(Stop(1.0, drain=True))
        await task
    assert calls.began == 1


class _SlowCalls:
    """Every call takes longer than a message is out of sight."""

    began = ended = 0

    async def invoke(self, function: str, value: Input, **_: object) -> None:
        self.began += 1
        await asyncio.sleep(5)
        self.ended += 1


async def _is_empty(queue: Queue) -> bool:
    return await queue.left() == 0


async def _holds_one(queue: Queue) -> bool:
    return await queue.left() == 1


async def _read_for_a_second(queue: Queue) -> bool:
    """Read as by a host that dies then."""
    pages = queue.client.receive_messages(messages_per_page=1, visibility_timeout=1).by_page()
    async for page in pages:
        return bool([message async for message in page])
    return False

"""A message whose function ends while its time is renewed is deleted with the receipt that the renewal brings."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from azure.storage.queue import QueueMessage

from devstack.functions import queue_trigger
from devstack.functions.connections import Clients
from devstack.functions.host_json import QueuesOptions
from devstack.functions.indexing import FunctionInfo
from devstack.functions.listener import Stop


class _Queue:
    """One message. A renewal is answered a moment after the function has ended."""

    def __init__(self) -> None:
        self.renewing, self.ended, self.deleted = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.receipts: list[str | None] = []
        self._waits = [QueueMessage(content="e30=", id="1", pop_receipt="first", dequeue_count=1)]

    def receive_messages(self, **_: object) -> Any:
        return SimpleNamespace(by_page=self._pages)

    async def _pages(self) -> AsyncIterator[AsyncIterator[QueueMessage]]:
        yield self._messages()

    async def _messages(self) -> AsyncIterator[QueueMessage]:
        while self._waits:
            yield self._waits.pop()

    async def update_message(self, *_: object, **__: object) -> QueueMessage:
        self.renewing.set()
        await self.ended.wait()
        await asyncio.sleep(0)
        return QueueMessage(pop_receipt="second")

    async def delete_message(self, message: QueueMessage) -> None:
        self.receipts.append(message.pop_receipt)
        self.deleted.set()

    async def invoke(self, *_: object, **__: object) -> None:
        """The function: it ends as soon as the renewal is under way."""
        await self.renewing.wait()
        self.ended.set()


@pytest.mark.timeout(10)
async def test_a_renewal_under_way_ends_before_the_message_is_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_trigger, "VISIBILITY_SECONDS", 0.02)
    monkeypatch.setenv("STORAGE", "UseDevelopmentStorage=true")
    queue = _Queue()
    service = SimpleNamespace(get_queue_client=lambda _name: queue)
    clients = cast(Clients, SimpleNamespace(queues=lambda _connection: service))
    trigger = {"type": "queueTrigger", "name": "message", "queueName": "work", "connection": "STORAGE"}
    listener = queue_trigger.QueueTrigger(
        FunctionInfo("work", trigger, retry=None, disabled=False), queue, clients, QueuesOptions()
    )
    running = asyncio.create_task(listener.run())
    await queue.deleted.wait()
    await listener.stop(Stop(1.0, drain=True))
    await running
    assert queue.receipts == ["second"]

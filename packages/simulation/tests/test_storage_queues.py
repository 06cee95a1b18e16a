"""Storage queues in memory answer as Azurite does, and the deployed code keeps its promises under any fault."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import uuid4

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.queue.aio import QueueClient, QueueServiceClient

from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.storagequeue.client import error_code, queue_service
from devstack.testing import Service
from outbox_simulation.engine.loop import Loop
from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.storage_queues import CONNECTION, StorageQueues
from outbox_simulation.engine.world import run
from simulated.contacts import CONTACTS

pytestmark = pytest.mark.filterwarnings(  # the world imports all of the SDK
    "ignore:azure.cosmos.errors module:DeprecationWarning"
)

Story = Callable[[QueueClient], Awaitable[list[object]]]


async def _got(queue: QueueClient, hidden: int = 30) -> list[tuple[str, int | None]]:
    pages = queue.receive_messages(messages_per_page=32, visibility_timeout=hidden).by_page()
    async for page in pages:
        return [(str(each.content), each.dequeue_count) async for each in page]
    return []


async def _code(call: Awaitable[object]) -> str:
    try:
        await call
    except HttpResponseError as error:
        return f"{error.status_code} {error_code(error)}"
    return "done"


async def in_the_order_of_the_queue_with_all_characters(queue: QueueClient) -> list[object]:
    for text in ("one", "two & <three>", "é…"):
        await queue.send_message(text, time_to_live=-1)
    return [*await _got(queue), *await _got(queue), await _count(queue)]


async def what_is_not_deleted_comes_back_and_is_counted(queue: QueueClient) -> list[object]:
    await queue.send_message("again")
    first = await _got(queue, hidden=1)
    await asyncio.sleep(1.5)
    return [*first, *await _got(queue, hidden=1)]


async def who_has_no_newest_receipt_does_nothing(queue: QueueClient) -> list[object]:
    await queue.send_message("mine")
    held = await anext(aiter(queue.receive_messages(visibility_timeout=30)))
    renewed = await queue.update_message(held.id, held.pop_receipt, visibility_timeout=40)
    stale = [
        await _code(queue.delete_message(held.id, held.pop_receipt)),
        await _code(queue.update_message(held.id, held.pop_receipt, visibility_timeout=1)),
    ]
    gone = [await _code(queue.delete_message(held.id, renewed.pop_receipt)) for _ in range(2)]
    return [*stale, *gone, await _count(queue)]


async def what_is_given_back_is_there_at_once(queue: QueueClient) -> list[object]:
    await queue.send_message("back")
    held = await anext(aiter(queue.receive_messages(visibility_timeout=30)))
    await queue.update_message(held.id, held.pop_receipt, visibility_timeout=0)
    return [*await _got(queue)]


async def what_lives_for_a_second_is_gone_after_it(queue: QueueClient) -> list[object]:
    await queue.send_message("short", time_to_live=1)
    await queue.send_message("long", time_to_live=-1)
    await asyncio.sleep(2.5)
    return [*await _got(queue)]


async def _count(queue: QueueClient) -> int | None:
    return (await queue.get_queue_properties()).approximate_message_count


STORIES: dict[Story, list[object]] = {
    in_the_order_of_the_queue_with_all_characters: [("one", 1), ("two & <three>", 1), ("é…", 1), 3],
    what_is_not_deleted_comes_back_and_is_counted: [("again", 1), ("again", 2)],
    who_has_no_newest_receipt_does_nothing: [
        "400 PopReceiptMismatch", "400 PopReceiptMismatch", "done", "404 MessageNotFound", 0,
    ],
    what_is_given_back_is_there_at_once: [("back", 2)],
    what_lives_for_a_second_is_gone_after_it: [("long", 1)],
}  # fmt: skip


@asynccontextmanager
async def in_memory(queues: StorageQueues) -> AsyncIterator[QueueServiceClient]:
    async with queue_service(Connection(connection_string=CONNECTION), None, queues.http) as service:
        yield service


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_queues_in_memory_answer_as_the_service_does(story: Story) -> None:

    queues = StorageQueues("directory")

    async def result() -> list[object]:
        async with in_memory(queues) as service:
            return await story(service.get_queue_client("other"))

    assert Loop(None).run(result()) == STORIES[story]


@pytest.mark.long
async def test_azurite_answers_the_same(storage_server: Service) -> None:
    connection = Connection(connection_string=storage_server.connection_string)
    async with queue_service(connection, None) as service:
        for story, wanted in STORIES.items():
            queue = await service.create_queue(f"q-{uuid4().hex}")
            assert await story(queue) == wanted, story.__name__


FIRST = 18
"""With eleven kinds of faults, and still quick."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "seed", [FIRST, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 7))]
)
def test_under_faults_every_promise_is_kept(seed: int) -> None:
    drawn = SimulationPlan.drawn(seed, transport="storagequeue")
    result = run(replace(drawn, aggregates=2, seconds=10.0) if seed == FIRST else drawn, CONTACTS)
    assert [str(each) for each in result.violations] == []
    assert len(result.history.stored) > 5

"""A message is deleted after its function has returned, and comes again when it raised: five times, then it is moved.

What was read of the queue is out of sight for ten minutes, and for longer while its function runs. A host that dies
leaves it so: it comes again when that time is over. Nothing keeps a queue's order, nor a message from coming twice.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator

from azure.core.exceptions import AzureError, HttpResponseError, ResourceNotFoundError
from azure.storage.queue import QueueMessage
from azure.storage.queue.aio import QueueClient

from devstack.functions.connections import Clients
from devstack.functions.execution import Executor, StoppedWaiting, stack_trace
from devstack.functions.host_json import QueuesOptions
from devstack.functions.indexing import FunctionInfo
from devstack.functions.invocation import FunctionFailed, Invoker
from devstack.functions.listener import Outage, Stop, first_line
from devstack.functions.logs import logged_as
from devstack.functions.queue_message import NotEncoded, bind
from devstack.functions.queue_settings import QueueTriggerSettings

VISIBILITY_SECONDS = 600
"""For so long a message that was read is out of sight; the extension's, and no setting."""
SHORTEST_POLL_SECONDS = 0.1
POISON = "-poison"
LONGEST_NAME = 63
"""Of a queue: one whose name gets too long by ``-poison`` has no such queue."""
_GONE = (400, 404, 409)
"""The message was taken by somebody else, or is not there any more, nor its queue: there is nothing to do."""
_CLOSE_SECONDS = 1.0

_log = logging.getLogger(__name__)


class QueueTrigger:
    """Runs one function on the messages of a queue; a listener."""

    def __init__(
        self,
        function: FunctionInfo,
        invoker: Invoker,
        clients: Clients,
        options: QueuesOptions,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._settings = QueueTriggerSettings.read(function)
        self._function = function
        self._executor = Executor(function, invoker)
        service = clients.queues(self._settings.connection)
        # No policy of the SDK decodes: one message that it cannot decode would fail the whole batch.
        self._queue = service.get_queue_client(self._settings.queue)
        name = self._settings.queue + POISON
        has_poison = not self._settings.queue.endswith(POISON) and len(name) <= LONGEST_NAME
        self._poison = service.get_queue_client(name) if has_poison else None
        self._options = options
        self._uniform = uniform
        self._outage = Outage(
            f"Queue Storage ({self._settings.queue})", lambda: asyncio.get_running_loop().time()
        )
        self._stopped = asyncio.Event()
        self._processing: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        with logged_as(self._function.name):
            empty = 0
            while not self._stopped.is_set():
                empty = 0 if await self._take() else empty + 1
                if empty:
                    await self._rest(empty)
                else:
                    await self._until_few()

    async def stop(self, stop: Stop) -> None:
        self._stopped.set()
        self._executor.stop_retrying()
        for seconds in (stop.seconds, _CLOSE_SECONDS):
            if tasks := [*self._processing]:
                await asyncio.wait(tasks, timeout=seconds)
            for task in [*self._processing]:
                task.cancel()

    async def _take(self) -> bool:
        """Begin with what is there; whether there was anything."""
        try:
            messages = await self._page()
        except ResourceNotFoundError:
            self._outage.met(RuntimeError("nobody has made it yet"))
            return False
        except (AzureError, OSError) as error:
            self._outage.met(error)
            return False
        self._outage.over()
        for message in messages:
            task = asyncio.create_task(self._process(message))
            self._processing.append(task)
            task.add_done_callback(self._processing.remove)
        return bool(messages)

    async def _page(self) -> list[QueueMessage]:
        """By one request: the SDK would ask again until the number is full, or the queue empty."""
        pages = self._queue.receive_messages(
            messages_per_page=self._options.batch_size, visibility_timeout=VISIBILITY_SECONDS
        ).by_page()
        async for page in pages:
            return [message async for message in page]
        return []

    async def _rest(self, empty: int) -> None:
        longest = self._options.max_polling_interval
        pause = min(longest, SHORTEST_POLL_SECONDS * 2.0 ** min(empty - 1, 32) * self._uniform(0.8, 1.2))
        await _comes_within(max(pause, SHORTEST_POLL_SECONDS), self._stopped)

    async def _until_few(self) -> None:
        while len(self._processing) > self._options.new_batch_threshold and not self._stopped.is_set():
            await asyncio.wait(self._processing, return_when=asyncio.FIRST_COMPLETED)

    async def _process(self, message: QueueMessage) -> None:
        try:
            if _count(message) > self._options.max_dequeue_count:  # its last reader has died
                await self._move_to_poison(message)
                return
            await self._handle(message)
        except (AzureError, OSError) as error:
            _log.warning("%s could not be settled and comes again: %s", message.id, first_line(error))

    async def _handle(self, message: QueueMessage) -> None:
        try:
            value = bind(message, decodes=self._options.base64, binary=self._settings.binary)
        except NotEncoded:
            _log.error("%s is not in base64, which messageEncoding in host.json asks for", message.id)
            await self._move_to_poison(message)
            return
        try:
            async with self._kept_out_of_sight(message):
                await self._executor.run(value)
        except FunctionFailed as error:
            _log.error("failed at delivery %d of %s%s", message.dequeue_count, message.id, stack_trace(error))
            await self._give_back(message)
        except StoppedWaiting:
            _log.debug("stopped before the next retry")
        else:
            await self._delete(message)

    async def _give_back(self, message: QueueMessage) -> None:
        if self._poison is None:  # it stays out of sight for its time, as nothing would end a loop
            return
        if _count(message) >= self._options.max_dequeue_count:
            await self._move_to_poison(message)
            return
        with _unless_gone():
            await self._queue.update_message(
                message.id,
                message.pop_receipt,
                visibility_timeout=round(self._options.visibility_timeout),
            )

    async def _move_to_poison(self, message: QueueMessage) -> None:
        if self._poison is None:
            return
        _log.warning("%s is moved to the queue %s", message.id, self._poison.queue_name)
        await _send(self._poison, message.content)
        await self._delete(message)

    async def _delete(self, message: QueueMessage) -> None:
        with _unless_gone():
            await self._queue.delete_message(message)

    @contextlib.asynccontextmanager
    async def _kept_out_of_sight(self, message: QueueMessage) -> AsyncIterator[None]:
        ended = asyncio.Event()
        renewing = asyncio.create_task(self._renew(message, ended))
        try:
            yield
        finally:
            ended.set()
            await asyncio.wait([renewing])  # one that is under way changes the receipt

    async def _renew(self, message: QueueMessage, ended: asyncio.Event) -> None:
        """Half-way, each time. The message's own receipt is the newest: an earlier one settles nothing."""
        while not await _comes_within(VISIBILITY_SECONDS / 2, ended):
            try:
                renewed = await self._queue.update_message(
                    message.id, message.pop_receipt, visibility_timeout=VISIBILITY_SECONDS
                )
            except (AzureError, OSError) as error:
                _log.warning("%s may come again while it is worked on: %s", message.id, first_line(error))
            else:
                message.pop_receipt = renewed.pop_receipt


async def _comes_within(seconds: float, event: asyncio.Event) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _count(message: QueueMessage) -> int:
    return message.dequeue_count or 0


async def _send(queue: QueueClient, content: str) -> None:
    try:
        await queue.send_message(content)
    except ResourceNotFoundError:
        with contextlib.suppress(HttpResponseError):  # another host makes it at this moment
            await queue.create_queue()
        await queue.send_message(content)


@contextlib.contextmanager
def _unless_gone() -> Iterator[None]:
    try:
        yield
    except HttpResponseError as error:
        if error.status_code not in _GONE:
            raise

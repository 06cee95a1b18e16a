"""Jobs in a process of its own: ``python -m examples.imports.worker``. SIGTERM lets the job in hand end.

A message is out of sight while its job runs. A worker that dies leaves it so for a while; its next receiver finds
the task taken, and leaves it to the task's own time.
"""

import asyncio
import base64
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Mapping

from azure.core.exceptions import AzureError
from azure.storage.queue import QueueMessage
from azure.storage.queue.aio import QueueClient

from cosmos_outbox import running
from cosmos_outbox.errors import OutboxError
from examples.imports.jobs import Jobs
from examples.imports.service import FILES, QUEUE, jobs, service

VISIBILITY_SECONDS = int(os.environ.get("IMPORT_VISIBILITY_SECONDS", "60"))
REST_SECONDS = 1.0
MOST_DELIVERIES = 20
"""A message that raises each time is left to a reader of the log; what it asks for is in the task."""

_log = logging.getLogger(__name__)


async def work(runs: Jobs, stop: asyncio.Event, environment: Mapping[str, str]) -> None:
    """Run what the queue brings, one job at a time, until asked to stop."""
    async with contextlib.AsyncExitStack() as resources, _queue(environment, resources) as queue:
        while not stop.is_set():
            message = await _next(queue)
            if message is not None:
                await _run(runs, queue, message)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REST_SECONDS):
                    await stop.wait()


async def _next(queue: QueueClient) -> QueueMessage | None:
    try:
        return await queue.receive_message(visibility_timeout=VISIBILITY_SECONDS)
    except Exception as error:  # noqa: BLE001 - whatever it was, the queue is asked again
        _log.warning("the queue cannot be read: %s", type(error).__name__)
        return None


async def _run(runs: Jobs, queue: QueueClient, message: QueueMessage) -> None:
    try:
        async with _out_of_sight(queue, message):
            await runs.run_message(base64.b64decode(message.content, validate=True))
    except OutboxError as error:
        _log.warning("message %s comes again: %s", message.id, error)
        return
    except Exception:  # noqa: BLE001 - whatever one message makes raise stops no other
        _log.exception("message %s cannot be worked on", message.id)
        if (message.dequeue_count or 0) < MOST_DELIVERIES:
            return
    with contextlib.suppress(AzureError, OSError):  # it comes again, and starts nothing
        await queue.delete_message(message)


@contextlib.asynccontextmanager
async def _out_of_sight(queue: QueueClient, message: QueueMessage) -> AsyncIterator[None]:
    async def renew() -> None:
        while True:
            await asyncio.sleep(VISIBILITY_SECONDS / 2)
            with contextlib.suppress(AzureError, OSError):
                renewed = await queue.update_message(
                    message.id, message.pop_receipt, visibility_timeout=VISIBILITY_SECONDS
                )
                message.pop_receipt = renewed.pop_receipt

    renewing = asyncio.create_task(renew())
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.wait([renewing])


def _queue(environment: Mapping[str, str], resources: contextlib.AsyncExitStack) -> QueueClient:
    # No policy of the SDK decodes: it raises where a message is not in base64, and brings no other then.
    name = QUEUE.resolve(environment)
    if connection := environment.get("STORAGEQUEUE"):
        return QueueClient.from_connection_string(connection, name)
    from azure.identity.aio import DefaultAzureCredential  # noqa: PLC0415 - not with a connection string

    address, credential = environment["STORAGEQUEUE__queueServiceUri"], DefaultAzureCredential()
    resources.push_async_callback(credential.close)
    return QueueClient(address, name, credential)


async def main() -> None:
    """Until SIGTERM or Ctrl-C."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("azure").setLevel(logging.WARNING)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with running(service, relay=False, subscribers=False):
        _log.info("waiting for jobs")
        try:
            await work(jobs(), stop, os.environ)
        finally:
            await FILES.close()


if __name__ == "__main__":
    asyncio.run(main())

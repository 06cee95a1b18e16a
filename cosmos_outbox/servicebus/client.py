"""The Service Bus client, made from a connection setting without any I/O but the reading of the trusted certificates.

They are read once, for all clients: the SDK would read them for each connection, 15 ms on the event loop, also where no
TLS is used.

A call of the broker's SDK ends when its time is over, also where the SDK does not notice that it was cancelled.

azure-servicebus waits for its frames with ``asyncio.wait_for``. In Python 3.11 that loses a cancellation which comes as
a frame does (https://github.com/python/cpython/issues/86296). What then waits without a time of its own, as an opening
does whose token link was detached, would wait for ever: ``asyncio.timeout`` cancels once.
"""

import asyncio
import logging
import ssl
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

import certifi
from azure.servicebus.aio import ServiceBusClient

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.settings.connections import Connection, Credential

T = TypeVar("T")

AGAIN_SECONDS = 1.0
"""After so long a call that has not ended is cancelled again."""

CANCELLATIONS = 5
"""How often. A call that outlives them is left alone: the connection that it waits for is closed by the client."""

left: set[asyncio.Task[Any]] = set()
"""Calls that were cancelled, until they end: a task without a reference may be collected."""

_log = logging.getLogger(__name__)


async def in_time(call: Coroutine[Any, Any, T], until: float) -> T:
    """What a call returns, even if that comes as its time is over: messages that were received are locked.

    ``until`` is by the monotonic clock. Raises TimeoutError, at worst some seconds after it, and what the call raises.
    """
    task = asyncio.create_task(call)
    try:
        await asyncio.wait({task}, timeout=max(0.0, until - monotonic()))
    finally:
        await _end(task)
    if not task.done() or task.cancelled():
        raise TimeoutError
    return task.result()


async def _end(task: asyncio.Task[Any]) -> None:
    task.add_done_callback(look_at)
    if task.done():
        return
    left.add(task)  # who waits here may be cancelled too
    task.add_done_callback(left.discard)
    for _ in range(CANCELLATIONS):
        task.cancel()
        await asyncio.wait({task}, timeout=AGAIN_SECONDS)
        if task.done():
            return
    _log.warning("a call of the Service Bus SDK does not end, though it was cancelled: it is left alone")


def look_at(task: asyncio.Task[Any]) -> None:
    """At one that is done: else asyncio complains of an error that nobody waits for any more."""
    if not task.cancelled():
        task.exception()


def servicebus_client(
    connection: Connection, credential: Credential | None, *, retries: int = 3
) -> ServiceBusClient:
    """A client that opens no connection until something is sent; ``retries``: how often it repeats what failed."""
    if connection.connection_string:
        return ServiceBusClient.from_connection_string(
            connection.connection_string, retry_total=retries, ssl_context=_trusted()
        )
    assert credential is not None
    return ServiceBusClient(connection.address, credential, retry_total=retries, ssl_context=_trusted())


@cache
def _trusted() -> ssl.SSLContext:
    """As the SDK makes it for each connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certifi.where())
    return context

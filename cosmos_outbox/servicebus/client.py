"""Creates Service Bus clients from a connection setting, and ends calls of the SDK at their deadline.

The only I/O is to read the trusted certificates, once for all clients: the SDK would read them for each connection,
15 ms on the event loop, even without TLS.

A call ends at its deadline even if the SDK does not notice its cancellation: azure-servicebus waits for frames with
``asyncio.wait_for``, which in Python 3.11 loses a cancellation that arrives together with a frame
(https://github.com/python/cpython/issues/86296). A wait without its own timeout, such as the opening of a link whose
token link was detached, would then never end, because ``asyncio.timeout`` cancels only once.
"""

import asyncio
import logging
import ssl
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

import certifi
from azure.servicebus import TransportType
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.settings.connections import Connection, Credential

T = TypeVar("T")

AGAIN_SECONDS = 1.0
"""The pause before a call that has not ended is cancelled again."""

CANCELLATIONS = 5
"""The number of cancellations. A call that outlives them is abandoned: the client closes its connection."""

left: set[asyncio.Task[Any]] = set()
"""Cancelled calls that have not ended: a task without a reference may be garbage-collected."""

_log = logging.getLogger(__name__)


async def in_time(call: Coroutine[Any, Any, T], until: float) -> T:
    """Returns the call's result, even one that arrives at the deadline: received messages are already locked.

    ``until`` is by the monotonic clock. Raises TimeoutError, at worst some seconds late, and what the call raises.
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
    left.add(task)  # this wait may be cancelled too
    task.add_done_callback(left.discard)
    for _ in range(CANCELLATIONS):
        task.cancel()
        await asyncio.wait({task}, timeout=AGAIN_SECONDS)
        if task.done():
            return
    _log.warning("a call of the Service Bus SDK did not end after it was cancelled, and is abandoned")


def look_at(task: asyncio.Task[Any]) -> None:
    """Retrieves the exception of a finished task, so that asyncio does not log it as never retrieved."""
    if not task.cancelled():
        task.exception()


def servicebus_client(
    connection: Connection, credential: Credential | None, *, retries: int = 3
) -> ServiceBusClient:
    """Returns a client that connects at its first use; ``retries``: how often it repeats a failed operation."""
    options: dict[str, Any] = {
        "retry_total": retries,
        "ssl_context": _trusted(),
        "transport_type": TransportType.AmqpOverWebsocket if connection.websockets else TransportType.Amqp,
    }
    if connection.connection_string:
        return ServiceBusClient.from_connection_string(connection.connection_string, **options)
    assert credential is not None
    return ServiceBusClient(connection.address, credential, **options)


def receiver_of(
    client: ServiceBusClient, topic: str, subscription: str, *, is_queue: bool, **options: Any
) -> ServiceBusReceiver:
    """Returns a receiver of the subscription; ``is_queue``: of the queue of the name ``topic``. Opens nothing."""
    if is_queue:
        return client.get_queue_receiver(topic, **options)
    return client.get_subscription_receiver(topic, subscription, **options)


@cache
def _trusted() -> ssl.SSLContext:
    """Returns the TLS context that the SDK would create for each connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certifi.where())
    return context

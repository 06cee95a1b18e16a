"""Delays answers in memory, or drops them, for an aiohttp session in a simulated process.

A server's half of a request is the world's: a sent request is carried out even if its sender is dead by then.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import aiohttp
from aiohttp.client_reqrep import ConnectionKey

from devstack.http_in_memory import MemorySession, SentRequest, StoreResponse
from outbox_simulation.engine.instance import name_of_current


def session(send: Callable[[SentRequest], Awaitable[StoreResponse]]) -> aiohttp.ClientSession:
    """Returns one process's session. ``send`` raises aiohttp's errors."""
    return cast(aiohttp.ClientSession, MemorySession(send, name_of_current))


def answer(waiting: "asyncio.Future[StoreResponse]", response: StoreResponse) -> None:
    """Sets the answer, unless the future is cancelled or already done."""
    if not waiting.done():
        waiting.set_result(response)


def fail(waiting: "asyncio.Future[StoreResponse]", error: Exception) -> None:
    """Sets an error of aiohttp in the same way."""
    if not waiting.done():
        waiting.set_exception(error)


def no_connection(host: str) -> aiohttp.ClientConnectorError:
    """Returns the error of a client that cannot connect."""
    key = ConnectionKey(*(host, 443, True, True, None, None, None))
    return aiohttp.ClientConnectorError(key, OSError(111, "Connection refused"))

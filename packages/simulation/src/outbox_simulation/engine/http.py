"""Answers in memory come later, or never: what an aiohttp session in a simulated process waits for.

A server's half of a request is the world's: what has left is carried out even if whoever sent it is dead by then.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import aiohttp
from aiohttp.client_reqrep import ConnectionKey

from devstack.http_in_memory import MemorySession, SentRequest, StoreResponse
from outbox_simulation.engine.instance import name_of_current


def session(send: Callable[[SentRequest], Awaitable[StoreResponse]]) -> aiohttp.ClientSession:
    """What one process sends its requests with. ``send`` raises what aiohttp raises."""
    return cast(aiohttp.ClientSession, MemorySession(send, name_of_current))


def answer(waiting: "asyncio.Future[StoreResponse]", response: StoreResponse) -> None:
    """Unless nobody waits for it any more, or it came before."""
    if not waiting.done():
        waiting.set_result(response)


def fail(waiting: "asyncio.Future[StoreResponse]", error: Exception) -> None:
    """The same with what aiohttp raises."""
    if not waiting.done():
        waiting.set_exception(error)


def no_connection(host: str) -> aiohttp.ClientConnectorError:
    """What a client raises that cannot connect."""
    key = ConnectionKey(*(host, 443, True, True, None, None, None))
    return aiohttp.ClientConnectorError(key, OSError(111, "Connection refused"))

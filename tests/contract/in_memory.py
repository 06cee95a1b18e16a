"""Tests of the contract run a second time without a socket, in virtual time: they are the same, devstack is in memory.

A module, or a test, that has the marker ``in_memory_too`` is run so, but not a test with the marker ``needs_a_socket``,
which says what only a socket has. What is proved by a socket alone stays proved, since each runs there first.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
from aiohttp import web

from cosmos_outbox.kernel.clock import Sources, using
from cosmos_outbox.testing.simulation import sdk_clock_servicebus
from cosmos_outbox.testing.simulation.amqp import AmqpNetwork
from cosmos_outbox.testing.simulation.loop import Loop
from devstack import administration
from devstack.servicebus.in_memory import in_memory
from devstack.settings import SERVICEBUS_CONNECTION

TOO, SOCKET = "in_memory_too", "needs_a_socket"
_HOST, _PORT, _ADMIN = "broker.invalid", 5672, "admin.invalid"


def loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """On which loops a test runs."""
    sockets = {"sockets": asyncio.new_event_loop}
    if item.get_closest_marker(TOO) is None or item.get_closest_marker(SOCKET) is not None:
        return sockets
    return {**sockets, "memory": MemoryLoop}


class MemoryLoop(Loop):
    """With a way to one broker, at one port."""

    def __init__(self) -> None:
        self.broker = AmqpNetwork(random.Random())
        self.management = AmqpNetwork(random.Random())
        super().__init__(network=self._to_the_broker)

    async def _to_the_broker(self, factory: Any, host: str, port: int, **options: Any) -> tuple[Any, Any]:
        if (host, port) != (_HOST, _PORT):
            raise ConnectionRefusedError(f"nobody listens at {host}:{port}")
        return await self.broker.connect(factory)

    async def create_unix_connection(self, protocol_factory: Any, *_: Any, **__: Any) -> Any:
        """To the management API."""
        return await self.management.connect(protocol_factory)


@dataclass(frozen=True)
class ServiceInMemory:
    """What tests use of a :class:`devstack.testing.Service`."""

    port: int = _PORT
    connection_string: str = SERVICEBUS_CONNECTION.format(f"{_HOST}:{_PORT}")
    admin_connection_string: str = SERVICEBUS_CONNECTION.format(_ADMIN)


class _ToTheManagement(administration.PlainHttpTransport):
    """HTTP over a connection in memory."""

    async def open(self) -> None:
        """See the base."""
        if self.session is None:  # type: ignore[has-type]  # azure.core exports the base without its type
            self.session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector("management"), auto_decompress=False
            )
        await super().open()


@asynccontextmanager
async def servicebus_in_memory(loop: MemoryLoop) -> AsyncIterator[ServiceInMemory]:
    """A broker of one test's own. Clocks show the loop's time meanwhile."""
    sdk_clock_servicebus.install()
    began = datetime.now(UTC).timestamp()

    def clock() -> float:
        return began + loop.time()

    sources = Sources(lambda: datetime.fromtimestamp(clock(), UTC), loop.time, uuid4, random.Random())
    async with AsyncExitStack() as opened:
        opened.enter_context(using(sources))
        patch = opened.enter_context(pytest.MonkeyPatch.context())  # a test may undo its own
        patch.setattr(administration, "PlainHttpTransport", _ToTheManagement)
        broker = opened.enter_context(in_memory(clock=clock, chance=random.Random()))
        runner = web.AppRunner(broker.management)
        await runner.setup()
        opened.push_async_callback(runner.cleanup)
        assert runner.server is not None
        loop.broker.serve, loop.management.serve = broker.connection, runner.server
        yield ServiceInMemory()

"""Tests of the contract run a second time without a socket, in virtual time: they are the same, devstack is in memory.

Each test that uses the shared servers does, unless it has the marker ``needs_a_socket``, which says what only a socket
has. In memory it is what ``make test`` runs; over sockets it has the marker ``long`` then. Nothing is in memory where
the servers are elsewhere, as Microsoft's emulators are.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
from aiohttp import web
from azure.core.pipeline.transport import AioHttpTransport
from multidict import CIMultiDict

from cosmos_outbox.kernel.clock import Sources, using
from devstack import administration
from devstack.cosmos.in_memory import CosmosInMemory as CosmosAccount
from devstack.cosmos.in_memory import Fault
from devstack.cosmos.in_memory import in_memory as cosmos_account
from devstack.http_in_memory import SentRequest, StoreResponse
from devstack.servicebus.in_memory import in_memory
from devstack.settings import SERVICEBUS_CONNECTION
from outbox_simulation.engine import sdk_clock
from outbox_simulation.engine.http import answer as set_answer
from outbox_simulation.engine.http import fail
from outbox_simulation.engine.loop import Loop
from outbox_simulation.engine.processes import KEY
from outbox_simulation.engine.store import SimulatedStore
from outbox_simulation.engine.trace import RunTrace
from tests.support import emulators, servicebus_clock
from tests.support.amqp import AmqpNetwork

_SHARED = {"cosmos_server", "servicebus_server", "cosmos", "broker"}
_BESIDE = {"sqlite", "storagequeue", "webhook"}
"""What a test is about that is in memory, or in a file, by itself."""
_HOST, _PORT, _ADMIN = "broker.invalid", 5672, "admin.invalid"


def loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """On which loops a test runs."""
    sockets = {"sockets": asyncio.new_event_loop}
    elsewhere = any(emulators.elsewhere(each) for each in ("cosmos", "servicebus"))
    if (
        elsewhere
        or _SHARED.isdisjoint(getattr(item, "fixturenames", ()))
        or item.get_closest_marker("needs_a_socket")
    ):
        return sockets
    return {**sockets, "memory": MemoryLoop}


def runs_in_memory(item: pytest.Item) -> bool:
    """Whether this is the second time, without a socket."""
    return MemoryLoop in _values(item)


def _values(item: pytest.Item) -> list[object]:
    parameters = getattr(item, "callspec", None)
    return [] if parameters is None else [*parameters.params.values()]


def choose(items: list[pytest.Item]) -> list[pytest.Item]:
    """Mark what is run in memory too; returns those of no use: what they are about is in memory, or in a file."""
    needless = []
    for item in items:
        values = _values(item)
        texts = {each for each in values if isinstance(each, str)}
        beside = bool(texts & _BESIDE)
        if MemoryLoop in values and beside:
            needless.append(item)
        elif asyncio.new_event_loop in values and not beside and len(loop_factories(item)) > 1:
            item.add_marker("long")
    return needless


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


@dataclass(frozen=True)
class CosmosInMemory:
    """The same for Cosmos DB."""

    port: int
    """Of its own for each: the SDK shares what it knows of an address between clients."""
    store: SimulatedStore
    """A test may split its account's partitions, and say what befalls a request."""

    @property
    def account(self) -> CosmosAccount:
        """What the store serves."""
        return self.store.account

    @property
    def faults(self) -> "FaultsInMemory":
        """As a server has them that was started with ``--faults``."""
        return FaultsInMemory(self.account)

    @property
    def address(self) -> str:
        """The answer to a client."""
        return f"https://cosmos.invalid:{self.port}/"

    @property
    def connection_string(self) -> str:
        """With the well-known key."""
        return f"AccountEndpoint={self.address};AccountKey={KEY};"


@dataclass(frozen=True)
class FaultsInMemory:
    """What tests use of :class:`devstack.testing.faults.Faults`."""

    account: CosmosAccount

    async def add(self, kind: str, **order: Any) -> None:
        self.account.faults.add(Fault.model_validate({"kind": kind, **order}))

    async def pending(self) -> list[dict[str, Any]]:
        return [each.model_dump() for each in self.account.faults.pending()]

    async def clear(self) -> None:
        self.account.faults.clear()

    async def split(self, database: str, container: str, partition: str) -> list[str]:
        before = self.account.partitions(database, container)
        self.account.split(database, container, int(partition))
        return [str(each) for each in self.account.partitions(database, container) if each not in before]

    async def allow_multiple_writes(self, allowed: bool) -> None:
        self.account._service.multiple_writes = allowed

    async def turn_clock(self, ahead: float) -> None:
        clock = self.account.faults._clock
        self.account._service.clock = lambda: clock() + ahead


class _OnDemand(SimulatedStore):
    """What befalls a request was asked for by a test, as at a server."""

    def send(self, request: SentRequest) -> "asyncio.Future[StoreResponse]":
        answer: asyncio.Future[StoreResponse] = self.loop.create_future()
        self._later(self._way(), self._answer, request, answer)
        return answer

    def _answer(self, request: SentRequest, answer: "asyncio.Future[StoreResponse]") -> None:
        served, sent = self.account.serve(request.method, request.path, request.headers, request.body)
        if served.dropped:
            fail(answer, aiohttp.ServerDisconnectedError())
        else:
            response = StoreResponse(served.status, CIMultiDict(sent), (served.body or "").encode())
            self._later(self._way() + served.delay, set_answer, answer, response)


@contextmanager
def _clocks(loop: MemoryLoop) -> Iterator[Callable[[], float]]:
    """All clocks show the loop's time."""
    began = datetime.now(UTC).timestamp()

    def clock() -> float:
        return began + loop.time()

    sources = Sources(lambda: datetime.fromtimestamp(clock(), UTC), loop.time, uuid4, random.Random())
    with using(sources):
        yield clock


_ports = count(20_000)


@contextmanager
def cosmos_in_memory(
    loop: MemoryLoop, partitions: int | None = None, *, on_demand: bool = False
) -> Iterator[CosmosInMemory]:
    """An account of one test's own: whatever client the test makes sends its requests there.

    ``on_demand``: its faults are asked for as at a server, and not simulated.
    """
    sdk_clock.install()
    port = next(_ports)
    with ExitStack() as opened:
        clock = opened.enter_context(_clocks(loop))
        patch = opened.enter_context(pytest.MonkeyPatch.context())  # a test may undo its own
        endpoint = f"https://cosmos.invalid:{port}/"
        account = opened.enter_context(
            cosmos_account(clock=clock, chance=random.Random(), endpoint=endpoint, partitions=partitions)
        )
        kind = _OnDemand if on_demand else SimulatedStore
        store = kind(loop, account, chance=random.Random(), trace=RunTrace(loop.time))
        before = AioHttpTransport.open

        async def open_in_memory(transport: AioHttpTransport) -> None:
            if transport.session is None:
                transport.session = store.session()
            await before(transport)

        patch.setattr(AioHttpTransport, "open", open_in_memory)
        yield CosmosInMemory(port, store)


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
    """A broker of one test's own. While it runs, clocks show the loop's time."""
    servicebus_clock.install()
    async with AsyncExitStack() as opened:
        clock = opened.enter_context(_clocks(loop))
        patch = opened.enter_context(pytest.MonkeyPatch.context())  # a test may undo its own
        patch.setattr(administration, "PlainHttpTransport", _ToTheManagement)
        broker = opened.enter_context(in_memory(clock=clock, chance=random.Random()))
        runner = web.AppRunner(broker.management)
        await runner.setup()
        opened.push_async_callback(runner.cleanup)
        assert runner.server is not None
        loop.broker.serve, loop.management.serve = broker.connection, runner.server
        yield ServiceInMemory()

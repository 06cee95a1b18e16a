"""The service is reachable exactly while its context is open: store first, then entities, then the two listeners."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from devstack.http_server import http_runner
from devstack.service import port_errors
from devstack.servicebus.admin.application import make_application
from devstack.servicebus.amqp.cbs import DEVELOPMENT_KEY
from devstack.servicebus.amqp.engine import Engine
from devstack.servicebus.amqp.faults import Faults, Traffic
from devstack.servicebus.amqp.store import Store
from devstack.servicebus.amqp.transport import Context, Transport
from devstack.servicebus.config import declare, read_config
from devstack.servicebus.nodes import Nodes

NAME = "servicebus"
HOST = "127.0.0.1"
STOP_SECONDS = 1.0
DEFAULT_IDLE_SECONDS = 480.0
"""A silent client is closed after this; half of it, 4 minutes, is announced, as Azure Service Bus does."""


@dataclass(frozen=True)
class Options:
    port: int
    admin_port: int
    data: Path
    config: Path | None = None
    with_faults: bool = False
    idle_seconds: float = DEFAULT_IDLE_SECONDS


@contextlib.asynccontextmanager
async def serve(options: Options) -> AsyncIterator[str]:
    """Yields the addresses for AMQP and for management."""
    descriptions = read_config(options.config) if options.config else []
    with Store.opened(options.data) as store:
        engine = Engine(store)
        try:
            declare(engine, descriptions)
            engine.start()
            faults, traffic = Faults(), Traffic()
            nodes = Nodes(engine, faults, DEVELOPMENT_KEY, traffic)
            transports: dict[Transport, None] = {}
            application = make_application(
                engine, faults, traffic, transports, with_faults=options.with_faults
            )
            async with (
                _amqp(
                    Context(engine, DEVELOPMENT_KEY, faults, nodes.attach, options.idle_seconds),
                    transports,
                    options,
                ) as amqp,
                _admin(application, options) as admin,
            ):
                yield f"{amqp} {admin}"
        finally:
            engine.stop()


@contextlib.asynccontextmanager
async def _amqp(context: Context, transports: dict[Transport, None], options: Options) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()
    with port_errors(NAME, options.port, "SERVICEBUS_PORT"):
        server = await loop.create_server(lambda: Transport(context, transports), HOST, options.port)
    try:
        yield f"amqp://{HOST}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for transport in list(transports):
            transport.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await server.wait_closed()  # from Python 3.12 on, also for connections that have not ended


@contextlib.asynccontextmanager
async def _admin(application: web.Application, options: Options) -> AsyncIterator[str]:
    runner = http_runner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, options.admin_port, shutdown_timeout=1.0)
        with port_errors(NAME, options.admin_port, "SERVICEBUS_ADMIN_PORT"):
            await site.start()
        yield f"http://{HOST}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()

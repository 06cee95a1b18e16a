"""All functions of an app start together and stop together, and one that waits for a service stops none of
the others.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from aiohttp import web

from devstack.functions.connections import Clients
from devstack.functions.cosmos_trigger import CosmosTrigger
from devstack.functions.http import make_application, make_router
from devstack.functions.indexing import FunctionInfo, load_functions
from devstack.functions.invocation import Invoker
from devstack.functions.listener import Listener
from devstack.functions.servicebus_trigger import ServiceBusTrigger
from devstack.functions.settings import HostSettings, read_host_json
from devstack.functions.timer_trigger import TimerTrigger
from devstack.service import port_errors

_logger = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def serve(app: Path, port: int, drain_seconds: float) -> AsyncIterator[str]:
    """Run the app in the folder ``app``; yields the address of its HTTP functions. Raises CannotStart.

    On leaving, running invocations have ``drain_seconds`` to end; then they are cancelled, with no
    checkpoint and no completion.
    """
    settings = read_host_json(app)
    functions = load_functions(app)
    async with contextlib.AsyncExitStack() as stack:
        invoker = Invoker(str(app))
        stack.callback(invoker.close)
        clients = Clients()
        stack.push_async_callback(clients.close)
        listeners = _make_listeners(functions, invoker, clients, settings)
        application = make_application(make_router(functions, settings.route_prefix), invoker)
        async with _running(application, port, listeners, drain_seconds) as address:
            names = ", ".join(f"{each.name} ({each.trigger_type})" for each in functions)
            _logger.info("%s: %s", app.name, names)
            yield address


@contextlib.asynccontextmanager
async def _running(
    application: web.Application, port: int, listeners: Sequence[Listener], drain_seconds: float
) -> AsyncIterator[str]:
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=drain_seconds)
    await runner.setup()
    tasks: list[asyncio.Task[None]] = []
    try:
        address = await _listen(runner, port)
        tasks += [asyncio.create_task(_run(listener)) for listener in listeners]
        yield address
    finally:
        # All at once: each may take the whole time that the host has to stop.
        stops = (listener.stop(drain_seconds) for listener in listeners)
        for outcome in await asyncio.gather(runner.cleanup(), *stops, return_exceptions=True):
            if isinstance(outcome, Exception):
                _logger.error("something did not stop as it should", exc_info=outcome)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _make_listeners(
    functions: Sequence[FunctionInfo], invoker: Invoker, clients: Clients, settings: HostSettings
) -> list[Listener]:
    listeners: list[Listener] = []
    for function in functions:
        if function.trigger_type == "cosmosDBTrigger":
            listeners.append(CosmosTrigger(function, invoker, clients))
        elif function.trigger_type == "serviceBusTrigger":
            listeners.append(ServiceBusTrigger(function, invoker, clients, settings.service_bus))
        elif function.trigger_type == "timerTrigger":
            listeners.append(TimerTrigger(function, invoker))
    return listeners


async def _listen(runner: web.AppRunner, port: int) -> str:
    site = web.TCPSite(runner, "127.0.0.1", port)
    with port_errors("functions", port, "FUNCTIONS_PORT"):
        await site.start()
    return f"http://127.0.0.1:{runner.addresses[0][1]}/"


async def _run(listener: Listener) -> None:
    try:
        await listener.run()
    except Exception:
        _logger.exception("a listener ended; restart the host")

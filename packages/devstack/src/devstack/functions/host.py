"""All functions of an app start together and stop together, and one that waits for a service stops none of
the others.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from devstack.functions.administration import administration
from devstack.functions.connections import Clients
from devstack.functions.cors import Cors
from devstack.functions.cosmos_trigger import CosmosTrigger
from devstack.functions.host_json import HostSettings, read_host_json
from devstack.functions.http import EdgeSettings, make_application, make_router
from devstack.functions.indexing import FunctionInfo
from devstack.functions.invocation import Invoker
from devstack.functions.keys import read_keys
from devstack.functions.listener import Listener, Stop
from devstack.functions.servicebus_trigger import ServiceBusTrigger
from devstack.functions.settings import max_body_bytes
from devstack.functions.timer_trigger import TimerTrigger
from devstack.functions.workers import Workers, worker_count
from devstack.http_server import http_runner
from devstack.service import CannotStart, port_errors

_log = logging.getLogger(__name__)


RETRY_TRIGGERS = ("cosmosDBTrigger", "timerTrigger")
"""Where a retry policy is meant to be; the host applies one anywhere."""


@dataclass(frozen=True)
class Callers:
    """Who may call over HTTP."""

    asks_for_keys: bool = False
    cors: Cors | None = None
    """The pages of other origins; None: none of them."""


EVERYBODY = Callers()
"""But for pages of other origins."""


@contextlib.asynccontextmanager
async def serve(
    app: Path, data: Path, port: int, stop: Stop, callers: Callers = EVERYBODY
) -> AsyncIterator[str]:
    """Run the app in the folder ``app``; yields the address of its HTTP functions. Raises CannotStart.

    On leaving, running functions have ``stop.seconds`` to end; then they are cut off, with no checkpoint and no
    completion.
    """
    settings = read_host_json(app)
    async with contextlib.AsyncExitStack() as stack:
        workers = Workers(app, worker_count(), settings.function_timeout)
        functions = await workers.start()
        stack.push_async_callback(workers.close)
        clients = Clients()
        stack.push_async_callback(clients.close)
        _warn_of_retries(functions)
        listeners = _make_listeners(functions, workers, clients, settings, data)
        keys = read_keys(data, _over_http(functions), os.environ) if callers.asks_for_keys else None
        edge = EdgeSettings(max_body_bytes(), settings.hsts, callers.cors, keys)
        timers = [listener for listener in listeners if isinstance(listener, TimerTrigger)]
        router = make_router(functions, settings.route_prefix)
        application = make_application(router, workers, edge, administration(timers, keys))
        async with _running(application, port, listeners, stop) as address:
            _log.info("%s: %s", app.name, ", ".join(map(_described, functions)))
            yield address


def _over_http(functions: Sequence[FunctionInfo]) -> list[str]:
    return [function.name for function in functions if function.trigger_type == "httpTrigger"]


def _warn_of_retries(functions: Sequence[FunctionInfo]) -> None:
    for function in functions:
        if function.retry and function.trigger_type not in RETRY_TRIGGERS:
            _log.warning(
                "the retry policy of %s is applied, and soon will not be on a %s: do without one",
                function.name,
                function.trigger_type,
            )


@contextlib.asynccontextmanager
async def _running(
    application: web.Application, port: int, listeners: Sequence[Listener], stop: Stop
) -> AsyncIterator[str]:
    runner = http_runner(application, shutdown_timeout=stop.seconds, auto_decompress=False)
    await runner.setup()
    tasks: list[asyncio.Task[None]] = []
    try:
        address = await _listen(runner, port)
        tasks += [asyncio.create_task(_run(listener)) for listener in listeners]
        yield address
    finally:
        # All at once: each may take the whole time that the host has to stop.
        stops = (listener.stop(stop) for listener in listeners)
        for outcome in await asyncio.gather(runner.cleanup(), *stops, return_exceptions=True):
            if isinstance(outcome, Exception):
                _log.error("something did not stop as it should", exc_info=outcome)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _make_listeners(
    functions: Sequence[FunctionInfo],
    invoker: Invoker,
    clients: Clients,
    settings: HostSettings,
    data: Path,
) -> list[Listener]:
    """Of all functions that are not disabled. One with unusable settings is logged and left out, as in Azure."""
    listeners: list[Listener] = []
    for function in functions:
        if function.disabled:
            continue
        try:
            if function.trigger_type == "cosmosDBTrigger":
                listeners.append(CosmosTrigger(function, invoker, clients))
            elif function.trigger_type == "serviceBusTrigger":
                listeners.append(ServiceBusTrigger(function, invoker, clients, settings.service_bus))
            elif function.trigger_type == "queueTrigger":
                # Imported for apps that have one: the SDK costs each other app a tenth of a second at its start.
                from devstack.functions.queue_trigger import QueueTrigger  # noqa: PLC0415

                listeners.append(QueueTrigger(function, invoker, clients, settings.queues))
            elif function.trigger_type == "timerTrigger":
                listeners.append(TimerTrigger(function, invoker, data))
        except CannotStart as error:
            _log.error("%s does not run, the other functions do: %s", function.name, error)
    return listeners


def _described(function: FunctionInfo) -> str:
    return f"{function.name} ({'disabled' if function.disabled else function.trigger_type})"


async def _listen(runner: web.AppRunner, port: int) -> str:
    site = web.TCPSite(runner, "127.0.0.1", port)
    with port_errors("functions", port, "FUNCTIONS_PORT"):
        await site.start()
    return f"http://127.0.0.1:{runner.addresses[0][1]}/"


async def _run(listener: Listener) -> None:
    try:
        await listener.run()
    except Exception:  # noqa: BLE001 - the edge of a listener: the host and its other listeners go on
        _log.exception("a listener ended; restart the host")

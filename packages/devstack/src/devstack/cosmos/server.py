"""The socket: HTTP on the loopback interface only, bodies bounded, expired rows purged in the background."""

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from aiohttp import web

from devstack.cosmos import admin
from devstack.cosmos.dispatch import Dispatcher, failure
from devstack.cosmos.protocol.errors import TOO_LARGE, CosmosError
from devstack.cosmos.resources.service import Options, Service
from devstack.cosmos.storage import ttl
from devstack.cosmos.storage.catalogue import Catalogue
from devstack.cosmos.storage.history import KEPT_SECONDS, History
from devstack.cosmos.storage.model import Container
from devstack.cosmos.storage.store import Store
from devstack.cosmos.wire.auth import Authorizer
from devstack.cosmos.wire.faults import Faults
from devstack.cosmos.wire.messages import Answer
from devstack.http_server import EVERY_PATH, http_runner
from devstack.service import port_errors

HOST = "127.0.0.1"
MAX_BODY_BYTES = 8 * 1024 * 1024
"""More than any valid request, so that one somewhat too large still gets the service's own 413."""

MAX_HEADER_BYTES = 64 * 1024
"""Session tokens and continuations are headers, and grow with the number of partitions."""

PURGE_SECONDS = 5.0
PAUSE_SECONDS = 0.05

_log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def serving(port: int, folder: Path, options: Options, authorizer: Authorizer) -> AsyncIterator[str]:
    """Serve while open; yields the address. Raises CannotStart."""
    with Store.opened(folder) as store:
        history = History(store.connection, time.time) if options.faults else None
        service = Service(store, Catalogue(store, history), options, history=history)
        runner = http_runner(
            _application(service, authorizer),
            shutdown_timeout=1.0,
            max_field_size=MAX_HEADER_BYTES,
        )
        await runner.setup()
        try:
            with port_errors("cosmos", port, "COSMOS_PORT"):
                await web.TCPSite(runner, HOST, port).start()
            service.endpoint = f"http://{HOST}:{runner.addresses[0][1]}/"
            async with _purging(service):
                yield service.endpoint
        finally:
            await runner.cleanup()


def _application(service: Service, authorizer: Authorizer) -> web.Application:
    application = web.Application(client_max_size=MAX_BODY_BYTES)
    faults = Faults()
    dispatcher = Dispatcher(service, authorizer, faults)
    if service.options.faults:
        application.router.add_routes(admin.routes(service, faults))
    application.router.add_route("*", EVERY_PATH, _handler(dispatcher))
    return application


def _handler(dispatcher: Dispatcher) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return _response(failure(CosmosError(TOO_LARGE, "Request size is too large.")))
        if late := dispatcher.late(request.method, request.rel_url.raw_path, request.headers):
            await asyncio.sleep(late)
        answer = dispatcher.serve(request.method, request.rel_url.raw_path, request.headers, body)
        if answer.delay:
            await asyncio.sleep(answer.delay)
        if answer.dropped and request.transport is not None:
            request.transport.close()
        return _response(answer)

    return handle


def _response(answer: Answer) -> web.Response:
    payload = None if answer.body is None else answer.body.encode()
    return web.Response(status=answer.status, body=payload, headers=answer.sent(time.time()))


@contextlib.asynccontextmanager
async def _purging(service: Service) -> AsyncIterator[None]:
    task = asyncio.create_task(_purge_forever(service))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _purge_forever(service: Service) -> None:
    """A few rows at a time, with a pause after each, so that requests go first."""
    while True:
        await asyncio.sleep(PURGE_SECONDS)
        try:
            await purge_expired(service)
        except sqlite3.Error as error:  # the disk is full: it may be less so the next time
            _log.warning("expired items were not purged: %s", error)


async def purge_expired(service: Service) -> None:
    """All of them that have expired so far; a container may be deleted in between."""
    if service.history:
        service.history.forget()
    for container in list(service.catalogue.all_containers()):
        if container.default_ttl is not None:
            await _purge(service, container)


async def _purge(service: Service, container: Container) -> None:
    kept, more = KEPT_SECONDS if service.history else 0, True
    while more and service.catalogue.container_by_rid(container.rid):
        more = ttl.purge(service.store.connection, container, service.now() - kept) == ttl.PURGE_ROWS
        await asyncio.sleep(PAUSE_SECONDS)

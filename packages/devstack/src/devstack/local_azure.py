"""One local Azure: Cosmos DB, Service Bus and the Functions host start in order of need and stop in reverse.

Whatever happens on the way, :func:`running` leaves no process behind, within :data:`STOP_WITHIN_SECONDS`.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from typing import Any

from devstack.azurite import azurite
from devstack.console import Console
from devstack.kept import KeptService, Recipe
from devstack.ports import check_ports
from devstack.service import CannotStart
from devstack.settings import StackSettings, cosmos_connection, servicebus_connection, storage_connection

STOP_WITHIN_SECONDS = 5.0
STOP_SECONDS = 2.0
"""How long the host lets running functions go on once it is asked to stop."""
FUNCTIONS_GRACE_SECONDS, BACKEND_GRACE_SECONDS = 3.0, 0.8


class LocalAzure:
    """The services of one :class:`StackSettings`; one that is not run here is None."""

    def __init__(self, settings: StackSettings, console: Console) -> None:
        self.settings = settings
        self.cosmos = KeptService(_cosmos(settings), console) if settings.cosmos_setting else None
        self.servicebus = KeptService(_servicebus(settings), console) if settings.servicebus_setting else None
        self.storage: KeptService | None = None
        self.functions: KeptService | None = None
        self._console = console
        self._keepers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Everything up to the Functions host's first answer. Raises :class:`CannotStart`."""
        check_ports(self.settings.wanted_ports())
        if self.settings.storage_setting:
            self._console.line("devstack", "looking for Azurite, which npm fetches the first time")
            await asyncio.to_thread(azurite)  # npm may take longer than a service has to get ready
            self.storage = KeptService(_storage(self.settings), self._console)
        await _together(*[self._start(service) for service in self._backends()])
        self._console.line("devstack", "making what the app declares, where it is not there yet")
        await self._provision()
        if self.settings.runs_functions:
            self.functions = KeptService(self._host(), self._console)
            await self._start(self.functions)

    async def failure(self) -> None:
        """Wait until a service cannot be kept running; raises its :class:`CannotStart`."""
        done, _ = await asyncio.wait(self._keepers, return_when=asyncio.FIRST_COMPLETED)
        for keeper in done:
            await keeper

    async def stop(self) -> None:
        """The host first, so that what it still writes is still accepted."""
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        if self.functions:
            await self.functions.stop(FUNCTIONS_GRACE_SECONDS)
        await asyncio.gather(*[service.stop(BACKEND_GRACE_SECONDS) for service in self._backends()])

    def kill(self) -> None:
        """SIGKILL to all that runs, for those who cannot wait; :meth:`stop` is still needed."""
        for service in [self.functions, *self._backends()]:
            if service:
                service.kill()

    @property
    def cosmos_connection(self) -> str | None:
        """The connection string of the Cosmos DB run here, with its real port."""
        return cosmos_connection(self.cosmos.ports[0]) if self.cosmos else None

    @property
    def servicebus_connection(self) -> str | None:
        """The connection string of the Service Bus run here, with its real port."""
        return servicebus_connection(self.servicebus.ports[0]) if self.servicebus else None

    @property
    def servicebus_admin_connection(self) -> str | None:
        """The connection string for ``ServiceBusAdministrationClient``."""
        return servicebus_connection(self.servicebus.ports[1]) if self.servicebus else None

    @property
    def storage_connection(self) -> str | None:
        """The connection string of the Blob and Queue Storage run here, with their real ports."""
        return storage_connection(*self.storage.ports) if self.storage else None

    def _backends(self) -> list[KeptService]:
        return [service for service in (self.cosmos, self.servicebus, self.storage) if service]

    async def _start(self, service: KeptService) -> None:
        self._console.line("devstack", f"starting {service.name}")
        await service.start()
        self._keepers.append(asyncio.create_task(service.keep(), name=f"keep {service.name}"))

    async def _provision(self) -> None:
        # Imported here, while the services start: the two SDKs take longer to import than all the rest.
        from devstack import provision  # noqa: PLC0415

        work = []
        if self.cosmos_connection:
            work.append(provision.cosmos(self.cosmos_connection, self.settings.app.cosmos))
        if self.servicebus_admin_connection:
            work.append(provision.servicebus(self.servicebus_admin_connection, self.settings.app.servicebus))
        if self.storage_connection:
            work.append(provision.storage(self.storage_connection, self.settings.app.storage))
        await _together(*work)

    def _host(self) -> Recipe:
        environment = dict(self.settings.environment)
        if self.settings.cosmos_setting and self.cosmos_connection:
            environment[self.settings.cosmos_setting] = self.cosmos_connection
        if self.settings.servicebus_setting and self.servicebus_connection:
            environment[self.settings.servicebus_setting] = self.servicebus_connection
        if self.settings.storage_setting and self.storage_connection:
            environment[self.settings.storage_setting] = self.storage_connection
        arguments = [f"--app={self.settings.folder}", f"--stop-seconds={STOP_SECONDS:g}"]
        arguments.append(f"--data={self.settings.data / 'functions'}")
        arguments += [f"--settings={self.settings.file}"] if self.settings.file else []
        arguments += ["--keys"] if self.settings.asks_for_keys else []
        ports = {"--port": self.settings.ports.functions}
        if self.settings.app.functions.web:
            arguments.append(f"--web={self.settings.folder / self.settings.app.functions.web}")
            ports["--web-port"] = self.settings.ports.web
        return _service("functions", arguments, ports, environment)


@contextlib.asynccontextmanager
async def running(settings: StackSettings, console: Console) -> AsyncIterator[LocalAzure]:
    """A started stack, which is stopped at the end. Raises :class:`CannotStart`."""
    stack = LocalAzure(settings, console)
    try:
        await stack.start()
        yield stack
    finally:
        await stack.stop()


def _cosmos(settings: StackSettings) -> Recipe:
    arguments = [f"--data={settings.data / 'cosmos'}"]
    return _service("cosmos", arguments, {"--port": settings.ports.cosmos}, settings.environment)


def _servicebus(settings: StackSettings) -> Recipe:
    arguments = [f"--data={settings.data / 'servicebus'}"]
    if settings.servicebus_config:
        arguments.append(f"--config={settings.servicebus_config}")
    ports = {"--port": settings.ports.servicebus, "--admin-port": settings.ports.servicebus_admin}
    return _service("servicebus", arguments, ports, settings.environment)


def _storage(settings: StackSettings) -> Recipe:
    ports = {"--blob-port": settings.ports.blobs, "--queue-port": settings.ports.queues}
    return _service("storage", [f"--data={settings.data / 'storage'}"], ports, settings.environment)


def _service(
    name: str, arguments: Sequence[str], ports: Mapping[str, int], environment: Mapping[str, str]
) -> Recipe:
    command = [sys.executable, "-m", "devstack", name, "--watch-stdin", *arguments]
    return Recipe(name, command, ports, environment)


async def _together(*work: Coroutine[Any, Any, None]) -> None:
    """Run all; the first that cannot start ends the others."""
    try:
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)
    except ExceptionGroup as failures:
        matched, _ = failures.split(CannotStart)
        if matched is None:
            raise
        raise matched.exceptions[0] from None

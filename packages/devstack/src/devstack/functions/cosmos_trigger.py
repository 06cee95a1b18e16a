"""The checkpoint follows the execution, succeeded or given up: a batch that is given up is lost, as in the
real host.

Only what was cut short, by a stop or a crash, is delivered again.
"""

import asyncio
import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from azure.core.exceptions import AzureError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy
from azure.functions import meta

from cosmos_changefeed import ChangeFeedContext, ChangeFeedProcessor, ProcessorOptions, StartFrom
from devstack.connection_settings import Connection
from devstack.functions.connections import Clients, cosmos_connection
from devstack.functions.execution import Executor, StoppedWaiting
from devstack.functions.indexing import FunctionInfo
from devstack.functions.invocation import Input, Invoker
from devstack.functions.listener import Outage, Stop, first_line
from devstack.functions.logs import logged_as
from devstack.functions.rewriting import TooDeep, UnreadableText, check_levels, rewritten
from devstack.functions.settings import host_time_zone, resolve, rewrites_texts
from devstack.service import CannotStart

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CosmosTriggerSettings:
    """The decorator's parameters, with the settings they name filled in."""

    connection: Connection
    database: str
    container: str
    lease_connection: Connection
    lease_database: str
    lease_container: str
    create_lease_container: bool
    lease_prefix: str
    options: ProcessorOptions

    @classmethod
    def read(cls, function: FunctionInfo) -> "CosmosTriggerSettings":
        """Raises CannotStart for a parameter that cannot be used."""
        where = f"the Cosmos trigger of {function.name}"

        def text(name: str, default: str = "") -> str:
            return resolve(str(function.trigger.get(name) or default), where=where)

        database = text("databaseName")
        connection = text("connection")
        try:
            options = _read_options(function.trigger, text("startFromTime"))
        except ValueError as error:
            raise CannotStart(f"functions: {where}: {error}") from error
        settings = cls(
            connection=cosmos_connection(connection, where=where),
            database=database,
            container=text("containerName"),
            lease_connection=cosmos_connection(text("leaseConnection", connection), where=where),
            lease_database=text("leaseDatabaseName", database),
            lease_container=text("leaseContainerName", "leases"),
            create_lease_container=bool(function.trigger.get("createLeaseContainerIfNotExists")),
            lease_prefix=text("leaseContainerPrefix"),
            options=options,
        )
        monitored = (settings.connection, settings.database.lower(), settings.container.lower())
        leases = (
            settings.lease_connection,
            settings.lease_database.lower(),
            settings.lease_container.lower(),
        )
        if monitored == leases:
            raise CannotStart(
                f"functions: {where} watches the container {settings.container}, in which it keeps its leases; "
                "name another container for the leases"
            )
        return settings


def _read_options(trigger: Mapping[str, Any], start_from_time: str) -> ProcessorOptions:
    defaults = ProcessorOptions()

    def seconds(name: str, default: float) -> float:
        # Like the extension, which takes 0 and less for "not set".
        milliseconds = int(trigger.get(name) or 0)
        return milliseconds / 1000 if milliseconds > 0 else default

    return ProcessorOptions(
        poll_interval=seconds("feedPollDelay", defaults.poll_interval),
        max_items=int(trigger.get("maxItemsPerInvocation") or 0) or None,
        start=_read_start(bool(trigger.get("startFromBeginning")), start_from_time),
        acquire_interval=seconds("leaseAcquireInterval", defaults.acquire_interval),
        expiration_interval=seconds("leaseExpirationInterval", defaults.expiration_interval),
        renew_interval=seconds("leaseRenewInterval", defaults.renew_interval),
    )


def _read_start(from_beginning: bool, time: str) -> StartFrom:
    if not time:
        return StartFrom.beginning() if from_beginning else StartFrom.now()
    if from_beginning:
        raise ValueError("use only one of start_from_beginning and start_from_time")
    try:
        start = datetime.fromisoformat(time)
    except ValueError:
        raise ValueError(
            f'start_from_time is "{time}"; use ISO 8601 in UTC, like 2026-02-16T14:19:29Z'
        ) from None
    return StartFrom.at(start if start.tzinfo else start.replace(tzinfo=UTC))


class CosmosTrigger:
    """Runs one function on the changes of a container; a listener."""

    def __init__(self, function: FunctionInfo, invoker: Invoker, clients: Clients) -> None:
        self._settings = CosmosTriggerSettings.read(function)
        self._function = function
        self._executor = Executor(function, invoker)
        self._monitored = clients.cosmos(self._settings.connection)
        self._leases = clients.cosmos(self._settings.lease_connection)
        self._outage = Outage(f"Cosmos DB ({self._settings.database}/{self._settings.container})")
        self._zone = host_time_zone() if rewrites_texts() else None
        self._processor: ChangeFeedProcessor | None = None
        self._stopped = asyncio.Event()
        self._cancelled = False

    async def run(self) -> None:
        with logged_as(self._function.name):
            while not self._stopped.is_set():
                try:
                    await self._start()
                except Exception as error:  # noqa: BLE001 - whatever is wrong there may be mended while this runs
                    self._outage.met(error)
                    await asyncio.sleep(self._outage.pause)
                else:
                    self._outage.over()
                    await self._stopped.wait()

    async def stop(self, stop: Stop) -> None:
        self._stopped.set()
        self._cancelled = not stop.drain
        self._executor.stop_retrying()
        if self._processor is None:
            return
        try:
            async with asyncio.timeout(stop.seconds):
                await self._processor.stop()
        except TimeoutError:
            await self._processor.stop(drain=False)

    async def _start(self) -> None:
        settings = self._settings
        monitored = self._monitored.get_database_client(settings.database)
        processor = ChangeFeedProcessor(
            monitored.get_container_client(settings.container),
            await self._lease_container(),
            self._handle,
            # Like the extension: an instance is new each time it starts.
            instance_name=str(uuid.uuid4()),
            lease_prefix=settings.lease_prefix,
            options=settings.options,
            on_error=self._on_error,
        )
        await processor.start()
        self._processor = processor

    async def _lease_container(self) -> ContainerProxy:
        database = self._leases.get_database_client(self._settings.lease_database)
        if self._settings.create_lease_container:
            await database.create_container_if_not_exists(
                self._settings.lease_container, PartitionKey(path="/id")
            )
        return database.get_container_client(self._settings.lease_container)

    async def _handle(self, changes: Sequence[Mapping[str, Any]], context: ChangeFeedContext) -> None:
        data = json.dumps([self._as_delivered(change) for change in changes])
        self._outage.over()
        succeeded = await self._executor.execute(Input(meta.Datum(data, "json")))
        if self._cancelled:
            # No checkpoint, whatever the function did.
            raise StoppedWaiting
        if not succeeded:
            with logged_as(self._function.name):
                _log.error(
                    "the batch of %d up to %s of lease %s is lost",
                    len(changes),
                    context.continuation,
                    context.lease_token,
                )

    def _as_delivered(self, change: Mapping[str, Any]) -> Any:
        try:
            check_levels(change)
            return change if self._zone is None else rewritten(change, self._zone)
        except TooDeep:
            raise TooDeep(
                f"the document {change.get('id')} is nested too deeply for .NET to read: nothing of this partition is "
                "delivered, here and in Azure, until that document is changed or deleted"
            ) from None
        except UnreadableText:
            # The feed stands still, as the SDK cannot read such a page and tries it for ever. The text may be personal.
            raise UnreadableText(
                f"the document {change.get('id')} has a text that looks like a date which .NET cannot hold: "
                "nothing of this partition is delivered, here and in Azure, until that document is changed or deleted"
            ) from None

    def _on_error(self, lease_token: str | None, error: Exception) -> None:
        if isinstance(error, StoppedWaiting):
            return
        with logged_as(self._function.name):
            if isinstance(error, AzureError | OSError | TimeoutError | TooDeep | UnreadableText):
                self._outage.met(error)
            else:
                _log.error("lease %s: %s", lease_token, first_line(error), exc_info=error)

"""The one composition root: clients are made once per process, inside the running loop, and closed when it ends.

Nothing happens at import, since the host imports the app just to list its functions. The Python worker has no shutdown
hook (https://github.com/Azure/azure-functions-python-worker/issues/1904), so a task waits for the end of the loop:
``asyncio.run`` cancels what is left when it ends, and that task then closes the clients.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from application.contacts import Contacts
from application.parking import Parking
from application.ports import Origin, UnitOfWork, utc_now
from application.relay import Relay
from infra.cosmos.client import ContainerProxy, CosmosClient, cosmos_client
from infra.cosmos.container import Container
from infra.cosmos.parking_lot import CosmosParkingLot
from infra.cosmos.unit_of_work import CosmosUnitOfWork, Lifetimes
from infra.credentials import credential_for
from infra.relay_status import RelayObserver
from infra.servicebus.client import servicebus_client
from infra.servicebus.publisher import ServiceBusPublisher
from infra.settings import Settings, load

_log = logging.getLogger("contacts.bootstrap")


@dataclass(frozen=True)
class Application:
    """The service, wired. ``resources`` closes everything that it holds open."""

    contacts: Contacts
    relay: Relay
    parking: Parking
    observer: RelayObserver
    feed: ContainerProxy
    """The container whose change feed the relay reads."""
    leases: ContainerProxy
    check: Callable[[], Awaitable[None]]
    """Returns if the store answers. Raises Unavailable, Throttled or Misconfigured."""
    resources: AsyncExitStack


@dataclass(frozen=True)
class _Running:
    application: Application
    loop: asyncio.AbstractEventLoop
    closing: asyncio.Task[None]  # held here: a task that nobody holds may be collected


_running: _Running | None = None


def application() -> Application:
    """The application of this process, made at the first call. Call it inside the running loop.

    Raises:
        Misconfigured: a setting is missing or wrong.
    """
    global _running  # noqa: PLW0603 - one per process is the point
    loop = asyncio.get_running_loop()
    if _running is None or _running.loop is not loop:
        wired = wire(load(os.environ))
        _running = _Running(wired, loop, loop.create_task(_close_when_the_loop_ends(wired)))
    return _running.application


def wire(settings: Settings) -> Application:
    """Build the application from settings. Opens no connection: each is opened by its first use."""
    resources = AsyncExitStack()
    client = _cosmos(settings, resources)
    database = client.get_database_client(settings.cosmos_database)
    container = Container(client, settings.cosmos_database, settings.cosmos_container)
    scope = f"{settings.cosmos.address}/{settings.cosmos_database}/{settings.cosmos_container}/contacts"

    lifetimes = Lifetimes(settings.event_ttl_seconds, settings.idempotency_ttl_seconds)

    def open_unit_of_work(origin: Origin) -> UnitOfWork:
        return CosmosUnitOfWork(container, scope, origin, lifetimes)

    publisher = _publisher(settings, resources)
    feed = database.get_container_client(settings.cosmos_container)
    leases = database.get_container_client(settings.cosmos_lease_container)
    lot = CosmosParkingLot(
        Container(client, settings.cosmos_database, settings.cosmos_parked_container),
        f"{scope}/parked",
        discarded_ttl_seconds=settings.event_ttl_seconds,
    )
    return Application(
        contacts=Contacts(open_unit_of_work, utc_now),
        relay=Relay(publisher, lot),
        parking=Parking(lot, publisher),
        observer=RelayObserver(feed, leases, lot, settings.event_ttl_seconds),
        feed=feed,
        leases=leases,
        check=container.check,
        resources=resources,
    )


def _cosmos(settings: Settings, resources: AsyncExitStack) -> CosmosClient:
    credential = credential_for(settings.cosmos)
    client = cosmos_client(settings.cosmos, credential)
    if credential:
        resources.push_async_callback(credential.close)
    resources.push_async_callback(client.close)
    return client


def _publisher(settings: Settings, resources: AsyncExitStack) -> ServiceBusPublisher:
    credential = credential_for(settings.servicebus)
    client = servicebus_client(settings.servicebus, credential)
    publisher = ServiceBusPublisher(
        client, settings.servicebus_topic, partitioned=settings.servicebus_topic_partitioned
    )
    if credential:
        resources.push_async_callback(credential.close)
    resources.push_async_callback(client.close)
    resources.push_async_callback(publisher.close)
    return publisher


async def _close_when_the_loop_ends(wired: Application) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await wired.resources.aclose()
        _log.debug("clients closed")

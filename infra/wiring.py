"""Clients are made only here: once per process, inside the running loop, and closed when the loop ends.

Nothing happens at import, since the host imports the app just to list its functions. The Python worker has no shutdown
hook (https://github.com/Azure/azure-functions-python-worker/issues/1904), so a task waits for the end of the loop:
``asyncio.run`` cancels the remaining tasks when it ends, and that task then closes the clients.
"""

import asyncio
import functools
import gc
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from infra.correlation import tag_log_lines
from infra.cosmos.batch import Lifetimes
from infra.cosmos.claims import CosmosClaims
from infra.cosmos.client import ContainerProxy, CosmosClient, cosmos_client
from infra.cosmos.container import Container
from infra.cosmos.documents import EventReader
from infra.cosmos.expiry import Expiry
from infra.cosmos.marker_documents import Owners
from infra.cosmos.originals import CosmosOriginals
from infra.cosmos.parked_documents import ParkedDocuments
from infra.cosmos.parking_lot import CosmosParkingLot
from infra.cosmos.unit_of_work import CosmosUnitOfWork
from infra.credentials import credential_for
from infra.dependencies import LOOK_SECONDS, Dependency
from infra.instance import Instance
from infra.late import late
from infra.late_publisher import LatePublisher
from infra.recent import Recent
from infra.relay_status import RelayObserver
from infra.settings import FeedSettings, Settings, load, shown
from infra.shedding import LoadShedder
from infra.telemetry.export import export
from infra.telemetry.tracing import Invocation, invoked
from infra.wire_names import WireNames
from outbox.claims import Claims
from outbox.errors import NotDelivered
from outbox.feed import FeedEvent
from outbox.paced import paced
from outbox.page import Committed, Forwarded
from outbox.parking import Parking
from outbox.publisher import Publisher
from outbox.relay import Relay
from outbox.unit_of_work import Origin, UnitOfWork, UnitOfWorkFactory

if TYPE_CHECKING:
    from infra import aggregate_past
    from infra.cosmos import history
    from outbox.republish import EventHistory
else:
    aggregate_past, history = late("infra.aggregate_past"), late("infra.cosmos.history")

FORWARD_SECONDS = 150.0
"""For one page of the feed; shorter than ``functionTimeout`` in host.json, which ends the process and all in it."""

HEALTH_SECONDS = 2.0
"""How old the answer of the health function may be: the function is open, and each look at the store costs."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outbox:
    """The wired outbox of one service; the outbox does not depend on the service's aggregates."""

    open_unit_of_work: UnitOfWorkFactory
    claims: Claims
    relay: Relay
    parking: Parking
    observer: RelayObserver
    shedder: LoadShedder
    """Every function that stores a change asks it first."""
    events: EventReader
    history: "Callable[[str], EventHistory]"
    """The events that are still stored, read behind a session token of all physical partitions."""
    feed: ContainerProxy
    """The container whose change feed the relay reads."""
    leases: ContainerProxy
    expiry: Expiry
    """Of the container whose change feed the relay reads."""
    reading: FeedSettings
    container: Callable[[str], Container]
    """A container of the service's database by its name; the same object for the same name."""
    check: Callable[[], Awaitable[None]]
    """Returns if the store answers. Raises Unavailable, Throttled or Misconfigured."""
    past: "Callable[[], aggregate_past.AggregatePast]"
    """What became of the events of one aggregate."""
    dependencies: Sequence[Dependency]
    """The store and the broker."""
    instance: Instance
    """This process."""
    resources: AsyncExitStack
    """Closes all clients."""

    async def forward(
        self, items: Iterable[Mapping[str, Any]], invocation: Invocation | None = None
    ) -> Forwarded:
        """Forward the events among the items of a feed. Raises NotDelivered, Misconfigured."""
        with invoked(invocation):
            async with self._in_time("forwarded"):
                return self._counted(await self.relay.forward(await self._events(items)))

    async def committed(self, items: Iterable[Mapping[str, Any]]) -> Committed:
        """The first half of :meth:`forward`, which sends nothing. Raises NotDelivered."""
        async with self._in_time("compared with what was committed"):
            return await self.relay.committed(await self._events(items))

    async def forward_committed(self, page: Committed) -> Forwarded:
        """The second half. Raises NotDelivered, Misconfigured."""
        async with self._in_time("forwarded"):
            return self._counted(await self.relay.forward_committed(page))

    async def _events(self, items: Iterable[Mapping[str, Any]]) -> list[FeedEvent]:
        return [event async for some in paced(items) for event in self.events.events(some)]

    @asynccontextmanager
    async def _in_time(self, done: str) -> AsyncIterator[None]:
        """Tells an operator itself: the relay, which tells of all else that waits, is cut off."""
        try:
            async with asyncio.timeout(FORWARD_SECONDS):
                yield
        except TimeoutError:
            reason = f"a page of the feed was not {done} within {FORWARD_SECONDS:.0f} s, and is tried again"
            if self.relay.saying.due():
                _log.error("events wait: %s", reason)
            raise NotDelivered(reason) from None

    def _counted(self, forwarded: Forwarded) -> Forwarded:
        self.instance.forwarded.add(forwarded.sent)
        return forwarded


class Wired(Protocol):
    """A service that has an outbox."""

    @property
    def outbox(self) -> Outbox: ...


W = TypeVar("W", bound=Wired)


class OnePerProcess(Generic[W]):
    """Makes a service at the first call, inside the running loop, and closes its clients when the loop ends."""

    def __init__(self, make: Callable[[Settings], W]) -> None:
        self._make = make
        self._made: tuple[W, asyncio.AbstractEventLoop] | None = None
        self._closing: asyncio.Task[None] | None = (
            None  # kept here: a task without a reference may be collected
        )

    def __call__(self) -> W:
        """The service of this process. Raises Misconfigured when a setting is missing or wrong."""
        loop = asyncio.get_running_loop()
        if self._made is None or self._made[1] is not loop:
            tag_log_lines()
            service = self._make(load(os.environ))
            gc.freeze()  # what is loaded stays: no collection need look at it again
            self._made = service, loop
            self._closing = loop.create_task(_close_when_the_loop_ends(service.outbox.resources))
        return self._made[0]


def wire_outbox(settings: Settings, names: WireNames) -> Outbox:
    """Build a service's outbox from settings. Opens no connection: the first use opens it."""
    events = EventReader(names.untyped)
    resources = AsyncExitStack()
    if exporting := export(settings.telemetry, names.source.strip("/")):
        resources.push_async_callback(exporting.flush)  # the first pushed is the last closed
    client = _cosmos(settings, resources)
    database = client.get_database_client(settings.cosmos_database)

    @functools.cache
    def container_of(name: str) -> Container:
        return Container(client, settings.cosmos_database, name)

    container = container_of(settings.cosmos_container)
    scope = f"{settings.cosmos.address}/{settings.cosmos_database}/{settings.cosmos_container}"

    lifetimes = Lifetimes(settings.event_ttl_seconds, settings.idempotency_ttl_seconds)

    def open_unit_of_work(origin: Origin) -> UnitOfWork:
        return CosmosUnitOfWork(container, scope, origin, lifetimes)

    claims = CosmosClaims(
        Container(client, settings.cosmos_database, settings.cosmos_claim_container),
        settings.idempotency_ttl_seconds,
    )
    publisher = LatePublisher(lambda: _publisher(settings, names.source, resources))
    feed = database.get_container_client(settings.cosmos_container)
    leases = database.get_container_client(settings.cosmos_lease_container)
    lot = CosmosParkingLot(
        container_of(settings.cosmos_parked_container),
        f"{scope}/parked",
        ParkedDocuments(events, Owners(names.parked)),
        ttl_seconds=settings.event_ttl_seconds,
    )
    originals = CosmosOriginals(container, events)
    observer = RelayObserver(feed, leases, lot, settings.feed.lease_prefix, settings.event_ttl_seconds)
    shedder = LoadShedder(observer.oldest_waiting_seconds, settings.shed_load_after_seconds)
    resources.push_async_callback(shedder.close)
    return Outbox(
        open_unit_of_work=open_unit_of_work,
        claims=claims,
        relay=Relay(publisher, lot, originals, settings.relay_send_seconds),
        parking=Parking(
            lot, publisher, originals, settings.relay_send_seconds, settings.parked_max_age_seconds
        ),
        observer=observer,
        shedder=shedder,
        events=events,
        history=lambda session_token: history.CosmosEventHistory(container, events, session_token),
        feed=feed,
        leases=leases,
        expiry=Expiry(database, feed, container),
        reading=settings.feed,
        container=container_of,
        check=Recent(container.check, seconds=HEALTH_SECONDS),
        past=lambda: aggregate_past.AggregatePast(container, events, lot, observer),
        dependencies=(
            Dependency("Cosmos DB", container.check),
            Dependency("Service Bus", functools.partial(_try_sending, settings)),
        ),
        instance=Instance(shown(settings)),
        resources=resources,
    )


def _cosmos(settings: Settings, resources: AsyncExitStack) -> CosmosClient:
    credential = credential_for(settings.cosmos)
    client = cosmos_client(settings.cosmos, credential)
    if credential:
        resources.push_async_callback(credential.close)
    resources.push_async_callback(client.close)
    return client


def _publisher(settings: Settings, source: str, resources: AsyncExitStack) -> Publisher:
    from infra.servicebus.client import servicebus_client  # noqa: PLC0415 - slow to import: see LatePublisher
    from infra.servicebus.message import CloudEvents  # noqa: PLC0415
    from infra.servicebus.publisher import ServiceBusPublisher  # noqa: PLC0415

    credential = credential_for(settings.servicebus)
    client = servicebus_client(settings.servicebus, credential)
    publisher = ServiceBusPublisher(
        client,
        settings.servicebus_topic,
        service=CloudEvents(source, settings.event_schemas),
        partitioned=settings.servicebus_topic_partitioned,
        senders=settings.relay_senders,
    )
    if credential:
        resources.push_async_callback(credential.close)
    resources.push_async_callback(client.close)
    resources.push_async_callback(publisher.close)
    _log.info("at most %d connection(s) to Service Bus: RELAY_SENDERS", settings.relay_senders)
    for missing in publisher.guarantees.left_to_subscribers():
        _log.warning("%s", missing)
    return publisher


async def _try_sending(settings: Settings) -> None:
    from infra.servicebus.inspection import try_sending  # noqa: PLC0415 - slow to import: see LatePublisher

    credential = credential_for(settings.servicebus)
    try:
        await try_sending(settings.servicebus, credential, settings.servicebus_topic, seconds=LOOK_SECONDS)
    finally:
        if credential:
            await credential.close()


async def _close_when_the_loop_ends(resources: AsyncExitStack) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await resources.aclose()
        _log.debug("clients closed")

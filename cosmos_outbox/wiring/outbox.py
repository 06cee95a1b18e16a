"""Clients are made only here, once for each wired service; whoever wires it closes them with its resources."""

import functools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from cosmos_outbox.cosmos.aggregates.claims import CosmosClaims
from cosmos_outbox.cosmos.aggregates.deadlines import Deadlines, deadlines_of
from cosmos_outbox.cosmos.aggregates.documents import EventReader
from cosmos_outbox.cosmos.aggregates.unit_of_work import CosmosUnitOfWork, Lifetimes
from cosmos_outbox.cosmos.own.transaction import Transaction, Transactions
from cosmos_outbox.cosmos.relay.forwarding import Forwarding, Instance
from cosmos_outbox.cosmos.relay.history import CosmosEventHistory
from cosmos_outbox.cosmos.relay.originals import CosmosOriginals
from cosmos_outbox.cosmos.relay.parked_documents import ParkedDocuments
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.store.client import ContainerProxy, CosmosClient, cosmos_client
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.cosmos.store.partition_key import PARTITION_KEY, PartitionKeyPaths, Value
from cosmos_outbox.cosmos.upkeep.event_list import EventList
from cosmos_outbox.cosmos.upkeep.relay_failures import RelayFailures
from cosmos_outbox.operations.health import Dependency, RecentCheck
from cosmos_outbox.operations.relay_status import RelayObserver
from cosmos_outbox.operations.shedding import LoadShedder
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.aggregates import Aggregates
from cosmos_outbox.outbox.idempotency import Claims
from cosmos_outbox.outbox.parking import Parking
from cosmos_outbox.outbox.publisher import Publisher
from cosmos_outbox.outbox.relay import Relay
from cosmos_outbox.outbox.republish import EventHistory
from cosmos_outbox.outbox.unit_of_work import OnCommit, Origin, UnitOfWork, UnitOfWorkFactory
from cosmos_outbox.settings.connections import Connection, Credential, connected
from cosmos_outbox.settings.environment import FeedSettings, Settings, SubscriberSettings, shown
from cosmos_outbox.settings.own_container import WireNames
from cosmos_outbox.telemetry.export import export
from cosmos_outbox.wiring import transports
from cosmos_outbox.wiring.transports import LatePublisher, Queues, check, kind_of

HEALTH_SECONDS = 2.0
"""How old the answer of the health function may be: the function is open, and each look at the store costs."""


@dataclass(frozen=True)
class Clients:
    """How a service reaches the store and the broker. Each is called when it is first needed, and opens nothing."""

    cosmos: Callable[[Connection, Credential | None], CosmosClient] = cosmos_client
    container: Callable[..., Container] = Container
    publisher: Callable[[Settings, str, AsyncExitStack], Publisher] = transports.publisher
    queues: Callable[[SubscriberSettings, AsyncExitStack, str], Queues] = transports.queues


SDKS = Clients()
"""Those of a deployed service."""


@dataclass(frozen=True)
class Outbox:
    """The wired outbox of one service; the outbox does not depend on the service's aggregates."""

    open_unit_of_work: UnitOfWorkFactory
    on_commit: OnCommit
    """Whatever commits events in this process calls it; a relay in this process listens."""
    claims: Claims
    relay: Relay
    forwarding: Forwarding
    """What a reader of the feed gives its pages to."""
    parking: Parking
    observer: RelayObserver
    shedder: LoadShedder
    """Every function that stores a change asks it first."""
    events: EventReader
    history: Callable[[str], EventHistory]
    """The events that are still stored, read behind a session token of all physical partitions."""
    feed: ContainerProxy
    """The container whose change feed the relay reads."""
    leases: ContainerProxy
    reading: FeedSettings
    container: Callable[[str], Container]
    """A container of the service's database by its name; the same object for the same name."""
    check: Callable[[], Awaitable[None]]
    """Returns if the store answers. Raises Unavailable, Throttled or Misconfigured."""
    event_list: EventList
    """The stored and the parked events of one aggregate."""
    dependencies: Sequence[Dependency]
    """The store and the broker."""
    instance: Instance
    """This process."""
    resources: AsyncExitStack
    """Closes all clients."""
    deadlines: Deadlines | None = None
    """What happens by itself; None: nothing does, in this service."""
    transactions: Transactions | None = None
    """In a container of the team's own; None: the service declares none."""
    clients: Clients = SDKS
    """How it reaches the store and the broker."""

    def transaction(
        self, partition_key: Value | Sequence[Value], *, origin: Origin | None = None
    ) -> Transaction:
        """A transaction of the team's own documents and their events. Raises ValueError."""
        if self.transactions is None:
            raise ValueError("the service declares no OwnContainer: name one in Service(own=...)")
        return self.transactions(partition_key, origin=origin)


def wire_outbox(
    settings: Settings,
    names: WireNames,
    clients: Clients = SDKS,
    *,
    records_seconds: int = 0,
    kinds: Sequence[type[Aggregate[Any]]] = (),
) -> Outbox:
    """Build a service's outbox from settings. Opens no connection: the first use opens it.

    ``records_seconds``: how long the records of its reactions live; 0: it has none. ``kinds``: its aggregates.
    """
    paths = PARTITION_KEY if names.own is None else PartitionKeyPaths.beside_events(names.own.paths)
    events = EventReader(names.untyped, paths)
    resources = AsyncExitStack()
    if exporting := export(settings.telemetry, names.source.strip("/")):
        resources.push_async_callback(exporting.flush)  # the first pushed is the last closed
    client = connected(resources, settings.cosmos, ("COSMOS", "Cosmos DB"), clients.cosmos)
    database = client.get_database_client(settings.cosmos_database)

    @functools.cache
    def container_of(name: str) -> Container:
        of_feed = name == settings.cosmos_container
        return clients.container(
            client, settings.cosmos_database, name, paths=paths if of_feed else PARTITION_KEY
        )

    container = container_of(settings.cosmos_container)
    scope = f"{settings.cosmos.address}/{settings.cosmos_database}/{settings.cosmos_container}"

    on_commit = OnCommit()
    lifetimes = Lifetimes(settings.event_ttl_seconds, settings.idempotency_ttl_seconds, records_seconds)

    def open_unit_of_work(origin: Origin) -> UnitOfWork:
        return CosmosUnitOfWork(container, scope, origin, lifetimes, on_commit)

    claims = CosmosClaims(
        container_of(settings.cosmos_claim_container),
        settings.idempotency_ttl_seconds,
    )
    transactions = None
    if names.own is not None:
        transactions = Transactions(container, names.own, settings.event_ttl_seconds, on_commit)
    feed = database.get_container_client(settings.cosmos_container)
    leases = database.get_container_client(settings.cosmos_lease_container)
    instance = Instance(shown(settings))
    prefix, ttl, send_seconds = (
        settings.feed.lease_prefix,
        settings.event_ttl_seconds,
        settings.relay_send_seconds,
    )
    publisher = LatePublisher(lambda: clients.publisher(settings, names.source, resources))
    originals = CosmosOriginals(container, events)
    parked = container_of(settings.cosmos_parked_container)
    lot = CosmosParkingLot(parked, f"{scope}/parked", ParkedDocuments(events), ttl_seconds=ttl)
    failures = RelayFailures(
        leases, f"{prefix}failures.{settings.cosmos_database}.{settings.cosmos_container}", ttl
    )
    relay = Relay(publisher, lot, originals, send_seconds)
    observer = RelayObserver(feed, leases, lot, prefix, ttl, failures)
    shedder = LoadShedder(observer.oldest_waiting_seconds, settings.shed_load_after_seconds)
    resources.push_async_callback(shedder.close)
    return Outbox(
        open_unit_of_work=open_unit_of_work,
        on_commit=on_commit,
        claims=claims,
        relay=relay,
        forwarding=Forwarding(relay, events, instance, failures),
        parking=Parking(lot, publisher, originals, send_seconds, settings.parked_max_age_seconds),
        observer=observer,
        shedder=shedder,
        events=events,
        history=lambda token: CosmosEventHistory(container, events, token),
        feed=feed,
        leases=leases,
        reading=settings.feed,
        container=container_of,
        check=RecentCheck(container.check, seconds=HEALTH_SECONDS),
        deadlines=deadlines_of(kinds, container, Aggregates(open_unit_of_work, claims)),
        transactions=transactions,
        event_list=EventList(
            container, feed, lot, observer.progress, names.untyped, own_documents=names.own is not None
        ),
        dependencies=(
            Dependency("Cosmos DB", container.check),
            Dependency(kind_of(settings.transport).service, lambda: check(settings.transport)),
        ),
        instance=instance,
        resources=resources,
        clients=clients,
    )

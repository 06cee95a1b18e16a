"""Clients are made only here, once for each wired service; whoever wires it closes them with its resources."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from cosmos_outbox.cosmos.aggregates.batch import Lifetimes
from cosmos_outbox.cosmos.aggregates.claims import CosmosClaims
from cosmos_outbox.cosmos.aggregates.documents import EventReader
from cosmos_outbox.cosmos.aggregates.unit_of_work import CosmosUnitOfWork
from cosmos_outbox.cosmos.own.transaction import Transaction, Transactions
from cosmos_outbox.cosmos.relay.parked_documents import partition_of
from cosmos_outbox.cosmos.store.client import ContainerProxy, CosmosClient
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.cosmos.store.partition_key import PARTITION_KEY, PartitionKeyPaths, Value
from cosmos_outbox.cosmos.upkeep.event_list import EventList
from cosmos_outbox.operations.dependencies import Dependency
from cosmos_outbox.operations.forwarding import Forwarding
from cosmos_outbox.operations.instance import Instance
from cosmos_outbox.operations.lease_status import RelayStatus
from cosmos_outbox.operations.leaving import WayOut
from cosmos_outbox.operations.recent import Recent
from cosmos_outbox.operations.relay_status import RelayObserver
from cosmos_outbox.operations.shedding import LoadShedder
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.aggregates import Aggregates
from cosmos_outbox.outbox.claims import Claims
from cosmos_outbox.outbox.deadlines import Deadlines
from cosmos_outbox.outbox.destination import ALL, Destination
from cosmos_outbox.outbox.errors import NoSuchDestination
from cosmos_outbox.outbox.on_commit import OnCommit
from cosmos_outbox.outbox.parking import Parking
from cosmos_outbox.outbox.relay import Relay
from cosmos_outbox.outbox.republish import EventHistory
from cosmos_outbox.outbox.unit_of_work import Origin, UnitOfWork, UnitOfWorkFactory
from cosmos_outbox.settings.connections import usable
from cosmos_outbox.settings.credentials import credential_for
from cosmos_outbox.settings.environment import FeedSettings, Settings, shown
from cosmos_outbox.settings.wire_names import WireNames
from cosmos_outbox.telemetry.export import export
from cosmos_outbox.wiring.clients import SDKS, Clients
from cosmos_outbox.wiring.deadlines import deadlines_of
from cosmos_outbox.wiring.relaying import RelayGround, Relaying

HEALTH_SECONDS = 2.0
"""How old the answer of the health function may be: the function is open, and each look at the store costs."""


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
    destination: Destination = ALL
    """Where its relay sends events to."""
    beside: Mapping[str, "Outbox"] = field(default_factory=dict)
    """The same service towards each other destination, by its name."""

    @property
    def each(self) -> Sequence["Outbox"]:
        """Towards all destinations, the service's own transport first."""
        return [self, *self.beside.values()]

    async def status(self) -> RelayStatus:
        """How far the relays to all destinations are. Raises as :meth:`RelayObserver.status` does."""
        found = await asyncio.gather(*(each.observer.status() for each in self.each))
        return replace(RelayStatus.of(found), beside=dict(zip(self.beside, found[1:], strict=True)))

    def ways_out(self) -> Sequence[WayOut]:
        """By which events leave before they are erased."""
        return [
            WayOut(each.destination, each.observer, each.parking, partition_of(each.destination.name))
            for each in self.each
        ]

    def towards(self, destination: str | None) -> "Outbox":
        """The same towards a destination; None: the service's own transport. Raises NoSuchDestination."""
        if destination is None:
            return self
        if destination not in self.beside:
            raise NoSuchDestination(destination, self.beside)
        return self.beside[destination]

    def transaction(
        self, partition_key: Value | Sequence[Value], *, origin: Origin | None = None
    ) -> Transaction:
        """A transaction of the team's own documents and their events. Raises ValueError."""
        if self.transactions is None:
            raise ValueError("the service declares no OwnContainer: name one in Service(own=...)")
        return self.transactions(partition_key, origin=origin)


def wire_outbox(  # noqa: PLR0913 - what a service declares
    settings: Settings,
    names: WireNames,
    clients: Clients = SDKS,
    *,
    records_seconds: int = 0,
    kinds: Sequence[type[Aggregate[Any]]] = (),
    others: Sequence[Destination] = (),
) -> Outbox:
    """Build a service's outbox from settings. Opens no connection: the first use opens it.

    ``records_seconds``: how long the records of its reactions live; 0: it has none. ``kinds``: its aggregates.
    ``others``: the destinations beside its own transport.
    """
    paths = PARTITION_KEY if names.own is None else PartitionKeyPaths.beside_events(names.own.paths)
    events = EventReader(names.untyped, paths)
    resources = AsyncExitStack()
    if exporting := export(settings.telemetry, names.source.strip("/")):
        resources.push_async_callback(exporting.flush)  # the first pushed is the last closed
    client = _cosmos(settings, resources, clients)
    database = client.get_database_client(settings.cosmos_database)

    @functools.cache
    def container_of(name: str) -> Container:
        of_feed = name == settings.cosmos_container
        return Container(client, settings.cosmos_database, name, paths=paths if of_feed else PARTITION_KEY)

    container = container_of(settings.cosmos_container)
    scope = f"{settings.cosmos.address}/{settings.cosmos_database}/{settings.cosmos_container}"

    on_commit = OnCommit()
    lifetimes = Lifetimes(settings.event_ttl_seconds, settings.idempotency_ttl_seconds, records_seconds)

    def open_unit_of_work(origin: Origin) -> UnitOfWork:
        return CosmosUnitOfWork(container, scope, origin, lifetimes, on_commit)

    claims = CosmosClaims(
        Container(client, settings.cosmos_database, settings.cosmos_claim_container),
        settings.idempotency_ttl_seconds,
    )
    transactions = None
    if names.own is not None:
        transactions = Transactions(container, names.own, settings.event_ttl_seconds, on_commit)
    feed = database.get_container_client(settings.cosmos_container)
    leases = database.get_container_client(settings.cosmos_lease_container)
    instance = Instance(shown(settings))
    ground = RelayGround(
        settings, names.source, clients, resources, feed, leases, container,
        container_of(settings.cosmos_parked_container), scope, events, instance,
    )  # fmt: skip
    own, beside = ground.towards(ALL), [ground.towards(each) for each in others]
    observer = own.observer
    shedder = LoadShedder(observer.oldest_waiting_seconds, settings.shed_load_after_seconds)
    resources.push_async_callback(shedder.close)
    made = Outbox(
        open_unit_of_work=open_unit_of_work,
        on_commit=on_commit,
        claims=claims,
        relay=own.relay,
        forwarding=own.forwarding,
        parking=own.parking,
        observer=observer,
        shedder=shedder,
        events=events,
        history=own.history,
        feed=feed,
        leases=leases,
        reading=own.reading,
        container=container_of,
        check=Recent(container.check, seconds=HEALTH_SECONDS),
        deadlines=deadlines_of(kinds, container, Aggregates(open_unit_of_work, claims), transactions),
        transactions=transactions,
        event_list=EventList(
            container,
            feed,
            own.parking.lot,
            observer.progress,
            names.untyped,
            own_documents=names.own is not None,
        ),
        dependencies=(
            Dependency("Cosmos DB", container.check),
            own.dependency,
            *(each.dependency for each in beside),
        ),
        instance=instance,
        resources=resources,
        clients=clients,
    )
    return replace(made, beside={each.of.name: _towards(made, each) for each in beside})


def _towards(own: Outbox, of: Relaying) -> Outbox:
    """What the service does once, it does beside the relay of its own transport."""
    return replace(
        own,
        destination=of.of,
        relay=of.relay,
        forwarding=of.forwarding,
        parking=of.parking,
        observer=of.observer,
        reading=of.reading,
        history=of.history,
        deadlines=None,
    )


def _cosmos(settings: Settings, resources: AsyncExitStack, clients: Clients) -> CosmosClient:
    credential = credential_for(settings.cosmos)
    with usable("COSMOS", "Cosmos DB"):
        client = clients.cosmos(settings.cosmos, credential)
    if credential:
        resources.push_async_callback(credential.close)
    resources.push_async_callback(client.close)
    return client

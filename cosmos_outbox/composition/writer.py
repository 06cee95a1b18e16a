"""Builds what a writer needs. The store's client is made once for each wired service, and closed with its resources."""

import functools
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from cosmos_outbox.composition.transports import Clients
from cosmos_outbox.cosmos.aggregates.aggregates import Aggregates
from cosmos_outbox.cosmos.aggregates.documents import EventReader
from cosmos_outbox.cosmos.aggregates.idempotency import CosmosClaims
from cosmos_outbox.cosmos.aggregates.unit_of_work import CosmosUnitOfWork, Lifetimes
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.cosmos.store.partition_key import PARTITION_KEY, PartitionKeyPaths, Value
from cosmos_outbox.cosmos.transaction import OnCommit
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.operations.health import HEALTH_SECONDS, RecentCheck
from cosmos_outbox.operations.shedding import LoadShedder
from cosmos_outbox.outbox.aggregate import Origin
from cosmos_outbox.settings.connections import connected
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.settings.names import WireNames

if TYPE_CHECKING:
    from cosmos_outbox.cosmos.existing.transaction import Transaction
    from cosmos_outbox.cosmos.store.client import ContainerProxy


@dataclass(frozen=True)
class Outbox:
    """The parts that a writer needs: it stores changes with their events."""

    settings: Settings
    names: WireNames
    aggregates: Aggregates
    """Creates, reads and changes the service's aggregates, each with its events in one transaction."""
    on_commit: OnCommit
    """Called by all that commits events in this process; a relay in this process listens."""
    shedder: LoadShedder
    """Every function that stores a change asks it first."""
    events: EventReader
    container: Callable[[str], Container]
    """A container of the service's database by its name; the same object for the same name."""
    proxy: "Callable[[str], ContainerProxy]"
    """The same, by the SDK."""
    check: Callable[[], Awaitable[None]]
    """Returns if the store answers. Raises Unavailable, Throttled or Misconfigured."""
    resources: AsyncExitStack
    """Closes all clients."""

    @property
    def stored(self) -> Container:
        """The container of the aggregates and their events."""
        return self.container(self.settings.cosmos_container)

    @functools.cached_property
    def feed(self) -> "ContainerProxy":
        """The same, whose change feed the relay reads."""
        return self.proxy(self.settings.cosmos_container)

    @property
    def scope(self) -> str:
        """Names that container in tokens."""
        return (
            f"{self.settings.cosmos.address}/{self.settings.cosmos_database}/{self.settings.cosmos_container}"
        )

    def transaction(
        self, partition_key: Value | Sequence[Value], *, origin: Origin | None = None
    ) -> "Transaction":
        """A transaction of the team's own documents and their events. Raises ValueError."""
        if self._transactions is None:
            raise ValueError("the service declares no ExistingContainer: name one in Service(own=...)")
        return self._transactions(partition_key, origin=origin)

    @functools.cached_property
    def _transactions(self) -> "Callable[..., Transaction] | None":
        if self.names.own is None:
            return None
        from cosmos_outbox.cosmos.existing.transaction import Transactions  # noqa: PLC0415 - not over the library's own

        return Transactions(self.stored, self.names.own, self.settings.event_ttl_seconds, self.on_commit)


def wire_outbox(  # noqa: PLR0913 - what a writer is made of
    settings: Settings,
    names: WireNames,
    clients: Clients,
    resources: AsyncExitStack,
    *,
    declared: Collection[str],
    records_seconds: int,
    oldest_waiting_seconds: Callable[[], Awaitable[float]],
) -> Outbox:
    """Build what a writer needs. Opens no connection: the first use opens it. Raises Misconfigured.

    ``declared``: the types of its aggregates. ``records_seconds``: how long the records of its reactions live; 0: it
    has none.
    """
    paths = PARTITION_KEY if names.own is None else PartitionKeyPaths.beside_events(names.own.paths)
    client = connected(resources, settings.cosmos, ("COSMOS", "Cosmos DB"), clients.cosmos)

    @functools.cache
    def container_of(name: str) -> Container:
        of_feed = name == settings.cosmos_container
        return clients.container(
            client, settings.cosmos_database, name, paths=paths if of_feed else PARTITION_KEY
        )

    container, on_commit = container_of(settings.cosmos_container), OnCommit()
    lifetimes = Lifetimes(settings.event_ttl_seconds, settings.idempotency_ttl_seconds, records_seconds)
    claims = CosmosClaims(container_of(settings.cosmos_claim_container), settings.idempotency_ttl_seconds)

    def open_unit_of_work(origin: Origin) -> CosmosUnitOfWork:
        return CosmosUnitOfWork(container, made.scope, origin, lifetimes, on_commit, declared)

    shedder = LoadShedder(oldest_waiting_seconds, settings.shed_load_after_seconds)
    resources.push_async_callback(shedder.close)
    made = Outbox(
        settings=settings,
        names=names,
        aggregates=Aggregates(open_unit_of_work, claims),
        on_commit=on_commit,
        shedder=shedder,
        events=EventReader(names.untyped, paths),
        container=container_of,
        proxy=client.get_database_client(settings.cosmos_database).get_container_client,
        check=RecentCheck(container.check, seconds=HEALTH_SECONDS),
        resources=resources,
    )
    return made

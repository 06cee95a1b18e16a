"""Derives the required containers, with their properties, and subscriptions from a service's declaration."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from cosmos_outbox.composition.declarations import ReactionDeclaration
from cosmos_outbox.cosmos.aggregates import listing
from cosmos_outbox.cosmos.aggregates.documents import DUE
from cosmos_outbox.cosmos.inbox.store import CosmosDatabase, CosmosNames
from cosmos_outbox.cosmos.store.partition_key import PARTITION_KEY, PartitionKeyPaths
from cosmos_outbox.inbox.entry import EntrySchema
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.preflight.report import Subject
from cosmos_outbox.service import Service
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.environment import Settings, SubscriberSettings
from cosmos_outbox.settings.names import ExistingContainer, named_after
from cosmos_outbox.settings.transports import foreign


@dataclass(frozen=True)
class Needed:
    """A container that the app needs, with the properties that it must have."""

    name: str
    setting: str
    """The setting that names the container."""
    paths: PartitionKeyPaths = PARTITION_KEY
    ttl_needed: bool = True
    """Whether items must expire; without a default TTL of the container Cosmos DB ignores an item's own TTL."""
    items_say_their_ttl: bool = True
    """Whether every item has a TTL of its own, so that a default TTL does no harm."""
    queried: tuple[str, ...] = ()
    """The properties in queries, besides the id."""
    composite: tuple[tuple[str, ...], ...] = ()
    """The properties, ascending, of each ORDER BY over several."""
    own: ExistingContainer | None = None
    """The team's declaration, if the container holds a team's own documents."""

    @property
    def partition_key(self) -> str | list[str]:
        """The path of its partition key; for a hierarchical one the list of its paths."""
        paths = [*self.paths.paths]
        return paths if len(paths) > 1 else paths[0]

    @property
    def subject(self) -> Subject:
        """The container, in the findings of its checks."""
        return Subject(f"container {self.name}")


def needed(settings: Settings, service: Service) -> tuple[Needed, ...]:
    """Returns the containers that the service needs, under the names in its settings."""
    own = service.own is not None
    return (
        _feed(settings, service),
        Needed(
            settings.cosmos_lease_container, "COSMOS_LEASE_CONTAINER", PartitionKeyPaths(("/id",)),
            ttl_needed=False, items_say_their_ttl=False,
        ),
        Needed(
            settings.cosmos_parked_container, "COSMOS_PARKED_CONTAINER", items_say_their_ttl=False,
            queried=("/type", "/aggregateType", "/aggregateId", "/position", "/parkedAt"),
        ),
        # Over a team's own documents there are no idempotency keys, and messages only if it subscribes.
        *([] if own else [Needed(settings.cosmos_claim_container, "COSMOS_CLAIM_CONTAINER")]),
        *([] if own and not service.subscribers else [_set_aside(settings.cosmos_set_aside_container)]),
        *(
            _kept(settings.name(each.container), each.container.setting, each.form)
            for each in service.subscribers
            if each.container is not None  # a reaction's records are in its targets' container
        ),
    )  # fmt: skip


def needed_by_subscriber(names: CosmosNames, service: Service) -> tuple[Needed, ...]:
    """The containers of a service that only subscribes, in the database of its own."""
    return (
        _set_aside(names.set_aside),
        *(
            _kept(names.container(each.name), named_after(each.name, "CONTAINER").setting, each.form)
            for each in service.subscribers
        ),
    )


def _set_aside(container: str) -> Needed:
    queried = ("/state", "/setAsideAt", "/triedAt", "/aggregateType", "/aggregateId")
    return Needed(container, "COSMOS_SET_ASIDE_CONTAINER", queried=queried)


def _feed(settings: Settings, service: Service) -> Needed:
    own = service.own
    return Needed(
        settings.cosmos_container,
        "COSMOS_CONTAINER",
        service.paths,
        items_say_their_ttl=own is None,
        queried=_queried_of_aggregates(service) if own is None else _queried_beside_events(service),
        composite=() if own else _sorted_aggregates(service),
        own=own,
    )


def _queried_of_aggregates(service: Service) -> tuple[str, ...]:
    found = [path for each in service.aggregates for path in listing.indexed(each)]
    due = [f"/{DUE}"] if any(each.can_be_due() for each in service.aggregates) else []
    return (*dict.fromkeys(("/type", "/data/deleted", *found)), *due)


def _sorted_aggregates(service: Service) -> tuple[tuple[str, ...], ...]:
    return tuple(dict.fromkeys(paths for each in service.aggregates for paths in listing.composite(each)))


def _queried_beside_events(service: Service) -> tuple[str, ...]:
    found = [
        path
        for each in service.subscribers
        if each.form is not None and each.documents is not None
        for path in (each.documents.id, *each.documents.where)
        if path != "/id"
    ]
    return tuple(dict.fromkeys(("/type", "/aggregateType", "/aggregateId", *found)))


def _kept(container: str, setting: str, form: EntrySchema[Any] | None) -> Needed:
    """Returns a subscriber's container; the queried paths follow from its form. ``form`` None: it has effects."""
    if form is None:
        return Needed(container, setting)
    return Needed(
        container,
        setting,
        queried=("/deleted", *(f"/search/{name}" for name in form.search)),
        composite=tuple((f"/search/{name}", "/id") for name in form.sorted_by),
    )


@dataclass(frozen=True)
class Cosmos:
    """The account to check, and the containers that the service needs there."""

    connection: Connection
    database: str
    needed: tuple[Needed, ...]


@dataclass(frozen=True)
class Plan:
    """The settings to check, and the outage that the deployment must survive."""

    settings: SubscriberSettings
    service: Service
    cosmos: Cosmos | None
    """None: the service has no store in Cosmos DB."""
    other_subscriptions: tuple[str, ...] = ()
    """Further subscriptions, which are checked in the same way."""
    survive: timedelta = timedelta(hours=1)
    as_app: bool = False
    """True: the run uses the app's own identity, and also tries the app's calls."""
    emulator_port: int = 5300
    """The port of an emulator's management API; not used for a real namespace."""

    @property
    def subscriptions(self) -> tuple[tuple[str, str], ...]:
        """The service's subscriptions, each as the destination of its messages and its name."""
        own, name = self.settings.transport, self.settings.name
        of_others = {
            each.name: foreign(own, name(each.topic))
            for each in self.service.subscribers
            if isinstance(each, ReactionDeclaration) and each.topic
        }
        return tuple(
            (of_others.get(each.name, own).destination, name(each.subscription))
            for each in self.service.subscribers
        )


def plan_for(service: Service, values: Mapping[str, str], **others: Any) -> Plan:
    """Returns the checks of a service with these settings. Raises Misconfigured."""
    if service.publishes:
        settings = service.settings(values)
        containers = needed(settings, service)
        return Plan(
            settings, service, Cosmos(settings.cosmos, settings.cosmos_database, containers), **others
        )
    cosmos = None
    if isinstance(service.store, CosmosDatabase):
        names = service.store.names(values)
        containers = needed_by_subscriber(names, service)
        cosmos = Cosmos(names.connection, names.database, containers)
    return Plan(service.subscriber_settings(values), service, cosmos, **others)

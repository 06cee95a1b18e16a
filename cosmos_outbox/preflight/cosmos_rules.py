"""The rules for the containers: events are stored, forwarded and applied once in order, a key is claimed once."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from cosmos_outbox.cosmos.inbox.store import CosmosNames
from cosmos_outbox.cosmos.store.account import Account
from cosmos_outbox.cosmos.store.partition_key import PARTITION_KEY, PartitionKeyPaths
from cosmos_outbox.cosmos.upkeep.inspection import ContainerState
from cosmos_outbox.inbox.form import EntryForm
from cosmos_outbox.preflight.indexing import covers, covers_everything
from cosmos_outbox.preflight.report import Finding, ok, unknown, warning, written, wrong
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.settings.names import named_after
from cosmos_outbox.settings.own_container import OwnContainer
from cosmos_outbox.wiring.service import Service, Subscriber
from cosmos_outbox.wiring.subscribing import ForeignReadModel, SubscriberService

CLOCK_TOLERANCE = timedelta(minutes=5)
"""Cosmos DB refuses a signature that is 15 minutes old; validators of tokens usually allow 5 minutes."""

_STRONG_ENOUGH = {"Session", "BoundedStaleness", "Strong"}
"""With the stronger two a read in the region of the writes is never old
(https://learn.microsoft.com/azure/cosmos-db/consistency-levels)."""


@dataclass(frozen=True)
class Needed:
    """A container that the app needs, with the properties that it must have."""

    name: str
    setting: str
    """The setting that names the container."""
    paths: PartitionKeyPaths
    ttl_needed: bool
    """Some items must expire; without a default TTL of the container the service ignores an item's own TTL."""
    items_say_their_ttl: bool
    """Every item has a TTL of its own, so a default TTL does no harm."""
    queried: tuple[str, ...]
    """The properties in queries, besides the id."""
    composite: tuple[tuple[str, ...], ...] = ()
    """The properties, ascending, of each ORDER BY over several."""
    own: OwnContainer | None = None
    """The team's declaration, when the container holds documents of a team's own."""

    @property
    def partition_key(self) -> str | list[str]:
        """The path of its partition key; of a hierarchical one the list of its paths."""
        paths = [*self.paths.paths]
        return paths if len(paths) > 1 else paths[0]

    @property
    def subject(self) -> str:
        return f"container {self.name}"


def needed(settings: Settings, service: Service) -> tuple[Needed, ...]:
    """The containers under the names that the settings give them, as the service queries them."""
    return (
        _feed(settings, service),
        Needed(
            settings.cosmos_lease_container,
            "COSMOS_LEASE_CONTAINER",
            PartitionKeyPaths(("/id",)),
            ttl_needed=False,
            items_say_their_ttl=False,
            queried=(),
        ),
        Needed(
            settings.cosmos_parked_container,
            "COSMOS_PARKED_CONTAINER",
            PARTITION_KEY,
            ttl_needed=True,
            items_say_their_ttl=False,
            queried=("/type", "/aggregateType", "/aggregateId", "/position", "/parkedAt"),
        ),
        *_of_calls_and_messages(settings, service),
        *(_subscriber(settings, each) for each in service.subscribers),
    )


def _of_calls_and_messages(settings: Settings, service: Service) -> Iterator[Needed]:
    """A service of a team's own documents claims no keys, and sets aside nothing unless it subscribes."""
    if service.own is None:
        yield Needed(
            settings.cosmos_claim_container,
            "COSMOS_CLAIM_CONTAINER",
            PARTITION_KEY,
            ttl_needed=True,
            items_say_their_ttl=True,
            queried=(),
        )
    if service.own is None or service.subscribers:
        yield _set_aside(settings.cosmos_set_aside_container)


def needed_by_subscriber(names: CosmosNames, service: SubscriberService) -> tuple[Needed, ...]:
    """The containers of a service that only subscribes, in the database of its own."""
    return (
        _set_aside(names.set_aside),
        *(
            _kept(
                names.container(each.name),
                named_after(each.name, "CONTAINER").setting,
                each.form if isinstance(each, ForeignReadModel) else None,
            )
            for each in service.subscribers
        ),
    )


def _set_aside(container: str) -> Needed:
    return Needed(
        container,
        "COSMOS_SET_ASIDE_CONTAINER",
        PARTITION_KEY,
        ttl_needed=True,
        items_say_their_ttl=True,
        queried=("/state", "/setAsideAt", "/triedAt", "/aggregateType", "/aggregateId"),
    )


def _feed(settings: Settings, service: Service) -> Needed:
    own = service.own
    return Needed(
        settings.cosmos_container,
        "COSMOS_CONTAINER",
        service.paths,
        ttl_needed=True,
        items_say_their_ttl=own is None,
        queried=("/type", "/data/deleted") if own is None else _queried_beside_events(service),
        own=own,
    )


def _queried_beside_events(service: Service) -> tuple[str, ...]:
    found = [
        path
        for each in service.subscribers
        if each.form is not None and each.documents is not None
        for path in (each.documents.id, *each.documents.where)
        if path != "/id"
    ]
    return tuple(dict.fromkeys(("/type", "/aggregateType", "/aggregateId", *found)))


def _subscriber(settings: Settings, of: Subscriber) -> Needed:
    return _kept(settings.name(of.container), of.container.setting, of.form)


def _kept(container: str, setting: str, form: EntryForm[Any] | None) -> Needed:
    """The container of a subscriber: by what it is queried follows from its form; None: it has effects."""
    if form is None:
        queried: tuple[str, ...] = (
            "/subscriber",
            "/waiting",
            "/holds",
            "/place",
            "/state",
            "/at",
            "/effectId",
        )
        composite: tuple[tuple[str, ...], ...] = ()
    else:
        queried = ("/deleted", *(f"/search/{name}" for name in form.search))
        composite = tuple((f"/search/{name}", "/id") for name in form.sorted_by)
    return Needed(
        container,
        setting,
        PARTITION_KEY,
        ttl_needed=True,
        items_say_their_ttl=True,
        queried=queried,
        composite=composite,
    )


def consistency(level: str | None) -> Finding:
    """Whether a read can be made as new as a write was: all that is concluded from a read behind a fence needs it."""
    if level is None:
        return unknown(
            "account",
            "its default consistency is not known: its answer does not tell it",
            "look in the portal that it is Session",
        )
    if level in _STRONG_ENOUGH:
        return ok("account", f"default consistency {level}")
    return wrong(
        "account",
        f"its default consistency is {level}, for which the SDK sends no session tokens: an old read shows that "
        "nothing is parked, and a later event overtakes the parked one",
        "set the account's default consistency to Session",
    )


def write_regions(account: Account) -> Finding:
    """Whether one region decides what is committed: ETags, sequences and leases need it."""
    if not account.writes_in_several_regions:
        return ok("account", "takes writes in one region")
    return wrong(
        "account",
        "it takes writes in several regions, and the last writer wins: changes overwrite one another in silence, "
        "sequences are given twice, and a lease has two owners",
        "turn multi-region writes off; read regions and a failover between them are no problem "
        "(docs/operate/regions.md)",
    )


def judge(need: Needed, state: ContainerState | None, database: str) -> Iterator[Finding]:
    """Whether a container (None: the container does not exist) has the properties that the app needs."""
    if state is None:
        yield wrong(
            need.subject,
            f'does not exist in the database "{database}"',
            f"create it with the partition key {_written_paths(need.paths.paths)}"
            f"{' and the default TTL -1' if need.ttl_needed else ''}, or name another in {need.setting}; "
            "the app has no right to create a container",
        )
        return
    yield _partition_key(need, state)
    yield _ttl(need, state)
    yield _index(need, state)


def _partition_key(need: Needed, state: ContainerState) -> Finding:
    wanted = _written_paths(need.paths.paths)
    if state.partition_key == need.paths.paths:
        return ok(need.subject, f"partition key {wanted}")
    problem = f"the partition key is {_written_paths(state.partition_key) or 'missing'}, not {wanted}"
    if need.own is not None:
        return wrong(
            need.subject, problem, "name the container's paths in the service's OwnContainer, in their order"
        )
    return wrong(
        need.subject,
        problem,
        f"a partition key cannot be changed: create another container with {wanted} "
        f"and name it in {need.setting}",
    )


def _written_paths(paths: tuple[str, ...]) -> str:
    return ", ".join(paths)


def _ttl(need: Needed, state: ContainerState) -> Finding:
    ttl = state.default_ttl
    if ttl is None and need.ttl_needed:
        return wrong(
            need.subject,
            "TTL is off, so the TTL of its items is ignored and the items are kept for ever",
            "set the container's default TTL to -1",
        )
    if ttl is None:
        # The processor's own words: azure-cosmos-dotnet-v3, DocumentServiceLeaseStore.AcquireInitializationLockAsync
        return warning(
            need.subject,
            "TTL is off, so the lock of an instance that crashes while it makes the first leases stays for ever",
            "set the container's default TTL to -1",
        )
    if need.own is not None:
        return _own_ttl(need.subject, ttl, need.own.default_ttl)
    if ttl == -1:
        return ok(need.subject, "an item expires only by a TTL of its own")
    text = (
        f"an item without a TTL of its own is removed {written(timedelta(seconds=ttl))} after it was written"
    )
    if need.items_say_their_ttl:
        return warning(need.subject, text, "set the default TTL to -1: the app gives each of its items a TTL")
    return wrong(need.subject, f"{text}, and the app writes such items here", "set the default TTL to -1")


def _own_ttl(subject: str, ttl: int, declared: int) -> Finding:
    """A container of a team's own: the app gives each event a TTL, and the team's documents are its own affair."""
    if ttl != declared:
        return wrong(
            subject,
            f"the default TTL is {ttl}, and the service's OwnContainer says {declared}: the emergency brake would give "
            "the container that one when it is released",
            f"name default_ttl={ttl} in the OwnContainer, or change the container",
        )
    return ok(subject, f"TTL is on, and events expire by their own; the default is {ttl}")


def _index(need: Needed, state: ContainerState) -> Finding:
    if not state.indexing.enabled:
        return wrong(
            need.subject,
            "nothing is indexed, so queries are refused",
            "set the indexing mode to consistent",
        )
    missing = [f"{path}/?" for path in need.queried if not covers(state.indexing, path)]
    if missing:
        return wrong(
            need.subject,
            f"{', '.join(missing)} is queried and not indexed, so each query reads the whole container",
            f"include {', '.join(missing)} in the indexing policy",
        )
    paths = ", ".join(f"{path}/?" for path in need.queried) or "nothing but the id"
    lacking = [", ".join(paths) for paths in need.composite if paths not in state.indexing.composite]
    if lacking:
        return wrong(
            need.subject,
            f"no composite index over {'; '.join(lacking)}, so lists sorted by these are refused",
            "add the composite indexes, ascending, to the indexing policy",
        )
    if covers_everything(state.indexing) and need.own is None:
        return warning(
            need.subject,
            f"everything is indexed, and queried is {paths}: each write pays for the rest",
            f'exclude "/*" and include {paths}' if need.queried else 'exclude "/*"',
        )
    return ok(need.subject, f"indexed: {paths}")


def clock(ahead: timedelta | None) -> Iterator[Finding]:
    """Whether this machine's clock and the account's agree."""
    if ahead is None:
        return
    direction = "behind" if ahead > timedelta() else "ahead of"
    if abs(ahead) <= CLOCK_TOLERANCE:
        yield ok("clock", f"this machine's clock is within {written(CLOCK_TOLERANCE)} of the account's")
    else:
        off = written(timedelta(minutes=round(abs(ahead) / timedelta(minutes=1))))
        yield wrong(
            "clock",
            f"this machine's clock is {off} {direction} the account's: signatures and tokens will be refused",
            "set this machine's clock; for a container, the clock of its host",
        )

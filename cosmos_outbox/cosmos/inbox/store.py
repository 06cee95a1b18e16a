"""Declares a database of the subscriber's own account as its store: a container for each read model and each effect.

The names are this team's: the container of a read model or an effect has its name, unless ``<NAME>_CONTAINER`` is set.
Messages that could not be applied are in one more container.
"""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import field
from functools import cache
from typing import TypeVar

from pydantic import BaseModel

from cosmos_outbox.cosmos.inbox.entries import CosmosEntries
from cosmos_outbox.cosmos.inbox.listing import CosmosItems, token_key
from cosmos_outbox.cosmos.inbox.records import CosmosEffects, CosmosSetAside
from cosmos_outbox.cosmos.store.client import cosmos_client
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.inbox.entry import EntrySchema
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.lists.listing import Listing
from cosmos_outbox.settings.connections import Connection, connected, resolve
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.names import Named, named_after

S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True)
class CosmosDatabase:
    """A database in the account that ``COSMOS`` or ``COSMOS__accountEndpoint`` names: ``CosmosDatabase("mailing")``."""

    name: str | None = None
    """The database's name; ``COSMOS_DATABASE`` overrides it."""
    set_aside: str | None = None
    """The container of messages that could not be applied; ``COSMOS_SET_ASIDE_CONTAINER`` overrides it."""

    def open(self, environment: Mapping[str, str], resources: AsyncExitStack) -> "CosmosStore":
        """Returns the store. Opens no connection. Raises Misconfigured, naming the setting that is missing or wrong."""
        names = self.names(environment)
        client = connected(resources, names.connection, ("COSMOS", "Cosmos DB"), cosmos_client)
        return CosmosStore(names, cache(lambda name: Container(client, names.database, name)))

    def names(self, environment: Mapping[str, str]) -> "CosmosNames":
        """Returns the store's names. Raises Misconfigured."""
        return CosmosNames(
            resolve(environment, "COSMOS", "accountEndpoint"),
            Named("COSMOS_DATABASE", self.name).resolve(environment),
            Named("COSMOS_SET_ASIDE_CONTAINER", self.set_aside).resolve(environment),
            lambda name: named_after(name, "CONTAINER").resolve(environment),
        )


@dataclass(frozen=True)
class CosmosNames:
    """The location of a subscriber's store, and the names of its containers."""

    connection: Connection
    database: str
    set_aside: str
    container: Callable[[str], str] = field(repr=False)
    """The container of the read model or effect of this name."""

    def scope(self, container: str) -> str:
        """Returns a container's name in tokens."""
        return f"{self.connection.address}/{self.database}/{container}"


@dataclass(frozen=True)
class CosmosStore:
    """See :class:`cosmos_outbox.composition.declarations.Store`."""

    names: CosmosNames
    container: Callable[[str], Container]
    """Returns a container of the database by its name; the same object for the same name."""
    _taken: dict[str, str] = field(default_factory=dict, repr=False)
    """By container, the read model that uses it, or effects."""

    def entries(self, name: str, form: EntrySchema[S], deleted_ttl_seconds: int | None) -> CosmosEntries[S]:
        """Returns the entries of one read model, which shares its container with no other. Raises Misconfigured."""
        self._take(name, name)
        return CosmosEntries(self._of(name), form, deleted_ttl_seconds)

    def listing(self, name: str, form: EntrySchema[S]) -> Listing[S]:
        """Returns the list of one read model."""
        container = self._of(name)
        scope = self.names.scope(self.names.container(name))
        return Listing(CosmosItems(container), form, scope, token_key(container))

    def set_aside(self, subscription: str, closed_ttl_seconds: int) -> CosmosSetAside:
        """Returns the records of one subscription that are set aside."""
        container = self.names.set_aside
        scope = f"{self.names.scope(container)}/{subscription}"
        return CosmosSetAside(
            self.container(container), subscription, scope, closed_ttl_seconds=closed_ttl_seconds
        )

    def effects(self, name: str, subscription: str, ttl_seconds: int) -> CosmosEffects:
        """Returns the records of one subscriber's effects; several may share a container. Raises Misconfigured."""
        self._take(name, "effects")
        return CosmosEffects(self._of(name), subscription, ttl_seconds)

    async def check(self) -> None:
        """Returns if the store answers. Raises Unavailable, Throttled or Misconfigured."""
        await self.container(self.names.set_aside).check()

    def _take(self, name: str, what: str) -> None:
        container = self.names.container(name)
        if container == self.names.set_aside or self._taken.setdefault(container, what) != what:
            raise Misconfigured(
                f"container {container} is to hold {name} and something else: each read model needs a container of its "
                f"own, set {named_after(name, 'CONTAINER').setting}"
            )

    def _of(self, name: str) -> Container:
        return self.container(self.names.container(name))

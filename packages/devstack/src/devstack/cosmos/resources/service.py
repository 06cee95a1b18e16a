"""What every operation needs of the running server, handed to it rather than found by it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from devstack.cosmos.protocol.errors import CONTAINER_RECREATED, CosmosError, no_such_owner
from devstack.cosmos.storage.catalogue import Catalogue
from devstack.cosmos.storage.history import History
from devstack.cosmos.storage.model import Container
from devstack.cosmos.storage.store import Store
from devstack.cosmos.wire.messages import Request


@dataclass(frozen=True)
class Options:
    """What the command line decides.

    ``partitions``: of each new container; None: by its throughput. ``faults``: whether there are administrative calls.
    ``ru_budget``: RU a second for all items together; None: no end of them.
    """

    partitions: int | None = None
    faults: bool = False
    ru_budget: float | None = None


@dataclass
class Service:
    """``endpoint`` is the address that the account's document gives to clients; ``history`` is there with faults."""

    store: Store
    catalogue: Catalogue
    options: Options = field(default_factory=Options)
    endpoint: str = ""
    clock: Callable[[], float] = time.time
    history: History | None = None
    multiple_writes: bool = False
    """What the account's document says of its regions; nothing else follows from it."""

    def now(self) -> int:
        """The whole second that ``_ts`` and TTL count in."""
        return int(self.clock())

    def container(self, request: Request) -> Container:
        """The container that owns the request's items. Raises 404/1003, or 400/1024 when it was made anew."""
        try:
            found = self.catalogue.container(request.target.database, request.target.container)
        except CosmosError as error:
            raise no_such_owner() from error
        intended = request.headers.get("x-ms-cosmos-intended-collection-rid")
        if intended and intended != found.rid:
            raise CosmosError(
                CONTAINER_RECREATED,
                "The container was deleted and created again: its _rid is another one now.",
            )
        return found

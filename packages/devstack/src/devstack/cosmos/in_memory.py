"""The same service without a socket, a file or a clock of its own: who asks carries the requests to it.

What it answers depends on the requests, on the clock and on the ``random.Random`` that it is given, and on nothing
else: the same three give the same ETags, ids, orders and answers. A query that asks for the time is the exception.
"""

import contextlib
import json
import random
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import aiohttp
from multidict import CIMultiDict

from devstack.cosmos.dispatch import Dispatcher
from devstack.cosmos.resources import partitions
from devstack.cosmos.resources.service import Options, Service
from devstack.cosmos.storage import ttl
from devstack.cosmos.storage.catalogue import Catalogue
from devstack.cosmos.storage.documents import COLUMNS, StoredItem
from devstack.cosmos.storage.history import KEPT_SECONDS, History
from devstack.cosmos.storage.schema import FORMAT
from devstack.cosmos.storage.store import Store
from devstack.cosmos.wire.auth import Authorizer
from devstack.cosmos.wire.faults import Fault, Faults
from devstack.cosmos.wire.messages import Answer, http_date
from devstack.http_in_memory import MemorySession, SentRequest, StoreResponse
from devstack.sqlite_file import in_memory as database_in_memory

__all__ = ["Answer", "CosmosInMemory", "Fault", "in_memory"]


class CosmosInMemory:
    """One account. Made by :func:`in_memory`."""

    def __init__(self, service: Service, faults: Faults, dates_matter: bool) -> None:
        self._service = service
        self._dispatcher = Dispatcher(
            service, Authorizer(clock=service.clock if dates_matter else None), faults
        )
        self.faults = faults
        """What shall happen to requests: a fault that is added here meets the next one that matches."""

    def serve(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[Answer, dict[str, str]]:
        """The answer to a request, and its headers as they would be sent. Never raises. ``path`` is encoded.

        ``headers`` must find a name in any case. An answer that is ``dropped`` is one that the client must not get.
        """
        answer = self._dispatcher.serve(method, path, headers, body)
        now = self._service.clock()
        return answer, {**answer.sent(now), "Date": http_date(int(now))}

    def session(self) -> aiohttp.ClientSession:
        """What a client of the SDK sends its requests with, each answered at once."""

        async def send(request: SentRequest) -> StoreResponse:
            answer, headers = self.serve(request.method, request.path, request.headers, request.body)
            if answer.dropped:
                raise aiohttp.ServerDisconnectedError
            return StoreResponse(answer.status, CIMultiDict(headers), (answer.body or "").encode())

        return cast(aiohttp.ClientSession, MemorySession(send))

    def items(self, database: str, container: str, *, expired: bool = False) -> list[dict[str, Any]]:
        """All items as clients see them, in the order in which they were created. Raises CosmosError.

        ``expired``: also those that have expired and are not purged.
        """
        found = self._service.catalogue.container(database, container)
        seen = "" if expired else "WHERE expires IS NULL OR expires >= ?"
        rows = self._service.store.connection.execute(
            f"SELECT {COLUMNS} FROM {found.items} {seen} ORDER BY number",
            () if expired else (self._service.now(),),
        )
        return [json.loads(StoredItem.from_row(row).rendered(found)) for row in rows]

    @property
    def is_empty(self) -> bool:
        """Whether it has no database."""
        return not self._service.catalogue.databases()

    def content(self) -> bytes:
        """All that the account has, for others that :meth:`begin_with` it."""
        return self._service.store.connection.serialize()

    def begin_with(self, content: bytes) -> None:
        """Have all that another account had. Raises ValueError: this one has a database already."""
        if not self.is_empty:
            raise ValueError("the account has a database: only an empty one begins with what another had")
        with contextlib.closing(sqlite3.connect(":memory:")) as other:
            other.deserialize(content)
            other.backup(self._service.store.connection)
        self._service.catalogue.reload()

    def partitions(self, database: str, container: str) -> list[int]:
        """The ids of the container's physical partitions. Raises CosmosError."""
        return [part.id for part in self._service.catalogue.container(database, container).ranges]

    def split(self, database: str, container: str, partition: int) -> None:
        """Cut a physical partition in two. Raises CosmosError."""
        found = self._service.catalogue.container(database, container)
        partitions.split(self._service, found, partition)

    def purge(self) -> None:
        """Remove the rows of what has expired, which no request sees; replicas that lag may see them a while yet."""
        history = self._service.history
        assert history is not None
        history.forget()
        for container in list(self._service.catalogue.all_containers()):
            if container.default_ttl is not None:
                ttl.purge(self._service.store.connection, container, self._service.now() - KEPT_SECONDS)


@contextlib.contextmanager
def in_memory(
    *,
    clock: Callable[[], float],
    chance: random.Random,
    endpoint: str = "https://cosmos.invalid/",
    partitions: int | None = None,
    dates_matter: bool = True,
) -> Iterator[CosmosInMemory]:
    """An empty account, gone when the block ends. ``clock``: Unix time; ``endpoint``: its address, for clients.

    ``dates_matter``: whether a request is refused whose date is far from ``clock``: clients have a clock of their own.
    """
    with database_in_memory(FORMAT) as connection:
        store = Store(connection, chance)
        history = History(connection, clock)
        service = Service(
            store, Catalogue(store, history), Options(partitions, faults=True), endpoint, clock, history
        )
        yield CosmosInMemory(service, Faults(clock, chance), dates_matter)

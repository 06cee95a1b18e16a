"""Which databases, containers and physical partitions exist: read from SQLite once, read again after every change."""

import json
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from devstack.cosmos.protocol.errors import (
    CosmosError,
    conflict,
    no_such_owner,
    no_such_resource,
    precondition_failed,
)
from devstack.cosmos.storage.epk import boundaries
from devstack.cosmos.storage.etag import matches, new_etag
from devstack.cosmos.storage.history import History
from devstack.cosmos.storage.model import Container, Database, PartitionKeyDefinition, Range
from devstack.cosmos.storage.partition_key import parse_definition
from devstack.cosmos.storage.rid import new_container_rid, new_database_rid
from devstack.cosmos.storage.schema import items_table
from devstack.cosmos.storage.store import Store


class Catalogue:
    """Names to resources. A resource is found by its name or by its ``_rid``, as links may carry either."""

    def __init__(self, store: Store, history: History | None = None) -> None:
        self._store = store
        self._history = history
        self._databases: dict[str, Database] = {}
        self._containers: dict[tuple[str, str], Container] = {}
        self.reload()

    def reload(self) -> None:
        run = self._store.connection.execute
        databases = [Database(*row) for row in run("SELECT number, id, rid, etag, timestamp FROM databases")]
        self._databases = {database.id: database for database in databases}
        by_number = {database.number: database for database in databases}
        self._containers = {}
        for row in run(
            "SELECT database, number, id, rid, etag, timestamp, properties, ranges_version FROM containers"
            " ORDER BY number"
        ):
            container = self._container(by_number[row[0]], row[1:])
            self._containers[container.database.id, container.id] = container
        if self._history:
            self._history.watch(self._containers.values())

    def _container(self, database: Database, row: tuple[Any, ...]) -> Container:
        number, name, rid, etag, timestamp, properties, version = row
        settings = json.loads(properties)
        ranges = self._store.connection.execute(
            "SELECT id, minimum, maximum, parents FROM ranges WHERE container = ? AND online ORDER BY minimum",
            (number,),
        )
        return Container(
            number,
            database,
            name,
            rid,
            etag,
            timestamp,
            settings,
            parse_definition(settings),
            tuple(Range(part[0], part[1], part[2], tuple(json.loads(part[3]))) for part in ranges),
            version,
        )

    # -- reading

    def databases(self) -> list[Database]:
        return sorted(self._databases.values(), key=lambda database: database.number)

    def database(self, name: str) -> Database:
        """Raises 404."""
        found = self._databases.get(name) or next(
            (d for d in self._databases.values() if d.rid == name), None
        )
        if found is None:
            raise no_such_resource()
        return found

    def containers(self, database: Database) -> list[Container]:
        return [container for container in self._containers.values() if container.database.id == database.id]

    def all_containers(self) -> Iterable[Container]:
        return self._containers.values()

    def container_by_rid(self, rid: str) -> Container | None:
        return next((container for container in self._containers.values() if container.rid == rid), None)

    def container(self, database_name: str, name: str) -> Container:
        """Raises 404, with the sub-status of a missing owner when it is the database that is missing."""
        found = self._containers.get((database_name, name))
        if found is not None:
            return found
        try:
            database = self.database(database_name)
        except CosmosError as error:
            raise no_such_owner() from error
        for container in self.containers(database):
            if name in (container.id, container.rid):
                return container
        raise no_such_resource()

    # -- changing; the caller's transaction is open, and the caller reloads after it committed

    def add_database(self, run: sqlite3.Connection, name: str, timestamp: int) -> str:
        """Returns the new ``_rid``. Raises 409."""
        rid = new_database_rid(self._store.chance)
        try:
            run.execute(
                "INSERT INTO databases (id, rid, etag, timestamp) VALUES (?, ?, ?, ?)",
                (name, rid, new_etag(self._store.chance), timestamp),
            )
        except sqlite3.IntegrityError as error:
            raise conflict() from error
        return rid

    def remove_database(self, run: sqlite3.Connection, database: Database, if_match: str | None) -> None:
        _check(database.etag, if_match)
        for container in self.containers(database):
            self.remove_container(run, container, None)
        run.execute("DELETE FROM offers WHERE resource_rid = ?", (database.rid,))
        run.execute("DELETE FROM databases WHERE number = ?", (database.number,))

    def add_container(  # noqa: PLR0913 - what a container is made of
        self,
        run: sqlite3.Connection,
        database: Database,
        name: str,
        properties: Mapping[str, Any],
        *,
        key: PartitionKeyDefinition,
        partitions: int,
        timestamp: int,
    ) -> str:
        """Returns the new ``_rid``. Raises 409."""
        rid = new_container_rid(database.rid, self._store.chance)
        try:
            number = run.execute(
                "INSERT INTO containers (database, id, rid, etag, timestamp, properties) VALUES (?, ?, ?, ?, ?, ?)",
                (database.number, name, rid, new_etag(self._store.chance), timestamp, json.dumps(properties)),
            ).lastrowid
        except sqlite3.IntegrityError as error:
            raise conflict() from error
        edges = boundaries(partitions, kind=key.kind, version=key.version)
        run.executemany(
            "INSERT INTO ranges (container, id, minimum, maximum, parents, lsn, online, version)"
            " VALUES (?, ?, ?, ?, '[]', 1, 1, 1)",
            [(number, i, edges[i], edges[i + 1]) for i in range(partitions)],
        )
        for statement in items_table(f"items_{number}"):
            run.execute(statement)
        return rid

    def change_container(
        self,
        run: sqlite3.Connection,
        container: Container,
        properties: Mapping[str, Any],
        *,
        if_match: str | None,
        timestamp: int,
    ) -> None:
        _check(container.etag, if_match)
        run.execute(
            "UPDATE containers SET properties = ?, etag = ?, timestamp = ? WHERE number = ?",
            (json.dumps(properties), new_etag(self._store.chance), timestamp, container.number),
        )

    def remove_container(self, run: sqlite3.Connection, container: Container, if_match: str | None) -> None:
        _check(container.etag, if_match)
        run.execute("DELETE FROM offers WHERE resource_rid = ?", (container.rid,))
        run.execute("DELETE FROM containers WHERE number = ?", (container.number,))
        run.execute(f"DROP TABLE {container.items}")


def _check(etag: str, if_match: str | None) -> None:
    if if_match is not None and not matches(if_match, etag):
        raise precondition_failed()

"""One file, one connection, one thread: a call is one transaction, on disk when it returns.

A call that is cancelled may have taken place, as an answer of a remote store may be lost; every write names the version
that it replaces, so the caller finds out. Several processes may use the file; each waits for the others.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import TypeVar

from cosmos_outbox.inbox.errors import StoreAway

T = TypeVar("T")

BUSY_SECONDS = 5.0
"""How long a call waits for another process."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    name TEXT NOT NULL, id TEXT NOT NULL, aggregate_type TEXT NOT NULL, version TEXT NOT NULL,
    last_sequence INTEGER NOT NULL, last_event_id TEXT, healed INTEGER NOT NULL,
    form INTEGER NOT NULL, state TEXT, search TEXT NOT NULL,
    applied_at TEXT NOT NULL, late_seconds REAL, blocked_since TEXT, expires_at TEXT,
    PRIMARY KEY (name, id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entries_that_expire ON entries (name, expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE IF NOT EXISTS records (
    subscription TEXT NOT NULL, id TEXT NOT NULL, version TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL,
    set_aside_at TEXT NOT NULL, tried INTEGER NOT NULL, attempts INTEGER NOT NULL, message_id TEXT NOT NULL,
    enqueued_number INTEGER NOT NULL, event_id TEXT, aggregate_type TEXT, aggregate_id TEXT, action TEXT,
    sequence INTEGER, body BLOB, properties TEXT, expires_at TEXT,
    PRIMARY KEY (subscription, id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS records_by_state ON records (subscription, state, aggregate_id);
CREATE INDEX IF NOT EXISTS records_as_tried ON records (subscription, tried);
CREATE INDEX IF NOT EXISTS records_that_expire ON records (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE IF NOT EXISTS effects (
    subscriber TEXT NOT NULL, event_id TEXT NOT NULL, state TEXT NOT NULL, at TEXT NOT NULL, call TEXT NOT NULL,
    version TEXT NOT NULL, expires_at TEXT NOT NULL, PRIMARY KEY (subscriber, event_id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS effects_that_expire ON effects (expires_at);
CREATE TABLE IF NOT EXISTS keys (name TEXT NOT NULL PRIMARY KEY, key TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS progress (
    name TEXT NOT NULL PRIMARY KEY, version TEXT NOT NULL, saved_at TEXT NOT NULL, document TEXT NOT NULL
    ) WITHOUT ROWID;
"""


class Database:
    """The file, opened when it is first used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite")
        self._connection: sqlite3.Connection | None = None

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do it in one transaction, which is rolled back if it raises. Raises StoreAway, and what the work raises."""
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, copy_context().run, self._transaction, work
        )

    async def check(self) -> None:
        """Returns if the file can be used. Raises StoreAway."""
        await self.run(lambda connection: connection.execute("SELECT 1 FROM entries LIMIT 1").fetchone())

    async def close(self) -> None:
        """Close the file; it is opened again by the next use."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._closed)

    def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            connection = self._opened()
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):  # it may be rolled back already
                    connection.execute("ROLLBACK")
                raise
        except (sqlite3.Error, OSError) as error:
            raise StoreAway(f"{self.path.name} cannot be used: {error}") from error
        return result

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
            try:
                connection.row_factory = sqlite3.Row
                connection.execute("PRAGMA journal_mode=WAL")
                # A message is completed only after what it did is on disk.
                connection.execute("PRAGMA synchronous=FULL")
                # What is erased is overwritten: a deleted person's name is not left in a free page.
                connection.execute("PRAGMA secure_delete=ON")
                connection.executescript(_SCHEMA)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _closed(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

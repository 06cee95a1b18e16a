"""A request that writes is one SQLite transaction, committed before its answer.

SQLite is called on the event loop, statement by statement: nothing else can run in between, which is what makes a
request atomic to the others.
"""

import contextlib
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from devstack.cosmos.storage.schema import FORMAT
from devstack.sqlite_file import opened

_PAGE_CACHE_KIB = 8192


class Store:
    """The database of one server, open for it alone."""

    def __init__(self, connection: sqlite3.Connection, chance: random.Random | None = None) -> None:
        """``chance`` draws ETags, resource ids and the order within a transaction; None: the operating system does."""
        self.connection = connection
        self.chance = chance or random.SystemRandom()
        self.connection.execute("PRAGMA temp_store=MEMORY")
        self.connection.execute(f"PRAGMA cache_size=-{_PAGE_CACHE_KIB}")

    @classmethod
    @contextlib.contextmanager
    def opened(cls, folder: Path) -> Iterator[Self]:
        """The store in ``folder``. Raises CannotStart."""
        with opened(folder, FORMAT) as connection:
            yield cls(connection)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing: an exception inside rolls everything back and goes on to the caller."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield self.connection
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

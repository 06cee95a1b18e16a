"""What was acknowledged is on disk: a request that writes is one SQLite transaction, committed before its answer.

The journal is a write-ahead log with ``synchronous=NORMAL``: a commit is handed to the operating system, so SIGKILL
loses nothing; only a crash of the machine itself may lose the last commits, never part of one. SQLite is called on
the event loop, statement by statement: nothing else can run in between, which is what makes a request atomic to the
others.
"""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from devstack.cosmos.storage.schema import APPLICATION_ID, FORMAT, TABLES
from devstack.service import CannotStart

FILE_NAME = "cosmos.db"
_PAGE_CACHE_KIB = 8192


class Store:
    """The database file of one server, open for it alone."""

    def __init__(self, folder: Path) -> None:
        """Open or make the file. Raises CannotStart for a file that is damaged or not ours; it is left as it is."""
        self.path = folder / FILE_NAME
        self.connection = sqlite3.connect(self.path, isolation_level=None, cached_statements=1024)
        try:
            self._check_and_configure()
        except sqlite3.DatabaseError as error:
            self.close()
            raise CannotStart(
                f"cosmos: the data file {self.path} is damaged or not a database ({error}); "
                "nothing was changed: move it away, or use another data folder"
            ) from error
        except CannotStart:
            self.close()
            raise

    def _check_and_configure(self) -> None:
        run = self.connection.execute
        # A file without a table is new, or was being made when the process was killed.
        if run("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            self._check()
        else:
            run("PRAGMA journal_mode=WAL")
            run(f"PRAGMA application_id={APPLICATION_ID}")
            self.connection.executescript(f"BEGIN; {TABLES} PRAGMA user_version={FORMAT}; COMMIT;")
        run("PRAGMA synchronous=NORMAL")
        run("PRAGMA foreign_keys=ON")
        run("PRAGMA temp_store=MEMORY")
        run(f"PRAGMA cache_size=-{_PAGE_CACHE_KIB}")

    def _check(self) -> None:
        run = self.connection.execute
        ours = run("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        if not ours or run("PRAGMA user_version").fetchone()[0] != FORMAT:
            raise CannotStart(
                f"cosmos: the data file {self.path} was not written by this version of devstack; "
                "move it away, or use another data folder"
            )
        problem = run("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise sqlite3.DatabaseError(problem)

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

    def close(self) -> None:
        self.connection.close()

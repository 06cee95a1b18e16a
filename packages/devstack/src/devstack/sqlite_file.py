"""What was acknowledged is on disk: one way to open a data file, used by every service that keeps data.

The folder belongs to one process while the file is open. The journal is a write-ahead log with ``synchronous=NORMAL``:
a commit is handed to the operating system, so SIGKILL loses nothing; only a crash of the machine itself may lose the
last commits, never part of one. A file that is damaged, of another program or of another format is refused with one
line, and left as it is. Tests set ``DEVSTACK_NO_FSYNC``: their data need not outlive the machine, and a disk that
others keep busy would else stop a server for seconds.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from devstack.service import CannotStart, locked_folder


@dataclass(frozen=True)
class Format:
    """What a service's file holds. ``tables`` makes it; ``version`` grows when it changes."""

    service: str
    file_name: str
    application_id: int
    """Distinguishes the file from any other SQLite file."""
    version: int
    tables: str
    known_by: str = ""
    """A table by which a file of ours is known that was made before files were marked with ``application_id``."""

    def refusal(self, path: Path, problem: str) -> CannotStart:
        return CannotStart(
            f"{self.service}: the data file {path} {problem}; nothing was changed: move it away, "
            "or use another data folder"
        )


@contextlib.contextmanager
def opened(folder: Path, form: Format) -> Iterator[sqlite3.Connection]:
    """The file in ``folder``, made when it is not there; nobody else can open it as long. Raises CannotStart."""
    with locked_folder(form.service, folder):
        path = folder / form.file_name
        connection = sqlite3.connect(path, isolation_level=None, cached_statements=1024)
        try:
            _prepare(connection, path, form)
            yield connection
        finally:
            connection.close()


@contextlib.contextmanager
def in_memory(form: Format) -> Iterator[sqlite3.Connection]:
    """The same tables without a file: all is gone when the block ends."""
    connection = sqlite3.connect(":memory:", isolation_level=None, cached_statements=1024)
    try:
        connection.executescript(form.tables)
        connection.execute("PRAGMA foreign_keys=ON")
        yield connection
    finally:
        connection.close()


def _prepare(connection: sqlite3.Connection, path: Path, form: Format) -> None:
    run = connection.execute
    try:
        run(f"PRAGMA synchronous={'OFF' if os.environ.get('DEVSTACK_NO_FSYNC') else 'NORMAL'}")
        # A file without a table is new, or was being made when the process was killed.
        if run("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            _check(connection, path, form)
        else:
            run("PRAGMA journal_mode=WAL")
            connection.executescript(f"BEGIN; {form.tables} PRAGMA user_version={form.version}; COMMIT;")
        run(f"PRAGMA application_id={form.application_id}")
        run("PRAGMA foreign_keys=ON")
    except sqlite3.DatabaseError as error:
        raise form.refusal(path, f"is damaged or not a database ({error})") from error


def _check(connection: sqlite3.Connection, path: Path, form: Format) -> None:
    """Raises CannotStart for a file of somebody else or of another version, DatabaseError for a damaged one."""
    run = connection.execute
    mark = run("PRAGMA application_id").fetchone()[0]
    tables = {name for (name,) in run("SELECT name FROM sqlite_master WHERE type = 'table'")}
    is_ours = mark == form.application_id or (mark == 0 and form.known_by in tables)
    if not is_ours or run("PRAGMA user_version").fetchone()[0] != form.version:
        raise form.refusal(path, "was not written by this version of devstack")
    problem = run("PRAGMA quick_check(1)").fetchone()[0]
    if problem != "ok":
        raise sqlite3.DatabaseError(problem)

"""What items were before, so that a read can be answered as a replica would that lags: one prefix of all transactions.

Kept with ``--faults`` only, in SQLite's temporary tables: they follow each transaction, its rollback too, and are gone
with the process. A replica of a physical partition is a transaction that it has applied as its last, with all before
it and none after it, so the writes of one transaction are seen together or not at all. Its clock stands where it
stopped: what expired later than that is still there. All that was before a split is known to every replica of the
children.
"""

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from devstack.cosmos.storage.model import Container, Range
from devstack.cosmos.storage.session import current_lsn

KEPT_SECONDS = 600
"""No replica is further behind, as no fault asks for more."""

_COLUMNS = "number, range, epk, pk, id, lsn, shuffle, timestamp, etag, expires, body"

_TABLES = """
CREATE TEMP TABLE commits (
    container INTEGER, range INTEGER, lsn INTEGER, at REAL, PRIMARY KEY (container, range, lsn)
) WITHOUT ROWID;
CREATE TEMP TRIGGER keep_commit AFTER UPDATE OF lsn ON main.ranges BEGIN
    INSERT INTO commits VALUES (NEW.container, NEW.id, NEW.lsn, devstack_clock());
END;
CREATE TEMP TABLE old_items (
    container INTEGER, replaced INTEGER, at REAL, number INTEGER, range INTEGER, epk TEXT, pk TEXT, id TEXT,
    lsn INTEGER, shuffle INTEGER, timestamp INTEGER, etag TEXT, expires INTEGER, body TEXT
);
CREATE INDEX temp.old_items_scan ON old_items (container, range, replaced);
"""
"""``replaced`` is the LSN of the transaction that replaced or deleted the version."""


@dataclass(frozen=True)
class Replica:
    """One physical partition as it was after the transaction ``lsn``, at the second ``now``."""

    part: Range
    lsn: int
    now: int


class History:
    """The transactions of the last ``KEPT_SECONDS`` and what they replaced."""

    def __init__(self, run: sqlite3.Connection, clock: Callable[[], float]) -> None:
        self._run = run
        self._clock = clock
        self._watched: set[int] = set()
        run.create_function("devstack_clock", 0, clock)
        run.executescript(_TABLES)

    def watch(self, containers: Iterable[Container]) -> None:
        """From now on keep what is replaced in these; nothing was written to a new one before."""
        for container in containers:
            if container.number not in self._watched:
                self._watched.add(container.number)
                self._keep("UPDATE OF lsn", container, "NEW.lsn")
                last = f"(SELECT lsn FROM ranges WHERE container = {container.number} AND id = OLD.range)"
                self._keep("DELETE", container, last)

    def _keep(self, change: str, container: Container, replaced: str) -> None:
        name = f"keep_{change[:6].lower()}_{container.number}"
        old = ", ".join(f"OLD.{column}" for column in _COLUMNS.split(", "))
        # What a transaction wrote and replaced itself was never seen.
        self._run.execute(
            f"CREATE TEMP TRIGGER {name} AFTER {change} ON main.{container.items} WHEN OLD.lsn < {replaced} BEGIN"
            f" INSERT INTO old_items SELECT {container.number}, {replaced}, devstack_clock(), {old}; END"
        )

    def forget(self) -> None:
        """What is older than ``KEPT_SECONDS``."""
        for table in ("commits", "old_items"):
            self._run.execute(f"DELETE FROM {table} WHERE at < ?", (self._clock() - KEPT_SECONDS,))

    # -- reading

    def newest(self, container: Container, part: Range) -> Replica:
        """The replica that takes the writes."""
        return Replica(part, current_lsn(self._run, container, part), int(self._clock()))

    def behind_by_seconds(self, container: Container, part: Range, seconds: float, at_least: int) -> Replica:
        """As the partition was so long ago, but not before the transaction ``at_least``."""
        newest, then = self.newest(container, part), self._clock() - seconds
        missing = self._first(container, part, "at > ?", then)
        if missing is None or missing[0] > at_least:
            lsn = newest.lsn if missing is None else missing[0] - 1
            return Replica(part, lsn, int(max(then, self._time_of(container, part, lsn))))
        known = self._first(container, part, "lsn = ?", at_least)
        assert known is not None  # what came before it is kept
        return Replica(part, at_least, int(known[1]))

    def behind_by_versions(self, container: Container, part: Range, versions: int, at_least: int) -> Replica:
        """Without the last so many transactions, up to the first that it lacks; but not without ``at_least``."""
        newest = self.newest(container, part)
        missing = self._first(container, part, "lsn > ?", max(newest.lsn - versions, at_least))
        return newest if missing is None else Replica(part, missing[0] - 1, int(missing[1]))

    def _first(
        self, container: Container, part: Range, condition: str, value: float
    ) -> tuple[int, float] | None:
        """The first kept transaction of the partition for which the condition holds: its LSN and its time."""
        row: tuple[int, float] | None = self._run.execute(
            f"SELECT lsn, at FROM commits WHERE container = ? AND range = ? AND {condition} ORDER BY lsn LIMIT 1",
            (container.number, part.id, value),
        ).fetchone()
        return row

    def _time_of(self, container: Container, part: Range, lsn: int) -> float:
        """When the last transaction up to ``lsn`` was, before a split too; 0 for one that is no longer kept."""
        ranges = (part.id, *part.parents)
        at: float | None = self._run.execute(
            "SELECT max(at) FROM commits WHERE container = ? AND lsn <= ?"
            f" AND range IN ({', '.join('?' * len(ranges))})",
            (container.number, lsn, *ranges),
        ).fetchone()[0]
        return at or 0.0

    def rows(self, container: Container, replicas: Iterable[Replica]) -> str:
        """SQL for the items as these replicas have them, in place of the table's name.

        The clock of each is its own, so what has expired is left out here, and what is left never expires.
        """
        columns = _COLUMNS.replace("expires", "NULL AS expires")
        parts = [
            f"SELECT {columns} FROM {table} WHERE {condition} range = {replica.part.id} AND lsn <= {replica.lsn}"
            f" AND (expires IS NULL OR expires >= {replica.now})"
            for replica in replicas
            for table, condition in (
                (container.items, ""),
                ("old_items", f"container = {container.number} AND replaced > {replica.lsn} AND"),
            )
        ]
        return f"({' UNION ALL '.join(parts)})"

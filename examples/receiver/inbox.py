"""Each event is applied once, in its aggregate's order, in the transaction that remembers it.

A copy is known by its id, and a late one by its sequence. What comes too early is not taken: the sender tries it again.
In the place of an event that was given up comes a skip marker without its content: the aggregate is read at its source,
as it is where this receiver is younger than the aggregate, and never got its first events.
"""

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

SKIP_MARKER = "EventDiscarded"

KEPT_DAYS = 90
"""Longer than a sender may try: what is older cannot come again."""

_TABLES = """
CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY, at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE IF NOT EXISTS entry (
    type TEXT, id TEXT, sequence INTEGER NOT NULL, state TEXT NOT NULL, PRIMARY KEY (type, id)
);
"""


class Taken(Enum):
    """What became of an event."""

    APPLIED = "applied"
    KNOWN = "it was applied before, or a later one was"
    TOO_EARLY = "one before it is missing"
    UNREAD = "its source shows an older state"


@dataclass(frozen=True)
class CloudEvent:
    """What the receiver needs of an event."""

    id: str
    type: str
    aggregate: tuple[str, str]
    sequence: int | None
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Current:
    """An aggregate as its source shows it, in the receiver's own form, and its newest event."""

    sequence: int
    state: dict[str, Any]


ReadAgain = Callable[[str, str], Current | None]
"""By type and id, no older than the call; None: it is gone. If it raises, the sender tries the skip marker again."""


class Inbox:
    """The receiver's own data, and what it has got, in one file."""

    def __init__(self, file: Path, read_again: ReadAgain) -> None:
        self._file, self._read_again = file, read_again
        with closing(self._open()) as database, database:
            database.executescript(_TABLES)
            database.execute("DELETE FROM seen WHERE at < datetime('now', ?)", [f"-{KEPT_DAYS} days"])

    def take(self, event: CloudEvent) -> Taken:
        """Apply an event, and commit. Only then it may be answered with a 2xx."""
        reads = self.reads(event)
        current = self._read_again(*event.aggregate) if reads else None  # it may last: no lock is held
        with closing(self._open()) as database, database:
            database.execute("BEGIN IMMEDIATE")
            if database.execute("SELECT 1 FROM seen WHERE id = ?", [event.id]).fetchone():
                return Taken.KNOWN
            row = _row(database, *event.aggregate)
            last, state = (row[0], json.loads(row[1])) if row else (None, {})
            if state is None:  # it was gone
                return Taken.KNOWN
            if event.sequence is not None and last is not None:
                if event.sequence <= last:
                    return Taken.KNOWN
                if event.sequence > last + 1 and not reads:  # what was read has what is missing, too
                    return Taken.TOO_EARLY
            sequence = event.sequence or last or 0
            if not reads:
                state = changed(state, event)
            elif current is None:
                state = None
            elif current.sequence < sequence:
                return Taken.UNREAD
            else:
                sequence, state = current.sequence, replaced(state, event, current)
            database.execute("INSERT INTO seen (id) VALUES (?)", [event.id])
            database.execute(
                "INSERT OR REPLACE INTO entry (type, id, sequence, state) VALUES (?, ?, ?, ?)",
                [*event.aggregate, sequence, json.dumps(state)],
            )
        return Taken.APPLIED

    def reads(self, event: CloudEvent) -> bool:
        """Whether the aggregate is read at its source, since the event alone does not have its state."""
        if event.type == SKIP_MARKER:
            return True
        last, _ = self._row(*event.aggregate) or (0, "")
        return (event.sequence or 0) > 1 and last == 0

    def known(self) -> list[tuple[str, str]]:
        """Every aggregate that it has something of, by type and id."""
        with closing(self._open()) as database:
            return database.execute("SELECT type, id FROM entry ORDER BY type, id").fetchall()

    def read_anew(self, kind: str, name: str) -> bool:
        """Take an aggregate as its source shows it now, whatever was applied. Returns whether it is there.

        For a source that was put back to an earlier moment, whose sequences come again with other events. Nothing may
        be posted as long. Raises what the read raises; the aggregate is as it was then.
        """
        current = self._read_again(kind, name)
        with closing(self._open()) as database:
            # The ids that were seen stay: the source's state has those events, or they never come again.
            if current is None:
                database.execute("DELETE FROM entry WHERE type = ? AND id = ?", [kind, name])
            else:
                state = json.dumps({**current.state, "events": []})
                database.execute(
                    "UPDATE entry SET sequence = ?, state = ? WHERE type = ? AND id = ?",
                    [current.sequence, state, kind, name],
                )
        return current is not None

    def state(self, kind: str, name: str) -> dict[str, Any] | None:
        """The state of an aggregate, as its events have it; None: it is not known, or gone."""
        row = self._row(kind, name)
        return json.loads(row[1]) if row else None

    def _row(self, kind: str, name: str) -> tuple[int, str] | None:
        with closing(self._open()) as database:
            return _row(database, kind, name)

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._file, timeout=5, isolation_level=None)


def _row(database: sqlite3.Connection, kind: str, name: str) -> tuple[int, str] | None:
    """The sequence of an aggregate, and its state as text."""
    found: tuple[int, str] | None = database.execute(
        "SELECT sequence, state FROM entry WHERE type = ? AND id = ?", [kind, name]
    ).fetchone()
    return found


def changed(state: dict[str, Any], event: CloudEvent) -> dict[str, Any]:
    """The state after an event: yours goes here. An event of an unknown type leaves it as it is."""
    return {**state, **event.data, "events": [*state.get("events", []), event.type]}


def replaced(state: dict[str, Any], event: CloudEvent, current: Current) -> dict[str, Any]:
    """The state after a read. Events up to the one that was read may still come: they are known then."""
    return {**current.state, "events": [*state.get("events", []), event.type]}

"""Changes gather in memory and become durable together, in one transaction of one SQLite file."""

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from devstack.servicebus.broker.description import Description
from devstack.servicebus.broker.message import Message, State
from devstack.servicebus.codec.message import parse
from devstack.sqlite_file import Format, opened

_SEQUENCE_BITS = 44
_TABLES = """
CREATE TABLE entity (id INTEGER PRIMARY KEY, path TEXT UNIQUE NOT NULL, description TEXT NOT NULL,
                     next_sequence INTEGER NOT NULL DEFAULT 1);
CREATE TABLE message (id INTEGER PRIMARY KEY, enqueued_sequence INTEGER NOT NULL, raw BLOB NOT NULL,
                      enqueued INTEGER NOT NULL, expires INTEGER, due INTEGER, state INTEGER NOT NULL,
                      delivery_count INTEGER NOT NULL, dead INTEGER NOT NULL, dead_letter_source TEXT);
CREATE TABLE seen (entity INTEGER NOT NULL, key TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (entity, key))
                   WITHOUT ROWID;
CREATE TABLE session_state (entity INTEGER NOT NULL, session TEXT NOT NULL, state BLOB NOT NULL,
                            updated INTEGER NOT NULL, PRIMARY KEY (entity, session)) WITHOUT ROWID;
"""
FORMAT = Format(
    "servicebus",
    "servicebus.sqlite",
    application_id=0x73627573,
    version=1,
    tables=_TABLES,
    known_by="session_state",
)


@dataclass(frozen=True, slots=True)
class StoredSession:
    entity: int
    session: str
    state: bytes
    updated_ms: int


class Store:
    """Implements the broker's journal. Not thread-safe: one event loop owns it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._messages: dict[int, Message | None] = {}
        self._sequences: dict[int, int] = {}
        self._seen: list[tuple[int, str, int]] = []
        self._forgotten: dict[int, int] = {}
        self._states: dict[tuple[int, str], tuple[bytes | None, int]] = {}

    @classmethod
    @contextlib.contextmanager
    def opened(cls, folder: Path) -> Iterator[Self]:
        """The store in ``folder``; what was gathered is durable at the end. Raises CannotStart."""
        with opened(folder, FORMAT) as connection:
            store = cls(connection)
            yield store
            store.commit()

    # -- the journal

    def put(self, entity: int, message: Message) -> None:
        self._messages[entity << _SEQUENCE_BITS | message.sequence] = message

    def remove(self, entity: int, sequence: int) -> None:
        self._messages[entity << _SEQUENCE_BITS | sequence] = None

    def sequence(self, entity: int, following: int) -> None:
        self._sequences[entity] = following

    def seen(self, entity: int, key: str, at_ms: int) -> None:
        self._seen.append((entity, key, at_ms))

    def forget_seen(self, entity: int, before_ms: int) -> None:
        self._forgotten[entity] = before_ms

    def session_state(self, entity: int, session: str, state: bytes | None, at_ms: int) -> None:
        self._states[entity, session] = (state, at_ms)

    @property
    def has_changes(self) -> bool:
        return bool(self._messages or self._sequences or self._seen or self._forgotten or self._states)

    def commit(self) -> None:
        """Make everything gathered durable, all or nothing."""
        if not self.has_changes:
            return
        run = self._connection.executemany
        self._connection.execute("BEGIN IMMEDIATE")
        run("UPDATE entity SET next_sequence = ? WHERE id = ?", [(n, e) for e, n in self._sequences.items()])
        run(
            "REPLACE INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [_row(number, message) for number, message in self._messages.items() if message is not None],
        )
        run(
            "DELETE FROM message WHERE id = ?",
            [(n,) for n, message in self._messages.items() if message is None],
        )
        run("DELETE FROM seen WHERE entity = ? AND at <= ?", self._forgotten.items())
        run("REPLACE INTO seen VALUES (?, ?, ?)", self._seen)
        for (entity, session), (state, at) in self._states.items():
            self._write_session(entity, session, state, at)
        self._connection.execute("COMMIT")
        for gathered in (self._messages, self._sequences, self._seen, self._forgotten, self._states):
            gathered.clear()

    # -- entities

    def add_entity(self, description: Description) -> int:
        """Store a new entity. Returns its number."""
        cursor = self._connection.execute(
            "INSERT INTO entity (path, description) VALUES (?, ?)",
            (description.path.lower(), description.model_dump_json()),
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def update_entity(self, entity: int, description: Description) -> None:
        self._connection.execute(
            "UPDATE entity SET description = ? WHERE id = ?", (description.model_dump_json(), entity)
        )

    def delete_entity(self, entity: int) -> None:
        """Forget an entity and all that it held."""
        self.commit()
        first = entity << _SEQUENCE_BITS
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("DELETE FROM entity WHERE id = ?", (entity,))
        self._connection.execute(
            "DELETE FROM message WHERE id BETWEEN ? AND ?", (first, first + (1 << _SEQUENCE_BITS) - 1)
        )
        self._connection.execute("DELETE FROM seen WHERE entity = ?", (entity,))
        self._connection.execute("DELETE FROM session_state WHERE entity = ?", (entity,))
        self._connection.execute("COMMIT")

    # -- what was stored

    def stored_entities(self) -> Iterator[tuple[int, Description, int]]:
        """Number, description and next sequence number; topics before their subscriptions."""
        rows = self._connection.execute("SELECT id, description, next_sequence FROM entity ORDER BY id")
        for number, description, following in rows:
            yield number, Description.model_validate_json(description), following

    def stored_messages(self) -> Iterator[tuple[int, Message]]:
        """Entity and message, in order of sequence numbers."""
        for row in self._connection.execute("SELECT * FROM message ORDER BY id"):
            number, enqueued_sequence, raw, enqueued, expires, due, state, deliveries, dead, source = row
            yield (
                number >> _SEQUENCE_BITS,
                Message(
                    sequence=number & ((1 << _SEQUENCE_BITS) - 1),
                    enqueued_sequence=enqueued_sequence,
                    parsed=parse(raw),
                    enqueued_ms=enqueued,
                    expires_ms=expires,
                    due_ms=due,
                    state=State(state),
                    delivery_count=deliveries,
                    dead=bool(dead),
                    dead_letter_source=source,
                ),
            )

    def stored_seen(self) -> Iterator[tuple[int, str, int]]:
        """Entity, key and time of first acceptance, the oldest first."""
        yield from self._connection.execute("SELECT entity, key, at FROM seen ORDER BY at")

    def stored_sessions(self) -> Iterator[StoredSession]:
        for row in self._connection.execute("SELECT entity, session, state, updated FROM session_state"):
            yield StoredSession(*row)

    def _write_session(self, entity: int, session: str, state: bytes | None, at_ms: int) -> None:
        if state is None:
            self._connection.execute(
                "DELETE FROM session_state WHERE entity = ? AND session = ?", (entity, session)
            )
        else:
            self._connection.execute(
                "REPLACE INTO session_state VALUES (?, ?, ?, ?)", (entity, session, state, at_ms)
            )


def _row(number: int, message: Message) -> tuple[object, ...]:
    return (
        number,
        message.enqueued_sequence,
        message.parsed.raw,
        message.enqueued_ms,
        message.expires_ms,
        message.due_ms,
        int(message.state),
        message.delivery_count,
        int(message.dead),
        message.dead_letter_source,
    )

"""A subscriber's entry is one row, written over the version that was read: all of it, or nothing.

There is one copy of the file, so every read is as new as one behind a fence. A row says in which form its state was
written: the state of another form, or one that cannot be read, is never taken for a state (``other-form`` in
``cosmos_outbox/inbox/``).
"""

import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from cosmos_outbox.inbox.entry import Entry, Stamp, VersionedEntry, WalkPage
from cosmos_outbox.inbox.errors import EntryChanged
from cosmos_outbox.inbox.form import EntryForm
from cosmos_outbox.inbox.stored import text_or_none, time_or_none
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import new_id, utc_now
from cosmos_outbox.sqlite.database import Database

S = TypeVar("S", bound=BaseModel)

_PAGE = 100


@dataclass(frozen=True)
class SqliteEntries(Generic[S]):
    """The entries of one read model. See :class:`cosmos_outbox.inbox.ports.Entries`."""

    database: Database
    name: str
    """Of the read model: others may have their entries in the same file."""
    form: EntryForm[S]
    deleted_ttl_seconds: int | None
    """How long a deleted entry is kept; None: for good."""
    clock: Callable[[], datetime] = utc_now

    async def read(self, key: AggregateKey) -> VersionedEntry[S] | None:
        """The entry. Raises StoreAway."""
        row = await self.database.run(lambda connection: self._row(connection, key))
        return None if row is None else self._entry(row)

    async def newest(self, key: AggregateKey) -> VersionedEntry[S] | None:
        """The same. Raises StoreAway."""
        return await self.read(key)

    async def put(self, key: AggregateKey, entry: Entry[S], stamp: Stamp, *, over: str | None) -> str:
        """Write an entry, and return its version. Raises EntryChanged, StoreAway."""
        row = self._values(key, entry, stamp)
        names, places = ", ".join(row), ", ".join(f":{name}" for name in row)

        def write(connection: sqlite3.Connection) -> None:
            now = self.clock().isoformat()
            connection.execute("DELETE FROM entries WHERE name = ? AND expires_at < ?", (self.name, now))
            self._must_be_at(connection, key, over)
            connection.execute(f"INSERT OR REPLACE INTO entries ({names}) VALUES ({places})", row)  # noqa: S608

        await self.database.run(write)
        return str(row["version"])

    async def remove(self, key: AggregateKey, *, over: str) -> None:
        """Remove an entry. Raises EntryChanged, StoreAway."""

        def delete(connection: sqlite3.Connection) -> None:
            self._must_be_at(connection, key, over)
            connection.execute("DELETE FROM entries WHERE name = ? AND id = ?", (self.name, key.id))

        await self.database.run(delete)

    async def page(self, position: str | None) -> WalkPage[VersionedEntry[S]]:
        """A page of the entries that are not deleted. Raises StoreAway."""
        query = "SELECT * FROM entries WHERE name = ? AND state IS NOT NULL AND id > ? ORDER BY id LIMIT ?"
        given = self.name, position or "", _PAGE
        rows = await self.database.run(lambda connection: connection.execute(query, given).fetchall())
        items = [(AggregateKey(row["aggregate_type"], row["id"]), self._entry(row)) for row in rows]
        return WalkPage(items, rows[-1]["id"] if len(rows) == _PAGE else None)

    async def mark(self, key: AggregateKey, version: str, blocked_since: datetime | None) -> None:
        """Note in an entry since when it is blocked. Raises EntryChanged, StoreAway."""
        query = "UPDATE entries SET blocked_since = ?, version = ? WHERE name = ? AND id = ? AND version = ?"
        given = text_or_none(blocked_since), new_id().hex, self.name, key.id, version
        if await self.database.run(lambda connection: connection.execute(query, given).rowcount) != 1:
            raise EntryChanged(f"the entry of {key} has changed")

    async def progress(self) -> tuple[Mapping[str, Any], str] | None:
        """How far the walk is. Raises StoreAway."""
        query = "SELECT * FROM progress WHERE name = ?"
        row = await self.database.run(lambda connection: connection.execute(query, (self.name,)).fetchone())
        return None if row is None else (json.loads(row["document"]), row["version"])

    async def save_progress(self, document: Mapping[str, Any], *, over: str | None) -> str:
        """Write how far the walk is, with its new version. Raises EntryChanged, StoreAway."""
        version = new_id().hex
        row = self.name, version, utc_now().isoformat(), json.dumps(document)

        def write(connection: sqlite3.Connection) -> None:
            found = connection.execute("SELECT version FROM progress WHERE name = ?", (self.name,)).fetchone()
            if (found["version"] if found else None) != over:
                raise EntryChanged("another run is at this walk: read its progress again")
            connection.execute("INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?)", row)

        await self.database.run(write)
        return version

    def _row(self, connection: sqlite3.Connection, key: AggregateKey) -> sqlite3.Row | None:
        found: sqlite3.Row | None = connection.execute(
            "SELECT * FROM entries WHERE name = ? AND id = ? AND (expires_at IS NULL OR expires_at >= ?)",
            (self.name, key.id, self.clock().isoformat()),
        ).fetchone()
        return found

    def _must_be_at(self, connection: sqlite3.Connection, key: AggregateKey, version: str | None) -> None:
        row = self._row(connection, key)
        if (None if row is None else row["version"]) != version:
            raise EntryChanged(f"another writer changed the entry of {key}: read it again")

    def _values(self, key: AggregateKey, entry: Entry[S], stamp: Stamp) -> dict[str, Any]:
        state, expires = entry.state, None
        if state is None and self.deleted_ttl_seconds is not None:
            expires = (self.clock() + timedelta(seconds=self.deleted_ttl_seconds)).isoformat()
        return {
            "name": self.name,
            "id": key.id,
            "aggregate_type": key.type,
            "version": new_id().hex,
            "last_sequence": entry.last_sequence,
            "last_event_id": entry.last_event_id,
            "healed": entry.healed,
            "form": self.form.version,
            "state": None if state is None else json.dumps(self.form.write(state)),
            "search": json.dumps({} if state is None else dict(self.form.texts(state))),
            "applied_at": stamp.at.isoformat(),
            "late_seconds": stamp.late_seconds,
            "blocked_since": None,
            "expires_at": expires,
        }

    def _entry(self, row: sqlite3.Row) -> VersionedEntry[S]:
        item = form_item(row)
        state = self.form.read(item) if self.form.is_of(item) else None
        other_form = state is None and row["state"] is not None
        entry = Entry(row["last_sequence"], row["last_event_id"], state, row["healed"], other_form)
        return VersionedEntry(entry, row["version"], time_or_none(row["blocked_since"]))


def form_item(row: sqlite3.Row) -> dict[str, Any]:
    """What the form reads."""
    return {"form": row["form"], "data": None if row["state"] is None else json.loads(row["state"])}

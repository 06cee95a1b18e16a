"""A subscriber's entry is one row, written over the version that was read: all of it, or nothing.

There is one copy of the file, so every read is as new as one behind a fence. A row says in which form its state was
written: the state of another form, or one that cannot be read, is never taken for a state (``other-form`` in
``cosmos_outbox/inbox/``). A list shows it as far as it can be read, and leaves out the rest.
"""

import json
import logging
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar
from uuid import uuid4

from pydantic import BaseModel

from cosmos_outbox.inbox.entry import Entry, Listed, ListedPage, Stamp, VersionedEntry
from cosmos_outbox.inbox.errors import EntryChanged
from cosmos_outbox.inbox.form import Condition, EntryForm
from cosmos_outbox.inbox.state import utc_now
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.errors import UnknownContinuation
from cosmos_outbox.outbox.once_a_minute import OnceAMinute
from cosmos_outbox.sqlite.database import Database

S = TypeVar("S", bound=BaseModel)

_log = logging.getLogger(__name__)


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

    async def put(self, key: AggregateKey, entry: Entry[S], stamp: Stamp, *, over: str | None) -> None:
        """Write an entry. Raises EntryChanged, StoreAway."""
        row = self._values(key, entry, stamp)
        names, places = ", ".join(row), ", ".join(f":{name}" for name in row)

        def write(connection: sqlite3.Connection) -> None:
            now = self.clock().isoformat()
            connection.execute("DELETE FROM entries WHERE name = ? AND expires_at < ?", (self.name, now))
            self._must_be_at(connection, key, over)
            connection.execute(f"INSERT OR REPLACE INTO entries ({names}) VALUES ({places})", row)  # noqa: S608

        await self.database.run(write)

    async def remove(self, key: AggregateKey, *, over: str) -> None:
        """Remove an entry. Raises EntryChanged, StoreAway."""

        def delete(connection: sqlite3.Connection) -> None:
            self._must_be_at(connection, key, over)
            connection.execute("DELETE FROM entries WHERE name = ? AND id = ?", (self.name, key.id))

        await self.database.run(delete)

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
            "version": uuid4().hex,
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
        item = _item(row)
        state = self.form.read(item) if self.form.is_of(item) else None
        other_form = state is None and row["state"] is not None
        entry = Entry(row["last_sequence"], row["last_event_id"], state, row["healed"], other_form)
        return VersionedEntry(entry, row["version"], time_or_none(row["blocked_since"]))


@dataclass(frozen=True)
class SqliteListing(Generic[S]):
    """See :class:`cosmos_outbox.inbox.form.Listing`."""

    database: Database
    name: str
    form: EntryForm[S]
    _unreadable: OnceAMinute = field(default_factory=OnceAMinute, repr=False)

    async def page(
        self, conditions: Sequence[Sequence[Condition]], sort: str, size: int, token: str | None
    ) -> ListedPage[S]:
        """At most ``size`` entries, by ``sort`` and id. Raises UnknownContinuation, StoreAway."""
        after = _after(token) if token is not None else None
        query, given = _query(conditions, after)
        given |= {"name": self.name, "sort": _path(sort), "size": size + 1}
        rows = await self.database.run(lambda connection: connection.execute(query, given).fetchall())
        token = json.dumps([rows[size - 1]["place"], rows[size - 1]["id"]]) if len(rows) > size else None
        listed = [each for row in rows[:size] if (each := self._listed(row)) is not None]
        self._tell(len(rows[:size]) - len(listed), len(rows[:size]))
        return ListedPage(listed, token)

    def _tell(self, left_out: int, of: int) -> None:
        if left_out and self._unreadable.due():
            _log.error(
                "%d of %d entries are left out of a list: they were made in another form and cannot be read. The sweep "
                "writes them again; where there is no source, ask the publisher to publish their events again",
                left_out,
                of,
            )

    def _listed(self, row: sqlite3.Row) -> Listed[S] | None:
        state = self.form.read(_item(row))
        if state is None:
            return None
        return Listed(
            id=row["id"],
            state=state,
            sequence=row["last_sequence"],
            applied_at=datetime.fromisoformat(row["applied_at"]),
            late_seconds=row["late_seconds"],
            blocked_since=time_or_none(row["blocked_since"]),
        )


def _item(row: sqlite3.Row) -> dict[str, Any]:
    """What the form reads."""
    return {"form": row["form"], "data": None if row["state"] is None else json.loads(row["state"])}


def time_or_none(text: str | None) -> datetime | None:
    """A stored time."""
    return None if text is None else datetime.fromisoformat(text)


def text_or_none(time: datetime | None) -> str | None:
    """A time to be stored."""
    return None if time is None else time.isoformat()


def _query(
    conditions: Sequence[Sequence[Condition]], after: tuple[str, str] | None
) -> tuple[str, dict[str, Any]]:
    given: dict[str, Any] = {}
    where = ["name = :name", "state IS NOT NULL"]
    for group in conditions:
        choices = []
        for each in group:
            number = len(given)
            given |= {f"path{number}": _path(each.field), f"text{number}": each.text}
            found = f"json_extract(search, :path{number})"
            begun = f"substr({found}, 1, length(:text{number}))" if each.beginning else found
            choices.append(f"{begun} = :text{number}")
        where.append(f"({' OR '.join(choices)})")
    if after is not None:
        given |= {"place": after[0], "id": after[1]}
        where.append("(json_extract(search, :sort), id) > (:place, :id)")
    query = (
        "SELECT *, json_extract(search, :sort) AS place FROM entries "  # noqa: S608 - of our own texts alone
        f"WHERE {' AND '.join(where)} ORDER BY place, id LIMIT :size"
    )
    return query, given


def _path(name: str) -> str:
    return f'$."{name}"'


def _after(token: str) -> tuple[str, str]:
    """Raises UnknownContinuation."""
    try:
        place, last = json.loads(token)
    except (ValueError, TypeError):
        place = last = None
    if not (isinstance(place, str) and isinstance(last, str)):
        raise UnknownContinuation("the list cannot go on from this token: begin with the first page")
    return place, last

"""A subscriber's store in one SQLite file: the reference of how an adapter of ``cosmos_outbox.store`` is written.

What is kept are JSON documents in one table, each written over the version that was read. A call is one transaction of
the file's one thread, and on disk when it returns; one that is cancelled may have taken place, as an answer of a remote
store may be lost. There is one copy of the file, so each read is the newest. Processes of one machine may share it.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from pydantic import BaseModel

from cosmos_outbox import Condition, EntrySchema, Named, store
from cosmos_outbox.errors import StoreUnavailable

S = TypeVar("S", bound=BaseModel)
T = TypeVar("T")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS documents (
    kind TEXT NOT NULL, id TEXT NOT NULL, version TEXT NOT NULL, document TEXT NOT NULL, expires_at TEXT,
    PRIMARY KEY (kind, id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS documents_that_expire ON documents (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS documents_by_state ON documents
    (kind, json_extract(document, '$.state'), json_extract(document, '$.aggregateId'));
CREATE INDEX IF NOT EXISTS documents_by_last_try ON documents
    (kind, json_extract(document, '$.state'), json_extract(document, '$.tried'), id);
"""
_PAGE = 100

BUSY_SECONDS = 5.0
"""How long a call waits for another process."""


class File:
    """The documents of one kind by their ids; the file is opened when it is first used."""

    def __init__(self, path: Path, clock: Callable[[], datetime]) -> None:
        self.path = path
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite")
        self._connection: sqlite3.Connection | None = None

    async def get(self, kind: str, document_id: str) -> tuple[dict[str, Any], str] | None:
        """A document and its version. Raises StoreUnavailable."""
        return await self.run(lambda connection: self._get(connection, kind, document_id))

    async def put(
        self,
        kind: str,
        document_id: str,
        document: Mapping[str, Any],
        over: str | None,
        seconds: int | None = None,
    ) -> str | None:
        """Write it over that version (None: only if there is none); with its new one, or None: it was another one."""
        version, now = uuid4().hex, self._clock()
        expires = None if seconds is None else (now + timedelta(seconds=seconds)).isoformat()
        row = kind, document_id, version, json.dumps(document), expires

        def write(connection: sqlite3.Connection) -> str | None:
            connection.execute("DELETE FROM documents WHERE expires_at < ?", (now.isoformat(),))
            found = self._get(connection, kind, document_id)
            if (found and found[1]) != over:
                return None
            connection.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?, ?, ?)", row)
            return version

        return await self.run(write)

    async def remove(self, kind: str, document_id: str, over: str) -> bool:
        """Whether it was at that version. Raises StoreUnavailable."""
        query, given = (
            "DELETE FROM documents WHERE kind = ? AND id = ? AND version = ?",
            (kind, document_id, over),
        )
        return await self.run(lambda connection: connection.execute(query, given).rowcount == 1)

    async def select(  # noqa: PLR0913, PLR0917 - a query
        self,
        kind: str,
        where: str,
        given: Mapping[str, Any],
        order: str,
        most: int,
        shown: str = "document",
    ) -> list[tuple[Any, str]]:
        """The first documents, with their versions. Raises StoreUnavailable."""
        query = (
            f"SELECT {shown}, version FROM documents WHERE kind = :kind AND {where} "  # noqa: S608 - our own texts
            f"AND (expires_at IS NULL OR expires_at >= :now) ORDER BY {order} LIMIT {most}"
        )
        values = {**given, "kind": kind, "now": self._clock().isoformat()}
        rows = await self.run(lambda connection: connection.execute(query, values).fetchall())
        return [(json.loads(document), version) for document, version in rows]

    async def close(self) -> None:
        """Close the file; it is opened again by the next use."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._closed)

    def _get(
        self, connection: sqlite3.Connection, kind: str, document_id: str
    ) -> tuple[dict[str, Any], str] | None:
        query = (
            "SELECT document, version FROM documents WHERE kind = ? AND id = ?"
            " AND (expires_at IS NULL OR expires_at >= ?)"
        )
        row = connection.execute(query, (kind, document_id, self._clock().isoformat())).fetchone()
        return None if row is None else (json.loads(row[0]), row[1])

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do it in one transaction, rolled back if it raises. Raises StoreUnavailable, and what the work raises."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transaction, work)

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
            raise StoreUnavailable(f"{self.path.name} cannot be used: {error}") from error
        return result

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
            try:
                # What is removed is overwritten, in the file and, since that is removed, in the default journal.
                connection.execute("PRAGMA secure_delete=ON")
                connection.execute(
                    "PRAGMA synchronous=FULL"
                )  # a message is completed after what it did is on disk
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


@dataclass(frozen=True)
class SqliteEntries(store.Entries[S]):
    """The entries of one read model."""

    file: File
    kind: str
    form: EntrySchema[S]
    deleted_ttl_seconds: int | None

    async def read(self, key: store.AggregateKey) -> store.VersionedEntry[S] | None:
        found = await self.file.get(self.kind, key.id)
        return None if found is None else store.entry_of(self.form, *found)

    async def newest(self, key: store.AggregateKey) -> store.VersionedEntry[S] | None:
        return await self.read(key)

    async def put(
        self, key: store.AggregateKey, entry: store.Entry[S], stamp: store.Stamp, *, over: str | None
    ) -> str:
        seconds = self.deleted_ttl_seconds if entry.deleted else None
        document = store.entry_document(self.form, key, entry, stamp)
        return _changed(await self.file.put(self.kind, key.id, document, over, seconds))

    async def remove(self, key: store.AggregateKey, *, over: str) -> None:
        if not await self.file.remove(self.kind, key.id, over):
            raise store.EntryChanged("the entry is at another version")

    async def page(self, position: str | None) -> store.WalkPage[store.VersionedEntry[S]]:
        where, given = "id > :after AND NOT json_extract(document, '$.deleted')", {"after": position or ""}
        found = await self.file.select(self.kind, where, given, "id", _PAGE)
        items = [
            (
                store.AggregateKey(document["aggregateType"], document["id"]),
                store.entry_of(self.form, document, version),
            )
            for document, version in found
        ]
        return store.WalkPage(items, items[-1][0].id if len(items) == _PAGE else None)

    async def mark(self, key: store.AggregateKey, version: str, blocked_since: datetime | None) -> None:
        document, _ = await self.file.get(self.kind, key.id) or ({}, "")
        marked = {**document, "blockedSince": blocked_since and blocked_since.isoformat()}
        _changed(await self.file.put(self.kind, key.id, marked, version))

    async def progress(self) -> tuple[Mapping[str, Any], str] | None:
        return await self.file.get("progress", self.kind)

    async def save_progress(self, document: Mapping[str, Any], *, over: str | None) -> str:
        return _changed(await self.file.put("progress", self.kind, document, over))

    async def first(
        self,
        conditions: Sequence[Sequence[Condition]],
        by: store.Sorted,
        most: int,
        after: Sequence[str] | None,
    ) -> Sequence[Mapping[str, Any]]:
        """The entries of a list: see :class:`cosmos_outbox.store.Listing`."""
        given: dict[str, Any] = {"sort": f'$.search."{by.text}"'}
        where = ["NOT json_extract(document, '$.deleted')", "json_extract(document, :sort) IS NOT NULL"]
        for group in conditions:
            choices = []
            for each in group:
                n = len(given)
                given |= {f"path{n}": f'$.search."{each.field}"', f"text{n}": each.text}
                text = f"json_extract(document, :path{n})"
                choices.append(
                    f"substr({text}, 1, length(:text{n})) = :text{n}"
                    if each.beginning
                    else f"{text} = :text{n}"
                )
            where.append(f"({' OR '.join(choices)})")
        if after is not None:
            given |= {"text": after[0], "id": after[1]}
            where.append(f"(json_extract(document, :sort), id) {'<' if by.down else '>'} (:text, :id)")
        down = " DESC" if by.down else ""
        found = await self.file.select(
            self.kind, " AND ".join(where), given, f"json_extract(document, :sort){down}, id{down}", most
        )
        return [document for document, _ in found]


_STATE, _OWNER, _SET_ASIDE_AT = (
    f"json_extract(document, '$.{name}')" for name in ("state", "aggregateId", "setAsideAt")
)
_WAITING, _OPEN = f"{_STATE} = 'waiting'", f"{_STATE} IN ('waiting', 'refused')"
_OF_ONE = f"{_WAITING} AND {_OWNER} = :id AND json_extract(document, '$.aggregateType') = :type"
_KEYS = {"id": "id", "setAsideAt": _SET_ASIDE_AT, "tried": "json_extract(document, '$.tried')"}
"""What records are listed by, by the field that shows it."""
_SHOWN = "json_remove(document, '$.body', '$.properties')"


@dataclass(frozen=True)
class SqliteSetAside(store.SetAside):
    """The messages of one subscription that could not be applied."""

    file: File
    subscription: str
    closed_ttl_seconds: int

    async def add(self, record: store.Record) -> None:
        await self._put(record, None)  # one that is there is left as it is

    async def waits(self, aggregate: store.AggregateKey) -> bool:
        return await self._select(_OF_ONE, "id", aggregate._asdict(), 1) != []

    async def waiting(self, aggregate: store.AggregateKey | None = None) -> AsyncIterator[store.Record]:
        given = aggregate._asdict() if aggregate else {}
        found = self._all(_OF_ONE, "id", given) if aggregate else self._all(_WAITING, "tried", given)
        async for record in found:
            yield record

    async def older(self, than: datetime) -> AsyncIterator[store.Record]:
        where, given = (
            f"{_OPEN} AND {_SET_ASIDE_AT} < :than",
            {"than": than.isoformat()},
        )
        async for record in self._all(where, "id", given):
            yield record

    async def page(self, size: int, continuation_token: str | None) -> store.RecordPage:
        scope, after = f"{self._kind}/open", ["", ""]
        if continuation_token:
            after = json.loads(store.unseal(scope, continuation_token))
        found = await self._select(_OPEN, "setAsideAt", {}, size + 1, after)
        if len(found) <= size:
            return store.RecordPage([record for record, _ in found], None)
        return store.RecordPage(
            [record for record, _ in found[:size]], store.seal(scope, json.dumps(found[size - 1][1]))
        )

    async def count(self, state: store.RecordState) -> int:
        where, given = f"{_STATE} = :state", {"state": state.value}
        [(number, _)] = await self.file.select(self._kind, where, given, "1", 1, "json_quote(count(*))")
        return int(number)

    async def get(self, record_id: str) -> store.Record:
        found = await self.file.get(self._kind, record_id)
        if found is None:
            raise store.NotSetAside("no record has this id: it was closed long ago, or there never was one")
        return store.record_of(*found)

    async def change(
        self, record: store.Record, state: store.RecordState, reason: str, *, attempts: int
    ) -> None:
        whole = record
        if state.is_open and record.delivery is None:
            whole = replace(record, delivery=(await self.get(record.id)).delivery)
        changed = replace(whole, state=state, reason=reason, attempts=attempts)
        if await self._put(changed, record.version) is None:
            raise store.RecordChanged("somebody else changed the record: read it again")

    @property
    def _kind(self) -> str:
        return f"records of {self.subscription}"

    async def _put(self, record: store.Record, over: str | None) -> str | None:
        """The last that was tried comes last."""
        seconds = None if record.state.is_open else self.closed_ttl_seconds
        document = {
            **store.record_document(record, self.subscription),
            "tried": datetime.now(UTC).isoformat(),
        }
        return await self.file.put(self._kind, record.id, document, over, seconds)

    async def _all(self, where: str, key: str, given: Mapping[str, Any]) -> AsyncIterator[store.Record]:
        """Page by page: there may be very many. What is changed during the walk may come again at its new place."""
        after = ["", ""]
        while found := await self._select(where, key, given, _PAGE, after):
            for record, _ in found:
                yield record
            after = found[-1][1]

    async def _select(
        self, where: str, key: str, given: Mapping[str, Any], most: int, after: Sequence[str] = ("", "")
    ) -> list[tuple[store.Record, list[str]]]:
        """The first records behind a place, each with its own: its key and its id."""
        by = _KEYS[key]
        where = f"{where} AND {by} >= :key AND ({by} > :key OR id > :after)"
        places = {"key": after[0], "after": after[1]}
        found = await self.file.select(self._kind, where, {**given, **places}, f"{by}, id", most, _SHOWN)
        return [(store.record_of(*each), [each[0][key], each[0]["id"]]) for each in found]


@dataclass(frozen=True)
class SqliteEffects(store.EffectRecords):
    """What became of the effects of one subscriber."""

    file: File
    kind: str
    ttl_seconds: int

    async def find(self, event_id: str) -> store.EffectRecord | None:
        found = await self.file.get(self.kind, event_id)
        if found is None:
            return None
        document, version = found
        at = datetime.fromisoformat(document["at"])
        return store.EffectRecord(
            event_id, store.EffectState(document["state"]), at, document["call"], version
        )

    async def write(self, record: store.EffectRecord) -> store.EffectRecord:
        document = {"state": record.state.value, "at": record.at.isoformat(), "call": record.call}
        version = await self.file.put(self.kind, record.event_id, document, record.version, self.ttl_seconds)
        if version is None:
            raise store.RecordChanged("the record was changed: read it again")
        return replace(record, version=version)


@dataclass(frozen=True)
class SqliteStore(store.Store):
    """All that one subscribing service keeps."""

    file: File

    def entries(self, name: str, form: EntrySchema[S], deleted_ttl_seconds: int | None) -> SqliteEntries[S]:
        return SqliteEntries(self.file, f"entries of {name}", form, deleted_ttl_seconds)

    def listing(self, name: str, form: EntrySchema[S]) -> store.Listing[S]:
        return store.Listing(self.entries(name, form, None), form, name, store.TokenKey(self._key))

    def set_aside(self, subscription: str, closed_ttl_seconds: int) -> SqliteSetAside:
        return SqliteSetAside(self.file, subscription, closed_ttl_seconds)

    def effects(self, name: str, subscription: str, ttl_seconds: int) -> SqliteEffects:
        return SqliteEffects(self.file, f"effects of {subscription}", ttl_seconds)

    async def check(self) -> None:
        await self.file.get("keys", "continuation")

    async def _key(self) -> str:
        """The key of the file's lists: the first that a process has made."""
        await self.file.put("keys", "continuation", {"key": store.new_key()}, None)
        document, _ = await self.file.get("keys", "continuation") or ({}, "")
        return str(document["key"])


@dataclass(frozen=True)
class SqliteFile(store.StoreOf):
    """Declares a file as a subscriber's store: ``SqliteFile(Named("MAILING_DATABASE", "mailing.db"))``."""

    path: Named
    """The setting with the path, and the path where nobody sets it: on a local disk that lasts."""
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)

    def open(self, environment: Mapping[str, str], resources: AsyncExitStack) -> SqliteStore:
        file = File(Path(self.path.resolve(environment)), self.clock)
        resources.push_async_callback(file.close)
        return SqliteStore(file)


def _changed(version: str | None) -> str:
    if version is None:
        raise store.EntryChanged("another writer changed it: read it again")
    return version

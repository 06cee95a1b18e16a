"""The effects of one aggregate are one row, written at the version that was read; with something open, it stays."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from pydantic import TypeAdapter

from cosmos_outbox.inbox.effect import EffectItem
from cosmos_outbox.inbox.errors import RecordChanged
from cosmos_outbox.inbox.stored import item_document, item_of
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import new_id, utc_now
from cosmos_outbox.lists import continuation
from cosmos_outbox.sqlite.database import Database

_ONE = (
    "SELECT * FROM effects WHERE subscriber = ? AND aggregate_type = ? AND aggregate_id = ?"
    " AND (expires_at IS NULL OR expires_at >= ?)"
)
_PUT = "INSERT OR REPLACE INTO effects VALUES (?, ?, ?, ?, ?, ?)"
_PAGE = (
    "SELECT * FROM effects WHERE subscriber = ? AND (aggregate_type, aggregate_id) > (?, ?)"
    " AND (expires_at IS NULL OR ?) ORDER BY aggregate_type, aggregate_id LIMIT ?"
)
_POSITION = TypeAdapter(tuple[str, str])


@dataclass(frozen=True)
class SqliteEffects:
    """See :class:`cosmos_outbox.inbox.effect.EffectItems`. There is one copy of the file: every read is the newest."""

    database: Database
    subscriber: str
    ttl_seconds: int
    clock: Callable[[], datetime] = utc_now

    async def read(self, key: AggregateKey, *, fenced: bool) -> EffectItem | None:
        """An aggregate's item. Raises StoreAway."""
        return await self.database.run(lambda connection: self._read(connection, key))

    async def write(self, key: AggregateKey, item: EffectItem) -> EffectItem:
        """Store it over its version. Raises RecordChanged, StoreAway."""
        made, now = replace(item, version=new_id().hex), self.clock()
        expires = (now + timedelta(seconds=self.ttl_seconds)).isoformat() if item.expires else None
        row = self.subscriber, *key, made.version, json.dumps(item_document(item)), expires

        def put(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM effects WHERE expires_at < ?", (now.isoformat(),))
            stored = self._read(connection, key)
            if (stored and stored.version) != item.version:
                raise RecordChanged(f"the effects of {key} were changed: read them again")
            connection.execute(_PUT, row)

        await self.database.run(put)
        return made

    async def page(
        self, size: int, position: str | None, *, unfinished: bool
    ) -> tuple[Sequence[tuple[AggregateKey, EffectItem]], str | None]:
        """A page of them, or of those with something open or running. Raises StoreAway."""
        given = self.subscriber, *_position(position), not unfinished, size + 1
        rows = await self.database.run(lambda connection: connection.execute(_PAGE, given).fetchall())
        found = [
            (AggregateKey(row["aggregate_type"], row["aggregate_id"]), _item(row)) for row in rows[:size]
        ]
        return found, json.dumps(found[-1][0]) if len(rows) > size else None

    def _read(self, connection: sqlite3.Connection, key: AggregateKey) -> EffectItem | None:
        row = connection.execute(_ONE, (self.subscriber, *key, self.clock().isoformat())).fetchone()
        return None if row is None else _item(row)


def _position(position: str | None) -> tuple[str, str]:
    try:
        return _POSITION.validate_json(position) if position else ("", "")
    except ValueError:
        raise continuation.unusable() from None


def _item(row: sqlite3.Row) -> EffectItem:
    return item_of(json.loads(row["document"]), row["version"])

"""The record of one event's effect is one row, created or replaced at its version; each write renews its life."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cosmos_outbox.inbox.effect import EffectRecord, EffectState
from cosmos_outbox.inbox.errors import RecordChanged
from cosmos_outbox.kernel.clock import new_id, utc_now
from cosmos_outbox.sqlite.database import Database

_ONE = "SELECT * FROM effects WHERE subscriber = ? AND event_id = ? AND expires_at >= ?"
_PUT = "INSERT OR REPLACE INTO effects VALUES (?, ?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True)
class SqliteEffects:
    """See :class:`cosmos_outbox.inbox.effect.EffectRecords`. Every read of the one file is the newest."""

    database: Database
    subscriber: str
    ttl_seconds: int
    clock: Callable[[], datetime] = utc_now

    async def find(self, event_id: str) -> EffectRecord | None:
        """The newest record. Raises StoreAway."""
        return await self.database.run(lambda connection: self._find(connection, event_id))

    async def write(self, record: EffectRecord) -> EffectRecord:
        """Create it, or replace it at its version. Raises RecordChanged, StoreAway."""
        made, now = replace(record, version=new_id().hex), self.clock()
        expires = (now + timedelta(seconds=self.ttl_seconds)).isoformat()
        row = (
            self.subscriber,
            record.event_id,
            record.state,
            record.at.isoformat(),
            record.call,
            made.version,
            expires,
        )

        def put(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM effects WHERE expires_at < ?", (now.isoformat(),))
            stored = self._find(connection, record.event_id)
            if (stored and stored.version) != record.version:
                raise RecordChanged("the record of an effect was changed: read it again")
            connection.execute(_PUT, row)

        await self.database.run(put)
        return made

    def _find(self, connection: sqlite3.Connection, event_id: str) -> EffectRecord | None:
        row = connection.execute(_ONE, (self.subscriber, event_id, self.clock().isoformat())).fetchone()
        if row is None:
            return None
        at = datetime.fromisoformat(row["at"])
        return EffectRecord(event_id, EffectState(row["state"]), at, row["call"], row["version"])

"""What a walk goes over: the entries alone. The sources are another team's, and nobody lists them or their changes."""

import json
import sqlite3
from dataclasses import dataclass, replace
from datetime import datetime

from cosmos_outbox.inbox.errors import EntryChanged
from cosmos_outbox.inbox.progress import Seen, SeenPage, WalkProgress
from cosmos_outbox.inbox.stored import progress_document, progress_of, text_or_none, time_or_none
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import new_id, utc_now
from cosmos_outbox.sqlite.database import Database

_PAGE = 100
_ENTRIES = "SELECT * FROM entries WHERE name = ? AND state IS NOT NULL AND id > ? ORDER BY id LIMIT ?"


@dataclass(frozen=True)
class SqliteLists:
    """See :class:`cosmos_outbox.inbox.walk.Lists`."""

    database: Database
    name: str
    """Of the read model."""
    walk: str
    form: int
    """In which entries are made now."""

    async def entries(self, position: str | None) -> SeenPage:
        """A page of living entries. Raises StoreAway."""
        given = self.name, position or "", _PAGE
        rows = await self.database.run(lambda connection: connection.execute(_ENTRIES, given).fetchall())
        return SeenPage([self._seen(row) for row in rows], rows[-1]["id"] if len(rows) == _PAGE else None)

    async def sources(self, position: str | None) -> SeenPage:
        """Nothing."""
        return SeenPage([], None)

    async def count_sources(self) -> int:
        """None is known."""
        return 0

    async def mark(self, key: AggregateKey, version: str, since: datetime | None) -> None:
        """Note in an entry since when it is blocked. Raises EntryChanged, StoreAway."""
        query = "UPDATE entries SET blocked_since = ?, version = ? WHERE name = ? AND id = ? AND version = ?"
        given = text_or_none(since), new_id().hex, self.name, key.id, version
        if await self.database.run(lambda connection: connection.execute(query, given).rowcount) != 1:
            raise EntryChanged(f"the entry of {key} has moved")

    async def progress(self) -> WalkProgress | None:
        """The progress that was saved last. Raises StoreAway."""
        query = "SELECT * FROM progress WHERE name = ?"
        row = await self.database.run(lambda connection: connection.execute(query, (self._key,)).fetchone())
        if row is None:
            return None
        return progress_of(json.loads(row["document"]), row["version"], utc_now())

    async def save(self, progress: WalkProgress) -> WalkProgress:
        """Save the progress; with its new version. Raises EntryChanged, StoreAway."""
        version = new_id().hex
        row = self._key, version, utc_now().isoformat(), json.dumps(progress_document(progress))

        def write(connection: sqlite3.Connection) -> None:
            found = connection.execute("SELECT version FROM progress WHERE name = ?", (self._key,)).fetchone()
            if (found["version"] if found else None) != progress.version:
                raise EntryChanged("somebody else walks: read the progress again")
            connection.execute("INSERT OR REPLACE INTO progress VALUES (?, ?, ?, ?)", row)

        await self.database.run(write)
        return replace(progress, version=version)

    def _seen(self, row: sqlite3.Row) -> Seen:
        return Seen(
            AggregateKey(row["aggregate_type"], row["id"]),
            row["last_sequence"],
            deleted=False,
            changed_at=datetime.fromisoformat(row["applied_at"]),
            blocked_since=time_or_none(row["blocked_since"]),
            healed=row["healed"],
            other_form=row["form"] != self.form,
        )

    @property
    def _key(self) -> str:
        return f"{self.name}/{self.walk}"

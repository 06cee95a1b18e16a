"""What a walk goes over: the entries alone. The sources are another team's, and nobody lists them or their changes."""

import json
import sqlite3
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from cosmos_outbox.inbox.errors import EntryChanged
from cosmos_outbox.inbox.progress import Counts, Seen, SeenPage, Side, WalkProgress
from cosmos_outbox.inbox.state import utc_now
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.sqlite.database import Database
from cosmos_outbox.sqlite.entries import text_or_none, time_or_none

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
        given = text_or_none(since), uuid4().hex, self.name, key.id, version
        if await self.database.run(lambda connection: connection.execute(query, given).rowcount) != 1:
            raise EntryChanged(f"the entry of {key} has moved")

    async def progress(self) -> WalkProgress | None:
        """The progress that was saved last. Raises StoreAway."""
        query = "SELECT * FROM progress WHERE name = ?"
        row = await self.database.run(lambda connection: connection.execute(query, (self._key,)).fetchone())
        if row is None:
            return None
        saved = json.loads(row["document"])
        last = saved["lastCounts"]
        return WalkProgress(
            began_at=datetime.fromisoformat(saved["beganAt"]),
            side=Side(saved["side"]) if saved["side"] else None,
            position=saved["position"],
            counts=Counts(**saved["counts"]),
            last_counts=Counts(**last) if last else None,
            last_ended_at=time_or_none(saved["lastEndedAt"]),
            version=row["version"],
            form=saved["form"],
            moved_at=time_or_none(saved["movedAt"]),
            claimed_until=time_or_none(saved["claimedUntil"]),
            since=time_or_none(saved["since"]),
            until=time_or_none(saved["until"]),
            left=tuple(AggregateKey(*key) for key in saved["left"]),
            stands_at=time_or_none(saved["standsAt"]),
            as_of=utc_now(),
        )

    async def save(self, progress: WalkProgress) -> WalkProgress:
        """Save the progress; with its new version. Raises EntryChanged, StoreAway."""
        version = uuid4().hex
        document: dict[str, Any] = {
            "beganAt": progress.began_at.isoformat(),
            "side": progress.side.value if progress.side else None,
            "position": progress.position,
            "counts": asdict(progress.counts),
            "lastCounts": asdict(progress.last_counts) if progress.last_counts else None,
            "form": progress.form,
            "lastEndedAt": text_or_none(progress.last_ended_at),
            "movedAt": text_or_none(progress.moved_at),
            "claimedUntil": text_or_none(progress.claimed_until),
            "since": text_or_none(progress.since),
            "until": text_or_none(progress.until),
            "left": [[key.type, key.id] for key in progress.left],
            "standsAt": text_or_none(progress.stands_at),
        }
        row = self._key, version, utc_now().isoformat(), json.dumps(document)

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

"""The effects of one aggregate are a marker and a mark for each event, changed in one transaction at their versions.

The marker and what waits stay: a marker that expired would let an old event run as a new one. A mark that is over, or
was started from a message, expires after the ids' time; by then its event is too old to be run.
"""

import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from pydantic import TypeAdapter

from cosmos_outbox.inbox.effect import EffectMarker, Mark, MarkState, SeenMark
from cosmos_outbox.inbox.effect_operator import EffectPage, OpenEffect
from cosmos_outbox.inbox.errors import NotSetAside, RecordChanged
from cosmos_outbox.inbox.stored import effect_id, mark_document, mark_of
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import new_id, utc_now
from cosmos_outbox.lists import continuation
from cosmos_outbox.sqlite.database import Database

_OF_ONE = "subscriber = ? AND aggregate_type = ? AND aggregate_id = ?"
_MARKER = f"SELECT * FROM markers WHERE {_OF_ONE}"  # noqa: S608 - of our own texts alone, as all below
_LIVES = "(expires_at IS NULL OR expires_at >= ?)"
_MARK = f"SELECT * FROM marks WHERE {_OF_ONE} AND event_id = ? AND {_LIVES}"  # noqa: S608
_ONE = f"SELECT * FROM marks WHERE effect_id = ? AND subscriber = ? AND {_LIVES}"  # noqa: S608
_WAITING = f"SELECT * FROM marks WHERE {_OF_ONE} AND holds ORDER BY sequence IS NULL, sequence LIMIT 100"  # noqa: S608
_AGGREGATES = (
    "SELECT aggregate_type, aggregate_id FROM markers WHERE subscriber = ? AND waiting > 0 ORDER BY written"
)
_NEXT = "(SELECT COALESCE(MAX(written), 0) + 1 FROM markers WHERE subscriber = ?)"
"""Whoever is written comes last."""
_PUT_MARKER = f"INSERT OR REPLACE INTO markers VALUES (?, ?, ?, ?, ?, ?, ?, {_NEXT})"  # noqa: S608
_PUT_MARK = "INSERT OR REPLACE INTO marks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_OPEN = (
    "SELECT * FROM marks WHERE subscriber = :subscriber AND (state IN (:waiting, :uncertain) OR (state = :started AND "
    "at < :died)) AND (expires_at IS NULL OR expires_at >= :now) AND (at, effect_id) > (:at, :last) "
    "ORDER BY at, effect_id LIMIT :most"
)
_STATES = {
    "waiting": MarkState.WAITING.value,
    "uncertain": MarkState.UNCERTAIN.value,
    "started": MarkState.STARTED.value,
}
_POSITION = TypeAdapter(tuple[str, str])


@dataclass(frozen=True)
class SqliteLedger:
    """See :class:`cosmos_outbox.inbox.ledger.Ledger`. There is one copy of the file: every read is behind a fence."""

    database: Database
    subscriber: str
    ids_ttl_seconds: int
    clock: Callable[[], datetime] = utc_now

    async def read(self, key: AggregateKey, event_id: str, *, fenced: bool) -> SeenMark:
        """An aggregate's marker and one mark. Raises StoreAway."""
        return await self.database.run(lambda connection: self._seen(connection, key, event_id))

    async def write(self, key: AggregateKey, marker: EffectMarker, mark: Mark) -> SeenMark:
        """Store both. Raises RecordChanged, StoreAway."""
        made = replace(marker, version=new_id().hex), replace(mark, version=new_id().hex)
        of_marker = [
            self.subscriber, *key, made[0].version, marker.last, marker.waiting, marker.running, self.subscriber
        ]  # fmt: skip
        of_mark = self._mark_row(key, made[1])

        def put(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM marks WHERE expires_at < ?", (self.clock().isoformat(),))
            stored = self._seen(connection, key, mark.event_id)
            versions = stored.marker.version, stored.mark.version if stored.mark else None
            if versions != (marker.version, mark.version):
                raise RecordChanged(f"the effects of {key} were changed: read them again")
            connection.execute(_PUT_MARKER, of_marker)
            connection.execute(_PUT_MARK, of_mark)

        await self.database.run(put)
        return SeenMark(*made)

    async def waiting(self, key: AggregateKey) -> Sequence[Mark]:
        """The first marks that hold an event. Raises StoreAway."""
        given = self.subscriber, *key
        rows = await self.database.run(lambda connection: connection.execute(_WAITING, given).fetchall())
        return [_mark(row) for row in rows]

    async def aggregates(self) -> AsyncIterator[AggregateKey]:
        """The aggregates of which something waits, the one that was written last comes last. Raises StoreAway."""
        given = (self.subscriber,)
        rows = await self.database.run(lambda connection: connection.execute(_AGGREGATES, given).fetchall())
        for row in rows:
            yield AggregateKey(*row)

    def _seen(self, connection: sqlite3.Connection, key: AggregateKey, event_id: str) -> SeenMark:
        of_one = self.subscriber, *key
        marker = connection.execute(_MARKER, of_one).fetchone()
        mark = connection.execute(_MARK, (*of_one, event_id, self.clock().isoformat())).fetchone()
        return SeenMark(_marker(marker) if marker else EffectMarker(), _mark(mark) if mark else None)

    def _mark_row(self, key: AggregateKey, mark: Mark) -> Sequence[Any]:
        expires = None
        if mark.waits is None:
            expires = (self.clock() + timedelta(seconds=self.ids_ttl_seconds)).isoformat()
        return [
            self.subscriber, *key, mark.event_id, mark.version, effect_id(self.subscriber, key, mark.event_id),
            mark.state.value, mark.at.isoformat(), mark.sequence, mark.waits is not None,
            json.dumps(mark_document(mark)), expires,
        ]  # fmt: skip


@dataclass(frozen=True)
class SqliteEffectList:
    """See :class:`cosmos_outbox.inbox.effect_operator.EffectList`."""

    database: Database
    subscriber: str
    clock: Callable[[], datetime] = utc_now

    async def page(self, size: int, continuation_token: str | None, died_before: datetime) -> EffectPage:
        """A page of open effects. Raises UnknownContinuation, StoreAway."""
        scope = f"{self.database.path}/{self.subscriber}/effects"
        at, last = "", ""
        if continuation_token:
            at, last = _POSITION.validate_json(continuation.unseal(scope, continuation_token))
        given = {
            "subscriber": self.subscriber, **_STATES, "died": died_before.isoformat(),
            "now": self.clock().isoformat(), "at": at, "last": last, "most": size + 1,
        }  # fmt: skip
        rows = await self.database.run(lambda connection: connection.execute(_OPEN, given).fetchall())
        items = [_open(row, whole=False) for row in rows[:size]]
        if len(rows) == len(items):
            return EffectPage(items, None)
        position = [rows[size - 1]["at"], rows[size - 1]["effect_id"]]
        return EffectPage(items, continuation.seal(scope, json.dumps(position)))

    async def get(self, effect_id: str) -> OpenEffect:
        """One effect with its event. Raises NotSetAside, StoreAway."""
        given = effect_id, self.subscriber, self.clock().isoformat()
        row = await self.database.run(lambda connection: connection.execute(_ONE, given).fetchone())
        if row is None or row["state"] not in _STATES.values():
            raise NotSetAside("no open effect has this id: take an id from the list of effects")
        return _open(row, whole=True)


def _marker(row: sqlite3.Row) -> EffectMarker:
    return EffectMarker(row["last"], row["waiting"], row["running"], row["version"])


def _key(row: sqlite3.Row) -> AggregateKey:
    return AggregateKey(row["aggregate_type"], row["aggregate_id"])


def _mark(row: sqlite3.Row) -> Mark:
    return mark_of(_key(row), json.loads(row["document"]), row["version"])


def _open(row: sqlite3.Row, *, whole: bool) -> OpenEffect:
    """With its event, which holds personal data, only as a whole."""
    document = json.loads(row["document"])
    held = document["event"]
    mark = mark_of(_key(row), document if whole else {**document, "event": None}, row["version"])
    return OpenEffect(row["effect_id"], _key(row), held and held["action"], mark, mark.waits or mark.kept)

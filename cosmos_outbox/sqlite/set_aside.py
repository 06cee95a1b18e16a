"""A record is created once and changed at its version; a closed one has lost its message, and expires."""

import json
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cosmos_outbox.inbox.errors import NotSetAside, RecordChanged
from cosmos_outbox.inbox.set_aside import Delivery, Record, RecordPage, RecordState
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import new_id, utc_now
from cosmos_outbox.lists import continuation
from cosmos_outbox.sqlite.database import Database

_OPEN = "subscription = :subscription AND state IN ('waiting', 'refused')"
_WAITING = "subscription = :subscription AND state = 'waiting'"
_OF_ONE = f"{_WAITING} AND aggregate_type = :type AND aggregate_id = :id"
_NEXT = "(SELECT COALESCE(MAX(tried), 0) + 1 FROM records WHERE subscription = :subscription)"
"""Whoever is tried comes last."""


@dataclass(frozen=True)
class SqliteSetAside:
    """The records of one subscription. See :class:`cosmos_outbox.inbox.set_aside.SetAside`."""

    database: Database
    subscription: str
    closed_ttl_seconds: int
    clock: Callable[[], datetime] = utc_now

    async def add(self, record: Record) -> None:
        """Create a record, unless there is one of its id. Raises StoreAway."""
        row = self._values(record)
        names, places = ", ".join(row), ", ".join(f":{name}" for name in row)
        create = f"INSERT OR IGNORE INTO records ({names}, tried) VALUES ({places}, {_NEXT})"  # noqa: S608

        def write(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM records WHERE expires_at < ?", (self.clock().isoformat(),))
            connection.execute(create, row)

        await self.database.run(write)

    async def waits(self, aggregate: AggregateKey) -> bool:
        """Whether a record of the aggregate waits: one is looked up, however many there are. Raises StoreAway."""
        given = {"type": aggregate.type, "id": aggregate.id}
        return await self._list(_OF_ONE, "id", given, 1) != []

    async def waiting(self, aggregate: AggregateKey | None = None) -> AsyncIterator[Record]:
        """The records that wait. Raises StoreAway."""
        where, given = _WAITING, dict[str, Any]()
        if aggregate is not None:
            where, given = _OF_ONE, {"type": aggregate.type, "id": aggregate.id}
        for record in await self._list(where, "tried", given):
            yield record

    async def older(self, than: datetime) -> AsyncIterator[Record]:
        """The open records from before then. Raises StoreAway."""
        for record in await self._list(f"{_OPEN} AND set_aside_at < :than", "id", {"than": than.isoformat()}):
            yield record

    async def page(self, size: int, continuation_token: str | None) -> RecordPage:
        """A page of open records. Raises UnknownContinuation, StoreAway."""
        scope = f"{self.database.path}/{self.subscription}/set-aside"
        at, last = "", ""
        if continuation_token:
            at, last = json.loads(continuation.unseal(scope, continuation_token))
        where = f"{_OPEN} AND (set_aside_at, id) > (:at, :last)"
        found = await self._list(where, "set_aside_at, id", {"at": at, "last": last}, size + 1)
        items = found[:size]
        if len(found) == len(items):
            return RecordPage(items, None)
        more = json.dumps([items[-1].set_aside_at.isoformat(), items[-1].id])
        return RecordPage(items, continuation.seal(scope, more))

    async def count(self, state: RecordState) -> int:
        """How many records are in this state. Raises StoreAway."""
        query = "SELECT COUNT(*) FROM records WHERE subscription = ? AND state = ?"
        given = self.subscription, state.value
        return int(await self.database.run(lambda connection: connection.execute(query, given).fetchone()[0]))

    async def get(self, record_id: str) -> Record:
        """One record, with what is left of its message. Raises NotSetAside, StoreAway."""
        query = (
            "SELECT * FROM records WHERE subscription = :subscription AND id = :id "
            "AND (expires_at IS NULL OR expires_at >= :now)"
        )
        given = {"subscription": self.subscription, "id": record_id, "now": self.clock().isoformat()}
        row = await self.database.run(lambda connection: connection.execute(query, given).fetchone())
        if row is None:
            raise NotSetAside("no record has this id: it was closed long ago, or there never was one")
        return self._record(row, whole=True)

    async def change(self, record: Record, state: RecordState, reason: str, *, attempts: int) -> None:
        """Write what became of a record. Raises RecordChanged, StoreAway."""
        given: dict[str, Any] = {
            "subscription": self.subscription, "id": record.id, "was": record.version, "version": new_id().hex,
            "state": state.value, "reason": reason, "attempts": attempts, "expires_at": None,
        }  # fmt: skip
        emptied = ""
        if not state.is_open:
            expires = self.clock() + timedelta(seconds=self.closed_ttl_seconds)
            given["expires_at"], emptied = expires.isoformat(), ", body = NULL, properties = NULL"
        query = (
            "UPDATE records SET version = :version, state = :state, reason = :reason, attempts = :attempts, "  # noqa: S608
            f"tried = {_NEXT}, expires_at = :expires_at{emptied} "
            "WHERE subscription = :subscription AND id = :id AND version = :was"
        )
        if await self.database.run(lambda connection: connection.execute(query, given).rowcount) != 1:
            raise RecordChanged("somebody else changed the record: read it again")

    async def _list(self, where: str, order: str, given: dict[str, Any], most: int = -1) -> Sequence[Record]:
        query = f"SELECT * FROM records WHERE {where} ORDER BY {order} LIMIT {most}"  # noqa: S608
        given = given | {"subscription": self.subscription}
        rows = await self.database.run(lambda connection: connection.execute(query, given).fetchall())
        return [self._record(row, whole=False) for row in rows]

    def _values(self, record: Record) -> dict[str, Any]:
        delivery, aggregate = record.delivery, record.aggregate
        return {
            "subscription": self.subscription,
            "id": record.id,
            "version": new_id().hex,
            "state": record.state.value,
            "reason": record.reason,
            "set_aside_at": record.set_aside_at.isoformat(),
            "attempts": record.attempts,
            "message_id": record.message_id,
            "enqueued_number": record.enqueued_number,
            "event_id": record.event_id,
            "aggregate_type": aggregate.type if aggregate else None,
            "aggregate_id": aggregate.id if aggregate else None,
            "action": record.action,
            "sequence": record.sequence,
            "body": delivery.body if delivery else None,
            "properties": json.dumps(dict(delivery.properties)) if delivery else None,
        }

    def _record(self, row: sqlite3.Row, *, whole: bool) -> Record:
        delivery = None
        if whole and row["body"] is not None:
            properties = json.loads(row["properties"])
            delivery = Delivery(
                self.subscription, row["message_id"], row["enqueued_number"], row["body"], properties
            )
        return Record(
            id=row["id"],
            state=RecordState(row["state"]),
            reason=row["reason"],
            set_aside_at=datetime.fromisoformat(row["set_aside_at"]),
            message_id=row["message_id"],
            enqueued_number=row["enqueued_number"],
            event_id=row["event_id"],
            aggregate=AggregateKey(row["aggregate_type"], row["aggregate_id"])
            if row["aggregate_type"]
            else None,
            action=row["action"],
            sequence=row["sequence"],
            attempts=row["attempts"],
            delivery=delivery,
            version=row["version"],
        )

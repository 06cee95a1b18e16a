"""The rows of a read model in the order of a list, and the key of the file's lists. See ``cosmos_outbox/lists/``."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cosmos_outbox.inbox.form import Condition
from cosmos_outbox.lists.listing import Sorted
from cosmos_outbox.lists.token_key import TokenKey, new_key
from cosmos_outbox.sqlite.database import Database
from cosmos_outbox.sqlite.entries import form_item

_KEY = "continuation"


@dataclass(frozen=True)
class SqliteItems:
    """The living entries of one read model. See :class:`cosmos_outbox.lists.listing.Items`."""

    database: Database
    name: str

    async def first(
        self, conditions: Sequence[Sequence[Condition]], by: Sorted, most: int, after: Sequence[str] | None
    ) -> Sequence[Mapping[str, Any]]:
        """The first entries. Raises StoreAway."""
        query, given = _query(conditions, after, down=by.down)
        given |= {"name": self.name, "sort": _path(by.text), "size": most}
        rows = await self.database.run(lambda connection: connection.execute(query, given).fetchall())
        return [_item(row) for row in rows]


def token_key(database: Database) -> TokenKey:
    """The key of one file's lists. Its calls raise StoreAway."""
    made = new_key()

    def kept(connection: sqlite3.Connection) -> str:
        connection.execute("INSERT OR IGNORE INTO keys VALUES (?, ?)", (_KEY, made))
        found: str = connection.execute("SELECT key FROM keys WHERE name = ?", (_KEY,)).fetchone()["key"]
        return found

    return TokenKey(lambda: database.run(kept))


def _item(row: sqlite3.Row) -> Mapping[str, Any]:
    return {
        "id": row["id"],
        "search": json.loads(row["search"]),
        "lastSequence": row["last_sequence"],
        "appliedAt": row["applied_at"],
        "lateSeconds": row["late_seconds"],
        "blockedSince": row["blocked_since"],
        **form_item(row),
    }


def _query(
    conditions: Sequence[Sequence[Condition]], after: Sequence[str] | None, *, down: bool
) -> tuple[str, dict[str, Any]]:
    given: dict[str, Any] = {}
    where = ["name = :name", "state IS NOT NULL", "place IS NOT NULL"]
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
        where.append(f"(json_extract(search, :sort), id) {'<' if down else '>'} (:place, :id)")
    order = "place DESC, id DESC" if down else "place, id"
    query = (
        "SELECT *, json_extract(search, :sort) AS place FROM entries "  # noqa: S608 - of our own texts alone
        f"WHERE {' AND '.join(where)} ORDER BY {order} LIMIT :size"
    )
    return query, given


def _path(name: str) -> str:
    return f'$."{name}"'

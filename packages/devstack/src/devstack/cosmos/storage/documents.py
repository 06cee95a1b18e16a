"""An item is stored as its client wrote it, less the system's properties, which are added again on the way out."""

import sqlite3
from dataclasses import dataclass
from typing import Any

from devstack.cosmos.protocol.errors import TOO_LARGE, CosmosError, bad_request
from devstack.cosmos.protocol.json_text import Json, dump_json
from devstack.cosmos.storage.epk import Components
from devstack.cosmos.storage.model import Container
from devstack.cosmos.storage.partition_key import of_document
from devstack.cosmos.storage.rid import child_rid
from devstack.cosmos.storage.ttl import item_ttl

MAX_ITEM_BYTES = 2 * 1024 * 1024
MAX_ID_BYTES = 1023
MAX_NAME_BYTES = 254
"""Of a database or a container."""

MAX_DEPTH = 128
"""https://learn.microsoft.com/azure/cosmos-db/concepts-limits: per-item limits."""

SYSTEM_PROPERTIES = ("_rid", "_self", "_etag", "_attachments", "_ts")
COLUMNS = "number, range, id, lsn, timestamp, etag, expires, body"


@dataclass(frozen=True)
class NewItem:
    """A checked item that is not stored yet."""

    id: str
    components: Components
    ttl: int | None
    text: str


@dataclass(frozen=True)
class StoredItem:
    """A row of the table of items; ``expires`` is the last second in which it is visible."""

    number: int
    range: int
    id: str
    lsn: int
    timestamp: int
    etag: str
    expires: int | None
    text: str

    @classmethod
    def from_row(cls, row: tuple[Any, ...]) -> "StoredItem":
        return cls(*row)

    def rendered(self, container: Container, *, with_lsn: bool = False) -> str:
        """The item's JSON as clients see it; only the change feed shows ``_lsn``."""
        return render(
            container, self.number, self.text, self.etag, self.timestamp, self.lsn if with_lsn else None
        )


def render(  # noqa: PLR0913, PLR0917 - the columns that an item is made of
    container: Container, number: int, text: str, etag: str, timestamp: int, lsn: int | None = None
) -> str:
    rid = child_rid(container.rid, number)
    quoted_etag = '"\\"' + etag.strip('"') + '\\""'
    feed = "" if lsn is None else f',"_lsn":{lsn}'
    return (
        f'{text[:-1]},"_rid":"{rid}","_self":"{container.self_link}docs/{rid}/","_etag":{quoted_etag},'
        f'"_attachments":"attachments/","_ts":{timestamp}{feed}}}'
    )


def find(
    run: sqlite3.Connection, container: Container, key: str, item_id: str, now: int
) -> StoredItem | None:
    """The item, unless it has expired. ``key`` is the stored form of the partition key."""
    row = run.execute(
        f"SELECT {COLUMNS} FROM {container.seen} WHERE pk = ? AND id = ? AND (expires IS NULL OR expires >= ?)",
        (key, item_id, now),
    ).fetchone()
    return None if row is None else StoredItem.from_row(row)


def check_size(body: bytes) -> None:
    """Raises 413: the service measures the request as it was sent, escapes and all."""
    if len(body) > MAX_ITEM_BYTES:
        raise CosmosError(TOO_LARGE, "Request size is too large: an item may have at most 2 MB.")


def check_item(container: Container, document: Json) -> NewItem:
    """The item that ``document`` describes. Raises 400, or 413."""
    item_id = check_id(document)
    _check_depth(document, MAX_DEPTH)
    kept = {name: value for name, value in document.items() if name not in SYSTEM_PROPERTIES}
    text = dump_json(kept)
    check_size(text.encode())
    return NewItem(item_id, of_document(container.key, document), item_ttl(document), text)


def check_id(document: Json, longest: int = MAX_ID_BYTES) -> str:
    """The ``id`` of an item, or with another ``longest`` of a database or a container. Raises 400."""
    value = document.get("id")
    if value is None or value == "":
        raise bad_request(
            "The input content is invalid because the required properties - 'id; ' - are missing"
        )
    if not isinstance(value, str):
        raise bad_request("The input content is invalid: 'id' must be a string.")
    if any(character in value for character in "/\\?#"):
        raise bad_request("The input content is invalid: 'id' must not hold any of '/', '\\', '?', '#'.")
    if len(value.encode(errors="surrogatepass")) > longest:
        raise bad_request(
            "The input name is invalid. Ensure to provide a unique non-empty string less than"
            f" '{longest + 1}' characters."
        )
    return value


def _check_depth(value: Any, left: int) -> None:
    if left < 0:
        raise bad_request(f"The document is nested deeper than {MAX_DEPTH} levels.")
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return
    for child in value:
        if isinstance(child, dict | list):
            _check_depth(child, left - 1)

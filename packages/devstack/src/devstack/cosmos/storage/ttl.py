"""An expired item is gone at once, wherever it is looked for; its row goes later.

An item lives ``ttl`` seconds from its ``_ts``, its last write; both are whole seconds, so it is visible through the
second ``_ts + ttl`` and not after. Its own ``ttl`` counts only where the container has a default TTL:
https://learn.microsoft.com/azure/cosmos-db/nosql/time-to-live
"""

import sqlite3
from typing import Any

from devstack.cosmos.protocol.errors import bad_request
from devstack.cosmos.protocol.json_text import Json
from devstack.cosmos.storage.model import Container

NEVER = -1
MAX_SECONDS = 2147483647
PURGE_ROWS = 500


def item_ttl(document: Json) -> int | None:
    """The ``ttl`` that the item itself has; None when it has none. Raises 400 for 0, null and other nonsense."""
    if "ttl" not in document:
        return None
    return _check("ttl", document["ttl"])


def container_ttl(properties: Json) -> int | None:
    """The ``defaultTtl`` of a container; null is as good as none. Raises 400."""
    value = properties.get("defaultTtl")
    return None if value is None else _check("defaultTtl", value)


def _check(name: str, value: Any) -> int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and value == int(value)
    if not is_number or not (value == NEVER or 1 <= value <= MAX_SECONDS):
        raise bad_request(
            f"The input {name} {value!r} is invalid. Ensure to provide a nonzero positive integer less than or equal"
            f" to {MAX_SECONDS}, or {NEVER}."
        )
    return int(value)


def last_second(default: int | None, ttl: int | None, timestamp: int) -> int | None:
    """The last second in which the item is visible; None: it does not expire."""
    if default is None:
        return None
    seconds = default if ttl is None else ttl
    return None if seconds == NEVER else timestamp + seconds


def recompute(run: sqlite3.Connection, container: Container, default: int | None) -> None:
    """After the container's default changed: every item's last second anew."""
    if default is None:
        run.execute(f"UPDATE {container.items} SET expires = NULL")
        return
    run.execute(
        f"UPDATE {container.items} SET expires ="
        " CASE coalesce(ttl, ?1) WHEN -1 THEN NULL ELSE timestamp + coalesce(ttl, ?1) END",
        (default,),
    )


def purge(run: sqlite3.Connection, container: Container, now: int) -> int:
    """Delete some of the rows that have expired; returns how many. A bounded number, so that no request waits long."""
    return run.execute(
        f"DELETE FROM {container.items} WHERE number IN"
        f" (SELECT number FROM {container.items} WHERE expires < ? LIMIT {PURGE_ROWS})",
        (now,),
    ).rowcount

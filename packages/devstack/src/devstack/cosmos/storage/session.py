"""A session token says how far a client has seen each physical partition: writes move it on, reads do not.

Wire form: ``<range>:-1#<lsn>``, several joined by commas.
"""

import sqlite3
from collections.abc import Mapping

from devstack.cosmos.protocol.errors import bad_request
from devstack.cosmos.storage.model import Container, Range


def current_lsn(run: sqlite3.Connection, container: Container, part: Range) -> int:
    """The log sequence number of the last transaction in the partition."""
    row = run.execute(
        "SELECT lsn FROM ranges WHERE container = ? AND id = ?", (container.number, part.id)
    ).fetchone()
    lsn: int = row[0]
    return lsn


def advance_lsn(run: sqlite3.Connection, container: Container, part: Range) -> int:
    """Number the open transaction; call it once in each."""
    lsn = current_lsn(run, container, part) + 1
    run.execute("UPDATE ranges SET lsn = ? WHERE container = ? AND id = ?", (lsn, container.number, part.id))
    return lsn


def token(part: Range, lsn: int) -> str:
    return f"{part.id}:-1#{lsn}"


def seen_by(part: Range, tokens: Mapping[int, int]) -> int:
    """The last transaction of the partition that the client has seen; what it saw before a split counts."""
    return max(tokens.get(number, 0) for number in (part.id, *part.parents))


def parse(header: str) -> dict[int, int]:
    """The last transaction seen, by physical partition. Raises 400."""
    seen: dict[int, int] = {}
    for pair in header.split(",") if header else ():
        number, _, vector = pair.strip().partition(":")
        pieces = vector.split("#")
        try:
            seen[int(number)] = int(pieces[1] if len(pieces) > 1 else pieces[0])
        except ValueError as error:
            raise bad_request(f"The session token is not valid: {header[:100]}") from error
    return seen

"""What a stored document may hold is looked at without an error: what is not as it should be is told, or left out.

Others may write into the container, and the change feed's host writes some texts anew. ``in_utc`` and ``encodable``
raise ValueError, for pydantic to tell.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeGuard

from cosmos_outbox.outbox.feed import Lifetime

LARGEST_INTEGER = 2**53
"""Beyond it the store, which keeps doubles, and readers of JSON make another number of an integer."""

_LARGEST_SECONDS = 2**36
"""Beyond any time and TTL; dates can be reckoned with what is below."""
_LARGEST_LSN = 2**63
_LONGEST_ITEM_ID = 1023
"""In bytes (https://learn.microsoft.com/azure/cosmos-db/concepts-limits)."""


def in_utc(at: datetime) -> datetime:
    """A time without an offset is taken as UTC, whatever the zone of this machine. Raises ValueError."""
    if at.tzinfo is None:
        return at.replace(tzinfo=UTC)
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError("the time is outside the calendar in UTC") from None


def encodable(text: str) -> str:
    """Raises ValueError for a text that no message can carry, and no log line can show."""
    if not is_text(text):
        raise ValueError("the text has a lone surrogate")
    return text


def is_text(value: Any) -> TypeGuard[str]:
    """Whether every store and broker takes the value as a text: it has no lone surrogate."""
    try:
        return isinstance(value, str) and bool(value.isascii() or value.encode())
    except UnicodeEncodeError:
        return False


def plain(value: Any) -> bytes:
    """Any JSON as bytes, to tell it from another; of what has no form, its type."""
    try:
        return json.dumps(value).encode()
    except (ValueError, TypeError, RecursionError):
        return type(value).__name__.encode()


def document_id(item: Mapping[str, Any]) -> str:
    """The document's id. One that no log line can show, or no store keep, has a stand-in, the same for the same id."""
    found = item.get("id", "")
    if isinstance(found, str) and len(found) <= _LONGEST_ITEM_ID and found.isprintable():
        return found
    return f"unreadable-{hashlib.sha256(plain(found)).hexdigest()[:32]}"


def lsn(item: Mapping[str, Any]) -> int:
    """The log sequence number that the change feed gave the document; 0: none."""
    found = item.get("_lsn")
    return found if type(found) is int and 0 <= found < _LARGEST_LSN else 0


def lifetime(item: Mapping[str, Any]) -> Lifetime | None:
    """When the document expires; None: never."""
    ttl, written_at = item.get("ttl"), item.get("_ts")
    if type(ttl) is int and type(written_at) is int and 0 < ttl < _LARGEST_SECONDS > written_at >= 0:
        return Lifetime(written_at, ttl)
    return None

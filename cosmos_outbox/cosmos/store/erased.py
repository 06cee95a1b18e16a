"""A message of an erased person that comes late, or is in somebody's hands meanwhile, leaves nothing of the person.

The eraser notes the aggregate's id beside the records of a subscription *before* it looks for them behind a fence. Who
creates a record looks for that note *after* it, by a read that misses nothing before the record. So one of the two sees
the other, whatever comes first (``erased-keeps-nothing``). Who dies in between has not completed the message.
"""

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.writes import Write

ERASED = "erased"
"""The state of a note, and what stands in the place of a text that somebody wrote, as of a reason."""

_CLOSED_AS_IT_IS = ("applied", "overdue")


def note(aggregate_id: str, subscription: str, ttl: int) -> Write:
    """The note that an aggregate is erased; written again, its TTL begins anew."""
    return Write.upsert(
        {
            "id": note_id(aggregate_id),
            "partitionKey": subscription,
            "type": ERASED,
            "state": ERASED,
            "erasedId": aggregate_id,
            "ttl": ttl,
        }
    )


def note_id(aggregate_id: str) -> str:
    """An id that no record has, and that the store takes, whatever the aggregate's id is."""
    return f"{ERASED}-{hashlib.sha256(aggregate_id.encode()).hexdigest()[:32]}"


def emptied(record: Item, closed_ttl: int) -> Write | None:
    """The write that closes a record and takes out its message; None: it is as it should be."""
    state = record.get("state")
    fields = {
        "state": state if state in _CLOSED_AS_IT_IS else "discarded",
        "reason": ERASED,
        "body": None,
        "properties": None,
        "ttl": closed_ttl,
    }
    return replaced(record, **fields)


def replaced(item: Item, **fields: Any) -> Write | None:
    """The item with these fields; None: it has them. Its TTL begins anew."""
    if all(name in item and item[name] == value for name, value in fields.items()):
        return None
    plain = {name: value for name, value in item.items() if not name.startswith("_")}
    return Write.replace(plain | fields, str(item["_etag"]))


def names(body: bytes, properties: Mapping[str, Any], aggregate_id: str) -> bool:
    """Whether a message that could not be read names the aggregate, in its text or its properties."""
    return aggregate_id.encode() in body or aggregate_id in map(str, properties.values())


def record_names(record: Item, aggregate_id: str) -> bool:
    """As :func:`names`, of the message in a record."""
    return names(base64.b64decode(record.get("body") or ""), record.get("properties") or {}, aggregate_id)

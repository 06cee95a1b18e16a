"""Events beside a team's own documents can be published, and the documents stored: checked before they are sent.

A document is taken as JSON when it is given: what the caller changes in it later is not stored.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from cosmos_outbox.cosmos.aggregates.documents import EVENT_TYPE, EventReader, caused_by, sealed
from cosmos_outbox.cosmos.aggregates.publishable import check_storable
from cosmos_outbox.cosmos.store.item import FENCE, Item
from cosmos_outbox.cosmos.store.partition_key import Key, PartitionKeyPaths
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.errors import Unpublishable
from cosmos_outbox.outbox.event import ENVELOPE, Timestamp
from cosmos_outbox.outbox.feed import Poison
from cosmos_outbox.outbox.unit_of_work import Origin

_OF_THE_STORE = {"_rid", "_self", "_etag", "_attachments", "_ts"}
NO_ID = re.compile(r"[/\\?#]|^\.\.?$")
"""What is in no id. One or two dots alone are taken out of a request's path, so that no client reads the document."""
_LONGEST_ID = 1023
"""In bytes (https://learn.microsoft.com/azure/cosmos-db/concepts-limits#per-item-limits)."""

_time: TypeAdapter[datetime] = TypeAdapter(Timestamp)


@dataclass(frozen=True)
class Place:
    """A partition."""

    key: Key
    paths: PartitionKeyPaths


@dataclass(frozen=True)
class Raised:
    """An event that a transaction raises."""

    id: str
    aggregate: AggregateKey
    action: str
    at: datetime
    data: Mapping[str, Any]
    numbered_by: str
    """The id of the aggregate's document."""
    schema_version: int


def as_json(value: Mapping[str, Any], what: str) -> Item:
    """A copy, as it will be read again. Raises Unpublishable: it is no JSON."""
    try:
        copy: Item = json.loads(json.dumps(dict(value)))
    except (TypeError, ValueError, RecursionError) as error:
        raise Unpublishable(f"{what} is no JSON: {error}") from None
    return copy


def check_id(item_id: Any) -> None:
    """Raise Unpublishable for what is no id of a document, or is that of a document of the outbox."""
    try:
        length = len(item_id.encode()) if isinstance(item_id, str) else 0
    except UnicodeEncodeError:
        length = 0
    if not 1 <= length <= _LONGEST_ID or NO_ID.search(item_id):
        raise Unpublishable(
            f"the id of a document must be a text of 1 to {_LONGEST_ID} bytes without / \\ ? #, and not . or ..: give "
            "it such an id"
        )
    if item_id == FENCE:
        raise Unpublishable(
            f"the outbox stores a document of its own under the id {FENCE}: put something before it"
        )


def without_system_fields(item: Item) -> Item:
    """The document without what the store has put in, which a document that was read carries."""
    return {name: value for name, value in item.items() if name not in _OF_THE_STORE}


def own_document(document: Mapping[str, Any], place: Place) -> Item:
    """A team's document as it is to be stored. Raises Unpublishable, and ValueError for one of another partition."""
    item = without_system_fields(as_json(document, "a document"))
    check_id(item.get("id"))
    paths = place.paths
    found = paths.of(item)
    if found is None or paths.text(found) != paths.text(place.key):
        raise ValueError(
            f"document {item['id']} is not in the partition of this transaction: at {', '.join(paths.paths)} it must "
            "have what was given to transaction()"
        )
    if item.get("type") == EVENT_TYPE:
        raise Unpublishable(
            f"document {item['id']} has the type {EVENT_TYPE}, and the relay would take it for an event: raise events "
            "with event(), or give the document another type"
        )
    check_storable(f"document {item['id']}", item, around=0)
    return item


def event_data(data: Mapping[str, Any] | None) -> Item:
    """What the caller tells of an event. Raises Unpublishable, and ValueError for a name that the outbox fills."""
    copy = as_json(data or {}, "the data of an event")
    if taken := sorted(ENVELOPE & copy.keys()):
        raise ValueError(f"the outbox itself fills {', '.join(taken)} of an event: take other names in data")
    return copy


def event_document(raised: Raised, sequence: int | None, place: Place, origin: Origin, *, ttl: int) -> Item:
    """The event's document, which the relay can read and send. Raises Unpublishable."""
    key, paths = place.key, place.paths
    numbered = {} if sequence is None else {"sequence": sequence}
    item: Item = {
        "id": raised.id,
        **paths.fields(list(key) if isinstance(key, tuple) else key),
        "type": EVENT_TYPE,
        "aggregateType": raised.aggregate.type,
        "aggregateId": raised.aggregate.id,
        "data": {
            "id": raised.id,
            "action": raised.action,
            **numbered,
            "createdAt": _time.dump_python(raised.at, mode="json"),
            **raised.data,
            **caused_by(origin),
        },
    }
    read = EventReader(paths=paths).event(item)
    if read is None or isinstance(read, Poison):
        why = read.reason if read else "it is none"
        raise Unpublishable(
            f"event {raised.action} of {raised.aggregate} could not be read by the relay: {why}. A text is 1 to 128 "
            f"characters, and {raised.aggregate.type}Id in data, if it is there, is the aggregate's id"
        )
    return sealed(item, schema_version=raised.schema_version, ttl=ttl, paths=paths)

"""Checks a team's own documents and events before they are sent: the store takes them, and the relay can publish.

A document is taken as JSON when it is given: what the caller changes in it later is not stored.

An aggregate's events are numbered 1, 2, 3 … without a gap: the last number stands in the aggregate's own document.

That holds only since the document is in the same transaction, and is created, or replaced at the version that was read:
of two writers at once one is refused. So a transaction in which the document is missing, or is written in another way,
is refused before it is sent.

A patch in a transaction changes what it names and nothing that the store, the relay or the numbering goes by.

What a patch makes of a document is known to the store alone. So the number of an aggregate's newest event cannot be
patched: it stands in the event, which is sent in the same batch, before any answer.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter

from cosmos_outbox.cosmos.aggregates.documents import (
    EVENT_TYPE,
    EventReader,
    caused_by,
    check_storable,
    sealed,
)
from cosmos_outbox.cosmos.store.container import Write
from cosmos_outbox.cosmos.store.partition_key import (
    NO_ITEM,
    TOKEN_ID,
    Item,
    Key,
    PartitionKeyPaths,
    at,
    overlap,
    parts,
    put,
    without_system_fields,
)
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate import Origin
from cosmos_outbox.outbox.errors import Unpublishable
from cosmos_outbox.outbox.event import ENVELOPE, Timestamp
from cosmos_outbox.outbox.feed import Poison

NO_ID = re.compile(r"[/\\?#]|^\.\.?$")
"""Texts that cannot be ids: HTTP clients remove one or two dots alone from a path."""
_LONGEST_ID = 1023
"""In bytes (https://learn.microsoft.com/azure/cosmos-db/concepts-limits#per-item-limits)."""

_time: TypeAdapter[datetime] = TypeAdapter(Timestamp)


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
    """Returns a copy, as it will be read again. Raises Unpublishable: it is no JSON."""
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
    if item_id in (NO_ITEM, TOKEN_ID):
        raise Unpublishable(
            f"the outbox stores a document of its own under the id {item_id}: put something before it"
        )


def own_document(document: Mapping[str, Any], key: Key, paths: PartitionKeyPaths) -> Item:
    """Returns a team's document as it is to be stored. Raises Unpublishable; ValueError: it is of another partition."""
    item = without_system_fields(as_json(document, "a document"))
    check_id(item.get("id"))
    found = paths.of(item)
    if found is None or paths.text(found) != paths.text(key):
        raise ValueError(
            f"document {item['id']} is not in the partition of this transaction: give "
            f"{', '.join(paths.paths)} the value that was given to transaction()"
        )
    if item.get("type") == EVENT_TYPE:
        raise Unpublishable(
            f"document {item['id']} has the type {EVENT_TYPE}, and the relay would take it for an event: raise events "
            "with event(), or give the document another type"
        )
    check_storable(f"document {item['id']}", item, around=0)
    return item


def event_data(data: Mapping[str, Any] | None) -> Item:
    """The caller's part of an event. Raises Unpublishable, and ValueError for a name that the outbox fills."""
    copy = as_json(data or {}, "the data of an event")
    if taken := sorted(ENVELOPE & copy.keys()):
        raise ValueError(f"the outbox itself fills {', '.join(taken)} of an event: take other names in data")
    return copy


def event_document(  # noqa: PLR0913 - an event, and where it is stored
    raised: Raised, sequence: int | None, key: Key, origin: Origin, *, paths: PartitionKeyPaths, ttl: int
) -> Item:
    """The event's document, which the relay can read and send. Raises Unpublishable."""
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


_LARGEST = 2**53 - 1


@dataclass(frozen=True)
class Numbering:
    """``fields``: by the type of an aggregate the path of the last sequence in its document; None: it has none."""

    fields: Mapping[str, str | None]

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if not self.fields:
            raise ValueError("ExistingContainer names no aggregate: name the type of each that raises events")
        for path in filter(None, self.fields.values()):
            if parts(path) in (("id",), ("type",), ("ttl",)):
                raise ValueError(f"{path} cannot hold a sequence: name a field of its own")

    @property
    def paths(self) -> Sequence[str]:
        """The paths at which documents have a sequence."""
        return [path for path in self.fields.values() if path is not None]

    def check(self, aggregate: AggregateKey) -> None:
        """Raise ValueError for a type that was not declared, and Unpublishable for an id that no aggregate can have."""
        if aggregate.type not in self.fields:
            raise ValueError(
                f"{aggregate.type} is no aggregate of this service: name it in ExistingContainer, with the path of its "
                "sequence or None"
            )
        if type(aggregate.id) is not str or NO_ID.search(aggregate.id):
            raise Unpublishable(
                f"the id of a {aggregate.type} must be a text without / \\ ? #, and not . or ..: give it such an id"
            )

    def number(self, raised: Sequence[Raised], writes: Mapping[str, Write]) -> list[int | None]:
        """The sequence of each event; the last one of an aggregate is put into its document.

        Raises ValueError: an aggregate's document is not in the transaction as it must be.
        """
        sequences: list[int | None] = []
        owners: dict[tuple[str, str], AggregateKey] = {}
        places: dict[AggregateKey, str] = {}
        for event in raised:
            path = self.fields[event.aggregate.type]
            if path is None:
                sequences.append(None)
                continue
            document_id = event.numbered_by
            owner = owners.setdefault((document_id, path), event.aggregate)
            if owner != event.aggregate or places.setdefault(event.aggregate, document_id) != document_id:
                raise ValueError(
                    f"{event.aggregate} must have one document, whose {path} numbers no other aggregate: name the "
                    "same document in each of its events"
                )
            item = _document(event.aggregate, path, writes.get(document_id), document_id)
            sequence = _last(event.aggregate, path, item) + 1
            put(item, path, sequence)
            sequences.append(sequence)
        return sequences


def _document(aggregate: AggregateKey, path: str, write: Write | None, document_id: str) -> Item:
    if write is None or write.kind in ("upsert", "delete", "patch"):
        done = (
            "is not in this transaction" if write is None else f"is in this transaction with {write.kind}()"
        )
        raise ValueError(
            f"the events of {aggregate} are numbered by {path} of document {document_id}, which {done}: create() it, "
            "or replace() it at the version that was read. To remove an aggregate, replace its document by one that "
            "says so, with a ttl"
        )
    if write.kind == "create" and at(write.item, path) is None:
        put(write.item, path, 0)
    return write.item


def _last(aggregate: AggregateKey, path: str, item: Item) -> int:
    last = at(item, path)
    if type(last) is not int or not 0 <= last < _LARGEST:
        raise ValueError(
            f"{path} of the document of {aggregate} must be the number of its newest event, as it was read: 0 only "
            "when it never had one, or subscribers take its next events for old ones"
        )
    return last


MOST_OPERATIONS = 10
"""https://learn.microsoft.com/azure/cosmos-db/partial-document-update-faq"""

_FIELDS = {
    "add": {"path", "value"},
    "set": {"path", "value"},
    "replace": {"path", "value"},
    "incr": {"path", "value"},
    "remove": {"path"},
    "move": {"path", "from"},
}
"""The fields that an operation has besides ``op``."""

Pointed = tuple[str, ...]


def patch_of(
    item_id: str,
    operations: Sequence[Mapping[str, Any]],
    condition: str | None,
    *,
    key: PartitionKeyPaths,
    sequences: Collection[str],
) -> Item:
    """Returns the patch as it is to be stored. Raises ValueError, and Unpublishable for what it may not store."""
    check_id(item_id)
    if not 1 <= len(operations) <= MOST_OPERATIONS:
        raise ValueError(f"a patch has 1 to {MOST_OPERATIONS} operations, not {len(operations)}")
    if condition is not None and not condition.strip():
        raise ValueError("condition must be a text such as 'from c where c.seats > 0'")
    checked = [_checked(operation, f"the patch of document {item_id}") for operation in operations]
    for operation in checked:
        for name in {"path", "from"} & operation.keys():
            _check_place(operation, _place(operation[name]), key, sequences)
    return {
        "id": item_id,
        "operations": checked,
        **({} if condition is None else {"condition": condition}),
    }


def _checked(operation: Mapping[str, Any], what: str) -> Item:
    copy = as_json(operation, what)
    name = copy.get("op")
    if not isinstance(name, str) or copy.keys() - {"op"} != _FIELDS.get(name):
        known = "; ".join(f"{each}: {', '.join(sorted(fields))}" for each, fields in _FIELDS.items())
        raise ValueError(f"{what} has an operation that the store does not know: {name}. They are {known}")
    check_storable(what, copy.get("value"), around=len(_place(copy["path"])) if "path" in copy else 1)
    return copy


def _check_place(operation: Item, place: Pointed, key: PartitionKeyPaths, sequences: Collection[str]) -> None:
    path = "/" + "/".join(place)
    if place[0] == "id" or place[0].startswith("_") or any(overlap(place, parts(each)) for each in key.paths):
        raise ValueError(f"{path} cannot be patched: a document keeps its id and its partition")
    if any(overlap(place, parts(each)) for each in sequences):
        raise ValueError(
            f"{path} cannot be patched: it has the number of an aggregate's newest event. Read the document, and "
            "replace() it at its version"
        )
    if place == ("type",) and (operation["op"] == "move" or operation.get("value") == EVENT_TYPE):
        raise Unpublishable(
            f"a patch may not make a document of the type {EVENT_TYPE}, or of one that is not known before: the relay "
            "would take it for an event. Set /type to a text of your own"
        )


def _place(pointer: Any) -> Pointed:
    """The names on a JSON pointer."""
    if not isinstance(pointer, str) or not pointer.startswith("/") or pointer == "/":
        raise ValueError(f"{pointer!r} is no path in a document: write it as /seats, or /owner/name")
    return tuple(name.replace("~1", "/").replace("~0", "~") for name in pointer[1:].split("/"))

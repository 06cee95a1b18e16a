"""A patch in a transaction changes what it names and nothing that the store, the relay or the numbering goes by.

What a patch makes of a document is known to the store alone. So the number of an aggregate's newest event cannot be
patched: it stands in the event, which is sent in the same batch, before any answer.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cosmos_outbox.cosmos.aggregates.documents import EVENT_TYPE
from cosmos_outbox.cosmos.aggregates.publishable import check_storable
from cosmos_outbox.cosmos.own.documents import as_json, check_id
from cosmos_outbox.cosmos.store.item import Item
from cosmos_outbox.cosmos.store.partition_key import PartitionKeyPaths, meet, parts
from cosmos_outbox.outbox.errors import Unpublishable

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
"""What an operation has besides ``op``."""

Place = tuple[str, ...]


def patch_of(
    item_id: str,
    operations: Sequence[Mapping[str, Any]],
    condition: str | None,
    *,
    key: PartitionKeyPaths,
    sequences: Collection[str],
) -> Item:
    """The patch as it is to be stored. Raises ValueError, and Unpublishable for what it may not store."""
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


def _check_place(operation: Item, place: Place, key: PartitionKeyPaths, sequences: Collection[str]) -> None:
    path = "/" + "/".join(place)
    if place[0] == "id" or place[0].startswith("_") or any(meet(place, parts(each)) for each in key.paths):
        raise ValueError(f"{path} cannot be patched: a document keeps its id and its partition")
    if any(meet(place, parts(each)) for each in sequences):
        raise ValueError(
            f"{path} cannot be patched: it has the number of an aggregate's newest event. Read the document, and "
            "replace() it at its version"
        )
    if place == ("type",) and (operation["op"] == "move" or operation.get("value") == EVENT_TYPE):
        raise Unpublishable(
            f"a patch may not make a document of the type {EVENT_TYPE}, or of one that is not known before: the relay "
            "would take it for an event. Set /type to a text of your own"
        )


def _place(pointer: Any) -> Place:
    """The names on a JSON pointer."""
    if not isinstance(pointer, str) or not pointer.startswith("/") or pointer == "/":
        raise ValueError(f"{pointer!r} is no path in a document: write it as /seats, or /owner/name")
    return tuple(name.replace("~1", "/").replace("~0", "~") for name in pointer[1:].split("/"))

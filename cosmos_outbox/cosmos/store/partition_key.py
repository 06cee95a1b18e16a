"""The paths of an item's partition key, which only this module knows: one place reads them, one writes them.

The library's own containers have ``/partitionKey``. A container of a team's own may have another path, or several, of a
hierarchical key (https://learn.microsoft.com/azure/cosmos-db/hierarchical-partition-keys).

A stored document is read without an error: a value that is not as it should be is reported, or left out.

Others may write into the container, and the change feed's host writes some texts anew. ``in_utc`` and ``encodable``
raise ValueError, for pydantic to report.
"""

import functools
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Self, TypeGuard

from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.canonical import canonical

LARGEST_INTEGER = 2**53
"""Beyond it the store, which keeps doubles, and readers of JSON make another number of an integer."""

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
    """Any JSON as bytes, to distinguish it from another; of what has no form, its type."""
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


_OF_THE_STORE = {"_rid", "_self", "_etag", "_attachments", "_ts"}


def without_system_fields(item: "Item") -> "Item":
    """The document without what the store has put in, which a document that was read carries."""
    return {name: value for name, value in item.items() if name not in _OF_THE_STORE}


def lsn(item: Mapping[str, Any]) -> int:
    """The log sequence number that the change feed gave the document; 0: none."""
    found = item.get("_lsn")
    return found if type(found) is int and 0 <= found < _LARGEST_LSN else 0


Item = dict[str, Any]
"""A Cosmos item: JSON on its way to or from the SDK."""

KEEP_FOR_EVER = -1
"""The ``ttl`` of an item that never expires."""

NO_ITEM = "outbox-fence"
"""The id of an item that never exists: the refusal to replace it carries a session token (:mod:`.container`)."""

TOKEN_ID = "outbox-fence-token"  # noqa: S105 - an id
"""The id of the item, of the type ``NO_ITEM``, that is written where a refusal carries no session token."""


Value = str | int | float | bool
Key = Value | tuple[Value, ...]
"""A partition key; that of a hierarchical key has one value for each path."""

_MOST_PATHS = 3
_LARGEST_INTEGER = 2**53 - 1
LONGEST_KEY = 2048
"""In bytes (https://learn.microsoft.com/azure/cosmos-db/concepts-limits)."""
OF_EVENTS = {"id", "type", "aggregateType", "aggregateId", "data", "digest", "schemaVersion", "ttl"}
"""The fields of an event document. Of ``/id``: no two documents would share a partition, and so a transaction."""


@dataclass(frozen=True)
class PartitionKeyPaths:
    """The paths of a container's partition key."""

    paths: tuple[str, ...] = ("/partitionKey",)

    def __post_init__(self) -> None:
        """Raises ValueError for paths that no container has."""
        if not 1 <= len(self.paths) <= _MOST_PATHS:
            raise ValueError(f"a partition key has 1 to {_MOST_PATHS} paths, not {len(self.paths)}")
        for path in self.paths:
            names = parts(path)
            if any(parts(other)[: len(names)] == names for other in self.paths if other != path):
                raise ValueError(
                    f"the partition key path {path} holds another one: one document cannot have both"
                )
        if len(set(self.paths)) < len(self.paths):
            raise ValueError("a partition key has one path twice: name each once")

    @classmethod
    def beside_events(cls, paths: Sequence[str]) -> Self:
        """Paths of a container in which events are stored beside other documents. Raises ValueError."""
        for path in paths:
            first = parts(path)[0]
            if first in OF_EVENTS or first.startswith("_"):
                raise ValueError(
                    f"the partition key path {path} is a field of an event document, or of the store: no event can be "
                    "stored beside the documents of this container. Take another container"
                )
        return cls(tuple(paths))

    def key(self, given: Value | Sequence[Value]) -> Key:
        """The key as it was given: one value, or a list with a value for each path. Raises ValueError."""
        values = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else None
        if values is None and len(self.paths) == 1:
            return _checked(given)
        if values is None or len(self.paths) == 1 or len(values) != len(self.paths):
            raise ValueError(f"the partition key must be {self._form()}")
        return tuple(map(_checked, values))

    def of(self, item: Mapping[str, Any]) -> Key | None:
        """The key of an item; None: the item has none that this library takes."""
        return self.valid(self.raw(item))

    def valid(self, raw: Any) -> Key | None:
        """The key in what stands at the paths; None: it is none that this library takes. Raises nothing."""
        try:
            return self.key(raw)
        except (ValueError, TypeError):
            return None

    def storable(self, item: Mapping[str, Any]) -> Any:
        """As :meth:`raw`, in values that every store takes: None for what is none."""
        values = [_storable(at(item, path)) for path in self.paths]
        return values if len(values) > 1 else values[0]

    def raw(self, item: Mapping[str, Any]) -> Any:
        """Returns the values at the paths, of any type; of a hierarchical key a list. None for what is missing."""
        values = [at(item, path) for path in self.paths]
        return values if len(values) > 1 else values[0]

    def fields(self, raw: Any) -> Item:
        """The fields of an item with this key."""
        fields: Item = {}
        values = raw if len(self.paths) > 1 else [raw]
        for path, value in zip(self.paths, values, strict=True):
            put(fields, path, value)
        return fields

    def text(self, key: Key) -> str:
        """The key as a text that no other key of the container has."""
        plain = isinstance(key, str) and not key.startswith("\0")
        return str(key) if plain else f"\0{canonical(_plain(key)).decode()}"

    def name(self, key: Key) -> str:
        """As :meth:`text`, of one length, and revealing nothing of what stands in the key."""
        return hashlib.sha256(self.text(key).encode()).hexdigest()[:32]

    def condition(self, holder: str, key: Key) -> tuple[str, dict[str, Any]]:
        """A condition of a query: ``holder`` has this key; and the condition's parameters."""
        values = key if isinstance(key, tuple) else (key,)
        names = [f"@key{number}" for number in range(len(values))]
        equal = [f"{field(holder, path)} = {name}" for path, name in zip(self.paths, names, strict=True)]
        return " AND ".join(equal), dict(zip(names, values, strict=True))

    def of_aggregate(self, holder: str, name: str) -> str:
        """A condition of a query: an event is of the aggregate with the id in this parameter, of whatever type.

        An event that names no aggregate has its partition key for the aggregate's id, where that is one text.
        """
        named = f"{holder}.aggregateId = {name}"
        return named if len(self.paths) > 1 else f"({field(holder, self.paths[0])} = {name} OR {named})"

    def made_up(self, text: str) -> Key:
        """A key with this text, under which nothing is stored when no text is like it."""
        return text if len(self.paths) == 1 else (text,) * len(self.paths)

    def _form(self) -> str:
        paths = ", ".join(self.paths)
        return (
            f"one value, of {paths}" if len(self.paths) == 1 else f"a list with a value for each of {paths}"
        )


@functools.cache
def parts(path: str) -> tuple[str, ...]:
    """The names on a path such as ``/tenant/id``. Raises ValueError."""
    names = tuple(path.split("/")[1:])
    if not path.startswith("/") or not all(names) or any(sign in path for sign in "\"'\\[]*?"):
        raise ValueError(f"{path!r} is no path of a property: write it as /tenantId, or /tenant/id")
    return names


def overlap(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether one path is the other, or holds it."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def at(item: Mapping[str, Any], path: str) -> Any:
    """Returns the value in an item at a path; None: there is none."""
    value: Any = item
    for name in parts(path):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def put(item: Item, path: str, value: Any) -> None:
    """Put a value into an item at a path, in place. Raises ValueError: what stands on the way is no object."""
    *way, last = parts(path)
    for name in way:
        item = item.setdefault(name, {})
        if not isinstance(item, dict):
            raise ValueError(f"{name} on the path {path} is no object")  # noqa: TRY004 - the value is wrong
    item[last] = value


def field(holder: str, path: str) -> str:
    """The path in a query."""
    return holder + "".join(f'["{name}"]' for name in parts(path))


def _plain(key: Key) -> Any:
    return list(key) if isinstance(key, tuple) else key


def _checked(value: Any) -> Value:
    if is_text(value) and value:
        return value
    if isinstance(value, bool) or (isinstance(value, int) and abs(value) <= _LARGEST_INTEGER):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueError(
        "a value of a partition key must be a text that is not empty, a number below 2^53, or true or false"
    )


def _storable(value: Any) -> Value | None:
    try:
        checked = _checked(value)
    except ValueError:
        return None
    return None if isinstance(checked, str) and len(checked) > LONGEST_KEY else checked


PARTITION_KEY = PartitionKeyPaths()
"""Of the library's own containers."""

"""A patch is applied as a whole or refused as a whole; its condition is tested against the item that it changes.

https://learn.microsoft.com/azure/cosmos-db/partial-document-update: add, set, replace, remove, incr and move, at most
ten operations, paths as JSON pointers.
"""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from devstack.cosmos.protocol.errors import CosmosError, bad_request, precondition_failed
from devstack.cosmos.protocol.json_text import Json, as_number
from devstack.cosmos.query.condition import holds
from devstack.cosmos.storage.documents import SYSTEM_PROPERTIES, StoredItem
from devstack.cosmos.storage.model import Container

MAX_OPERATIONS = 10
_READ_ONLY = frozenset(SYSTEM_PROPERTIES)


@dataclass(frozen=True)
class Operation:
    """``source`` is the ``from`` of a move."""

    name: str
    path: tuple[str, ...]
    value: Any = None
    source: tuple[str, ...] = ()


@dataclass(frozen=True)
class Patch:
    operations: tuple[Operation, ...]
    condition: str | None

    @classmethod
    def from_body(cls, body: Any) -> "Patch":
        """An object, or the bare operations, as JavaScript's SDK sends them (its PatchRequestBody). Raises 400."""
        if isinstance(body, list):
            body = {"operations": body}
        if not isinstance(body, dict):
            raise bad_request("The request body must be a JSON object or an array.")
        operations, condition = body.get("operations"), body.get("condition")
        if not isinstance(operations, list) or not 1 <= len(operations) <= MAX_OPERATIONS:
            raise bad_request(f"A patch needs between 1 and {MAX_OPERATIONS} operations.")
        if condition is not None and not isinstance(condition, str):
            raise bad_request("The condition of a patch must be a string.")
        return cls(tuple(_operation(operation) for operation in operations), condition)

    def applied_to(self, container: Container, item: StoredItem) -> Json:
        """The document after the patch. Raises 412 when the condition does not hold, 400 when a path does not fit."""
        if self.condition is not None and not holds(self.condition, json.loads(item.rendered(container))):
            raise precondition_failed()
        document: Json = json.loads(item.text)
        for operation in self.operations:
            _APPLY[operation.name](document, operation)
        return document


def _operation(body: Any) -> Operation:
    if not isinstance(body, dict) or body.get("op") not in _APPLY:
        raise bad_request(f"A patch operation must be one of {', '.join(_APPLY)}.")
    name = body["op"]
    if name not in ("remove", "move") and "value" not in body:
        raise bad_request(f"The patch operation {name} needs a value.")
    source = _path(body.get("from")) if name == "move" else ()
    return Operation(name, _path(body.get("path")), body.get("value"), source)


def _path(text: Any) -> tuple[str, ...]:
    if not isinstance(text, str) or not text.startswith("/") or text == "/":
        raise bad_request(f"The patch path {text!r} is not a JSON pointer to a property.")
    segments = tuple(segment.replace("~1", "/").replace("~0", "~") for segment in text[1:].split("/"))
    if segments[0] in _READ_ONLY:
        raise bad_request(f"The system property {segments[0]} cannot be patched.")
    return segments


def _add(document: Json, operation: Operation) -> None:
    parent, last = _parent(document, operation.path)
    if isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else _index(parent, last, operation, end=1), operation.value)
    else:
        parent[last] = operation.value


def _set(document: Json, operation: Operation) -> None:
    parent, last = _parent(document, operation.path)
    if not isinstance(parent, list):
        parent[last] = operation.value
    elif last == "-" or last == str(len(parent)):
        parent.append(operation.value)
    else:
        parent[_index(parent, last, operation)] = operation.value


def _replace(document: Json, operation: Operation) -> None:
    parent, key = _existing(document, operation.path)
    parent[key] = operation.value


def _remove(document: Json, operation: Operation) -> None:
    parent, key = _existing(document, operation.path)
    del parent[key]


def _increment(document: Json, operation: Operation) -> None:
    if not _is_number(operation.value):
        raise bad_request("The value of an increment must be a number.")
    parent, last = _parent(document, operation.path)
    if isinstance(parent, dict) and last not in parent:
        parent[last] = operation.value
        return
    parent, key = _existing(document, operation.path)
    if not _is_number(parent[key]):
        raise _does_not_fit(operation.path, "is not a number")
    try:
        parent[key] = as_number(parent[key] + operation.value)
    except ValueError as error:
        raise _does_not_fit(operation.path, "would be larger than a double") from error


def _move(document: Json, operation: Operation) -> None:
    if operation.path[: len(operation.source)] == operation.source and operation.path != operation.source:
        raise bad_request("A patch cannot move a property into itself.")
    parent, key = _existing(document, operation.source)
    value = copy.deepcopy(parent[key])
    del parent[key]
    _add(document, Operation("add", operation.path, value))


_APPLY: dict[str, Callable[[Json, Operation], None]] = {
    "add": _add,
    "set": _set,
    "replace": _replace,
    "remove": _remove,
    "incr": _increment,
    "move": _move,
}


def _parent(document: Json, path: tuple[str, ...]) -> tuple[Any, str]:
    """The object or array that holds the last segment."""
    value: Any = document
    for segment in path[:-1]:
        key = _key(value, segment)
        if key is None:
            raise _does_not_fit(path, "does not exist")
        value = value[key]
    if not isinstance(value, dict | list):
        raise _does_not_fit(path, "does not exist")
    return value, path[-1]


def _existing(document: Json, path: tuple[str, ...]) -> tuple[Any, Any]:
    parent, last = _parent(document, path)
    key = _key(parent, last)
    if key is None:
        raise _does_not_fit(path, "does not exist")
    return parent, key


def _key(value: Any, segment: str) -> str | int | None:
    if isinstance(value, dict):
        return segment if segment in value else None
    if isinstance(value, list) and segment.isdecimal() and int(segment) < len(value):
        return int(segment)
    return None


def _index(parent: list[Any], segment: str, operation: Operation, *, end: int = 0) -> int:
    if segment.isdecimal() and int(segment) < len(parent) + end:
        return int(segment)
    raise _does_not_fit(operation.path, "is no index of the array")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _does_not_fit(path: tuple[str, ...], why: str) -> CosmosError:
    return bad_request(f"The patch path /{'/'.join(path)} {why}.")

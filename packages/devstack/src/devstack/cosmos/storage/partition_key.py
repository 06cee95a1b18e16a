"""The partition key is read in one way only, from a definition, a header or a document: all three must agree."""

import functools
import json
import re
from typing import Any

from devstack.cosmos.protocol.errors import PARTITION_KEY_MISMATCH, CosmosError, bad_request
from devstack.cosmos.protocol.json_text import Json
from devstack.cosmos.storage.epk import UNDEFINED, Component, Components, Undefined
from devstack.cosmos.storage.model import PartitionKeyDefinition

MAX_PATHS = 3
MAX_VALUE_BYTES = 2048
"""https://learn.microsoft.com/azure/cosmos-db/concepts-limits: the longest partition key value."""

_SEGMENT = re.compile(
    r"""/(?:"(?P<double>(?:[^"\\]|\\.)+)"|'(?P<single>(?:[^'\\]|\\.)+)'|(?P<plain>[^/"'][^/]*))(?=/|$)"""
)


def parse_definition(body: Json) -> PartitionKeyDefinition:
    """The ``partitionKey`` of a container's body. Raises a 400 that says what is wrong with it."""
    definition = body.get("partitionKey")
    if not isinstance(definition, dict):
        raise bad_request("The partition key definition is missing: partitionKey must name one path.")
    paths, kind, version = (
        definition.get("paths"),
        definition.get("kind", "Hash"),
        definition.get("version", 1),
    )
    if kind not in ("Hash", "MultiHash"):
        raise bad_request(f"The partition key kind {kind!r} is not valid: Hash or MultiHash.")
    if version not in (1, 2):
        raise bad_request(f"The partition key version {version!r} is not valid: 1 or 2.")
    most = MAX_PATHS if kind == "MultiHash" else 1
    if not isinstance(paths, list) or not paths:
        raise bad_request("The partition key definition names no path.")
    if len(paths) > most:
        raise bad_request(f"Too many partition key paths: kind {kind} takes at most {most}.")
    return PartitionKeyDefinition(tuple(_segments(path) for path in paths), kind, version)


def _segments(path: Any) -> tuple[str, ...]:
    """The names of a path; one with a slash in it is quoted: ``/a/"b/c"``."""
    segments: list[str] = []
    place = 0
    while isinstance(path, str) and (found := _SEGMENT.match(path, place)):
        quoted = found["double"] or found["single"]
        segments.append(found["plain"] or re.sub(r"\\(.)", r"\1", quoted))
        place = found.end()
    if not segments or place != len(path):
        raise bad_request(
            f"The partition key path {path!r} is not valid: it must start with '/' and name a property."
        )
    return tuple(segments)


def of_document(definition: PartitionKeyDefinition, document: Json) -> Components:
    """The value at each path; an object or array there counts as no value."""
    return tuple(_value_at(document, path) for path in definition.paths)


def _value_at(document: Json, path: tuple[str, ...]) -> Component:
    value: Any = document
    for segment in path:
        if not isinstance(value, dict) or segment not in value:
            return UNDEFINED
        value = value[segment]
    return UNDEFINED if isinstance(value, dict | list) else value


def of_header(definition: PartitionKeyDefinition, header: str | None) -> Components:
    """The whole key that ``x-ms-documentdb-partitionkey`` names. Raises a 400 for anything less."""
    if header is None:
        raise bad_request("PartitionKey value must be supplied for this operation.")
    components = parse_header(header)
    if not components:  # [] is how a client says that the item has no key
        return (UNDEFINED,) * len(definition.paths)
    if len(components) != len(definition.paths):
        raise CosmosError(
            PARTITION_KEY_MISMATCH,
            "Partition key provided either doesn't correspond to definition in the collection or doesn't match"
            " partition key field values specified in the document.",
        )
    return components


@functools.lru_cache(maxsize=4096)
def parse_header(header: str) -> Components:
    """The components of the header's JSON array, of which there may be fewer than the container's paths."""
    try:
        values = json.loads(header)
    except ValueError:
        values = None
    if not isinstance(values, list):
        raise bad_request(f"The partition key header must be a JSON array: {header[:100]}")
    if values == [[]]:  # how the Python SDK writes an empty list of values
        return ()
    return tuple(_component(value) for value in values)


def _component(value: Any) -> Component:
    if value == {}:
        return UNDEFINED
    if isinstance(value, dict | list):
        raise bad_request("A partition key value must be a string, a number, a boolean or null.")
    if isinstance(value, str) and len(value.encode()) > MAX_VALUE_BYTES:
        raise bad_request(f"The partition key value is longer than {MAX_VALUE_BYTES} bytes.")
    component: Component = value
    return component


def stored_form(components: Components) -> str:
    """The one text that stands for these components in the store: 1 and 1.0 are the same key, 1 and true are not."""
    return json.dumps(
        [_storable(component) for component in components], ensure_ascii=False, separators=(",", ":")
    )


def _storable(component: Component) -> Any:
    if isinstance(component, Undefined):
        return {}
    if isinstance(component, bool) or not isinstance(component, int | float):
        return component
    return float(component)


def mismatch() -> CosmosError:
    return CosmosError(
        PARTITION_KEY_MISMATCH,
        "PartitionKey extracted from document doesn't match the one specified in the header.",
    )

"""A JSON Schema as the alternatives of which a value fits one, each of one type: what a comparison can look at.

References, ``anyOf`` and lists of types are resolved, an enumeration is one alternative for each value, and what has no
type may have any. A keyword counts only for the type that it is about. What is combined in a way that is not understood
here is marked, so that nobody takes it for less than it says.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any] | bool

NOTES = frozenset(
    {
        *(
            "title",
            "description",
            "default",
            "examples",
            "deprecated",
            "readOnly",
            "writeOnly",
            "discriminator",
        ),
        *("$schema", "$id", "$comment", "$defs", "definitions"),
    }
)
"""Keywords that no value breaks."""

OF_TYPE: Mapping[str, frozenset[str]] = {
    "null": frozenset(),
    "boolean": frozenset(),
    "number": frozenset({"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"}),
    "string": frozenset(
        {"minLength", "maxLength", "pattern", "format", "contentEncoding", "contentMediaType"}
    ),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}),
    "object": frozenset({"properties", "required", "additionalProperties", "minProperties", "maxProperties"}),
}
"""What can be compared, by the type that it is about. An integer is a number."""

_OF_ONE_TYPE = frozenset().union(*OF_TYPE.values())
NOT_UNDERSTOOD = "not understood"
"""The key under which an alternative keeps what cannot be compared."""


def alternatives(schema: Schema, root: Schema) -> list[dict[str, Any]]:
    """The alternatives of a schema; ``root``: the document that its references are of."""
    if isinstance(schema, bool):
        return [*_typed({})] if schema else []
    told = {name: value for name, value in schema.items() if name not in NOTES}
    parts: list[list[dict[str, Any]]] = []
    if reference := told.pop("$ref", None):
        parts.append(alternatives(_found(reference, root), root))
    parts += [alternatives(each, root) for each in told.pop("allOf", [])]
    any_of, one_of = told.pop("anyOf", None), told.pop("oneOf", None)
    for several in (any_of, one_of):
        if several is not None:
            parts.append([each for one in several for each in alternatives(one, root)])
    if one_of is not None and "discriminator" not in schema:  # a value may fit two, and then fits none
        told[NOT_UNDERSTOOD] = {**told.get(NOT_UNDERSTOOD, {}), "oneOf": one_of}
    if not parts or told:
        parts.append([*_typed(told)])
    combined = parts[0]
    for more in parts[1:]:
        combined = [met for one in combined for other in more if (met := _both(one, other)) is not None]
    return combined


def resolved(schema: Schema, root: Schema) -> Schema:
    """What a schema refers to, if that is all that it says. Raises ValueError."""
    while isinstance(schema, Mapping) and schema.keys() - NOTES == {"$ref"}:
        schema = _found(schema["$ref"], root)
    return schema


def type_of(value: Any) -> str:
    """The type of a value; a whole number is an integer."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    kinds = {float: "number", str: "string", list: "array"}
    return next((kind for of, kind in kinds.items() if isinstance(value, of)), "object")


def as_text(value: Any) -> str:
    """A value, such that two are the same text if they are the same JSON."""
    return json.dumps(value, sort_keys=True)


def _typed(told: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One alternative for each type, or for each value."""
    kinds = told.get("type", [*OF_TYPE])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    given = [told["const"]] if "const" in told else told.get("enum")
    plain = {name: value for name, value in told.items() if name not in ("type", "const", "enum")}
    strange = {
        name: value for name, value in plain.items() if name not in _OF_ONE_TYPE and name != NOT_UNDERSTOOD
    }
    for kind in kinds:
        own = OF_TYPE["number" if kind == "integer" else kind]
        found = {"type": kind, **{name: value for name, value in plain.items() if name in own}}
        if strange or NOT_UNDERSTOOD in plain:
            found[NOT_UNDERSTOOD] = {**strange, **plain.get(NOT_UNDERSTOOD, {})}
        if given is None:
            yield found
            continue
        for value in given:
            if type_of(value) == kind or (kind == "number" and type_of(value) == "integer"):
                yield {
                    "type": type_of(value),
                    "enum": value,
                    **{name: found[name] for name in found if name != "type"},
                }


def _both(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any] | None:
    """What fits both alternatives; None: nothing does."""
    kinds = {one["type"], other["type"]}
    if len(kinds) > 1 and kinds != {"integer", "number"}:
        return None
    met = {**one, **other, "type": "integer" if len(kinds) > 1 else one["type"]}
    twice = {name: [one[name], other[name]] for name in one.keys() & other.keys() - {"type"}}
    unclear = {name: values for name, values in twice.items() if as_text(values[0]) != as_text(values[1])}
    if "enum" in unclear:
        return None
    if unclear:
        met[NOT_UNDERSTOOD] = {**met.get(NOT_UNDERSTOOD, {}), "allOf": [dict(one), dict(other)]}
    return met


def _found(reference: str, root: Schema) -> Schema:
    """Raises ValueError: it leads out of the document, or nowhere."""
    node: Any = root
    path, _, pointer = reference.partition("#")
    for part in pointer.strip("/").split("/") if pointer.strip("/") else []:
        node = node.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(node, Mapping) else None
    if path or not isinstance(node, Mapping | bool):
        raise ValueError(f"{reference} leads nowhere in its schema: a schema holds all that it refers to")
    return node

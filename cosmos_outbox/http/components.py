"""Collects the named schemas of an OpenAPI document; each appears once, and uses refer to it.

A model has up to three schemas: as it is returned (all properties, no limits, since stored values may be older than a
limit), as it is sent (``NameInput``: with limits, no other property), and as a part of a JSON Merge Patch
(``NamePatch``: nothing is required).
"""

import functools
import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from cosmos_outbox.http.request import ETAG

Schema = dict[str, Any]

_PLACE = "#/components/schemas/"
_LIMITS = ("minLength", "maxLength", "pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_EXAMPLES = {
    "uuid": "0f8fad5b-d9cb-469f-a165-70867728950e",
    "date-time": "2026-03-01T12:00:00Z",
    "date": "2026-03-01",
    "time": "12:00:00Z",
    "email": "jane.doe@example.org",
    "idn-email": "jane.doe@example.org",
    "uri": "https://example.org/",
}
"""An example for each format."""


_VALUES = ("enum", "const", "examples", "required", "default")
"""The keywords whose value is not a schema."""


class SchemaForm(StrEnum):
    """The schemas of a model; the value is appended to the model's name."""

    ANSWER = ""
    INPUT = "Input"
    PATCH = "Patch"


_LEFT_OUT = {
    SchemaForm.ANSWER: ("title", "description", "default", *_LIMITS),
    SchemaForm.INPUT: ("title", "description"),
    SchemaForm.PATCH: ("title", "description", "default"),
}


def ref(name: str) -> Schema:
    """Returns a reference to the schema of this name."""
    return {"$ref": f"{_PLACE}{name}"}


class _ExactDecimals(GenerateJsonSchema):
    """Says of a decimal that it is sent as a text or a whole number."""

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        found = super().decimal_schema(schema)
        for each in found.get("anyOf", ()):
            if each["type"] == "number":
                each["type"] = "integer"
        return found


class Components:
    """The schemas of one document, by their names."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}

    def named(self, name: str, schema: Mapping[str, Any]) -> Schema:
        """Adds the schema and returns a reference; appends a number if another schema has the name."""
        free, number = name, 1
        while self.schemas.setdefault(free, dict(schema)) != schema:
            number += 1
            free = f"{name}{number}"
        return ref(free)

    def of(self, model: type[BaseModel], form: SchemaForm, name: str = "", **more: Schema) -> Schema:
        """Adds a model's schema and returns a reference; ``name`` replaces the model's; ``more``: properties."""
        schema = model.model_json_schema(
            by_alias=True,
            schema_generator=_ExactDecimals,
            mode="serialization" if form is SchemaForm.ANSWER else "validation",
        )
        return self.whole(schema, form, name or f"{model.__name__}{form}", **more)

    def whole(self, schema: Mapping[str, Any], form: SchemaForm, name: str, **more: Schema) -> Schema:
        """As :meth:`of`, for a schema that pydantic has generated."""
        parts = schema.get("$defs", {})
        own = {key: value for key, value in schema.items() if key not in ("$defs", "title", "description")}
        found: Schema = self._converted(own, form, parts, ())
        if "properties" not in own:  # such as a recursive one
            return found
        found["properties"] |= more
        return self.named(name, found)

    def _converted(
        self, node: Any, form: SchemaForm, parts: Mapping[str, Any], within: tuple[str, ...]
    ) -> Any:
        if isinstance(node, list):
            return [self._converted(each, form, parts, within) for each in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return self._part(str(node["$ref"]).rpartition("/")[2], form, parts, within)
        found = {key: value for key, value in node.items() if key not in _LEFT_OUT[form]}
        if found.get("default", ...) is None:  # it only means that the property is optional
            del found["default"]
        if found.get("format") == "email":
            found["format"] = "idn-email"  # pydantic accepts letters of any script; "email" means ASCII only
        for key, value in found.items():
            inner = SchemaForm.INPUT if form is SchemaForm.PATCH and key in ("items", "prefixItems") else form
            if key == "properties":
                found[key] = {
                    name: self._converted(each, inner, parts, within) | _described(each)
                    for name, each in value.items()
                }
            elif key not in _VALUES:
                found[key] = self._converted(value, inner, parts, within)
        return _as_object(found, form) if "properties" in found else found

    def _part(self, name: str, form: SchemaForm, parts: Mapping[str, Any], within: tuple[str, ...]) -> Schema:
        schema, renamed = parts[name], f"{name}{form}"
        if "properties" not in schema:  # an enumeration
            return self.named(name, {key: each for key, each in schema.items() if key != "title"})
        if name in within:  # recursion: the schema is already being built
            return ref(renamed)
        return self.named(renamed, self._converted(schema, form, parts, (*within, name)))

    def example(self, schema: Mapping[str, Any], name: str = "text") -> Any:
        """Returns a value that the schema allows; a text is its property's name in words."""
        for key in ("examples", "enum"):
            if schema.get(key):
                return schema[key][0]
        for key in ("example", "const", "default"):
            if schema.get(key) is not None:
                return schema[key]
        if "$ref" in schema:
            return self.example(self.schemas[str(schema["$ref"]).removeprefix(_PLACE)], name)
        for key in ("anyOf", "oneOf", "allOf"):
            if key in schema:
                return self.example(schema[key][0], name)
        return self._example_of_type(schema, name)

    def _example_of_type(self, schema: Mapping[str, Any], name: str) -> Any:
        kinds = schema.get("type", "string")
        kind = kinds if isinstance(kinds, str) else kinds[0]
        if kind == "object":
            return {key: self.example(each, key) for key, each in schema.get("properties", {}).items()}
        if kind == "array":
            items = schema.get("items", {})
            return [self.example(items, name)] if items else []
        if kind in ("integer", "number"):
            return max(1, schema.get("minimum", 1))
        if kind == "boolean":
            return True
        if kind == "null":
            return None
        return _EXAMPLES.get(str(schema.get("format")), _words(name)[: schema.get("maxLength", 100)])

    def written_out(self, node: Any, within: tuple[str, ...] = ()) -> Any:
        """Inlines all references, for documents without components; a recursive schema ends at its first cycle."""
        if isinstance(node, list):
            return [self.written_out(each, within) for each in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            name = str(node["$ref"]).removeprefix(_PLACE)
            return {} if name in within else self.written_out(self.schemas[name], (*within, name))
        return {key: self.written_out(value, within) for key, value in node.items()}


def _as_object(found: Schema, form: SchemaForm) -> Schema:
    found["additionalProperties"] = False
    if form is SchemaForm.ANSWER:
        del found["additionalProperties"]  # a later version may add properties
        found["required"] = _always(found["properties"])
    if form is SchemaForm.PATCH:
        found.pop("required", None)
    return found


def _always(properties: Mapping[str, Any]) -> list[str]:
    """All properties but the version, which is unknown once another writer has replaced it."""
    return [name for name in properties if name != ETAG]


def _described(schema: Any) -> Schema:
    """The description that a service gave a property."""
    return (
        {"description": schema["description"]} if isinstance(schema, dict) and "description" in schema else {}
    )


@functools.cache
def template() -> Schema:
    """Returns the document without what differs between services; it has a description of each known parameter."""
    found: Schema = json.loads(Path(__file__).with_name("openapi.json").read_text("utf-8"))
    return found


TEXT: Schema = {"type": "string"}
UUID_TEXT: Schema = {"type": "string", "format": "uuid"}
TAG = r'(W/)?"[!#-~]*"'
"""An entity tag."""


def parameter(name: str, schema: Schema | None = None, place: str = "") -> dict[str, Any]:
    """Describes a parameter by its name; ``schema``: of one that the service declares.

    The example is inside the schema: beside it, Swagger UI would prefill it and send it unless removed.
    """
    unknown: Schema = {"in": "query", "description": f"{_words(name)}.", "schema": TEXT}
    known = template()["components"]["parameters"].get(name, unknown)
    found_in, taken = place or known["in"], schema or known["schema"]
    if name != "continuationToken":  # a made-up token is never valid
        example = known.get("example")
        taken = taken | {"examples": [Components().example(taken, name) if example is None else example]}
    described: dict[str, Any] = {
        "name": name, "in": found_in, "description": known["description"], "schema": taken
    }  # fmt: skip
    return described | ({"required": True} if found_in == "path" else {})


def _words(name: str) -> str:
    return "".join(f" {each.lower()}" if each.isupper() else each for each in name).capitalize()

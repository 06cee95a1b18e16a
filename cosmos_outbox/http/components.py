"""A schema that has a name stands in the document once, under that name, whatever is described with it.

A model has up to three forms: as it is answered (every property is there, no limit holds, since what is stored may be
older than a limit), as it is sent (``NameInput``: limits, and no other property), and as a part of a JSON Merge Patch
(``NamePatch``: nothing is required).
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from cosmos_outbox.http.conditions import ETAG

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
"""By the format."""


_VALUES = ("enum", "const", "examples", "required", "default")
"""What is no schema."""


class SchemaForm(StrEnum):
    """What is appended to a model's name."""

    ANSWER = ""
    INPUT = "Input"
    PATCH = "Patch"


_LEFT_OUT = {
    SchemaForm.ANSWER: ("title", "description", "default", *_LIMITS),
    SchemaForm.INPUT: ("title", "description"),
    SchemaForm.PATCH: ("title", "description", "default"),
}


def ref(name: str) -> Schema:
    """The schema of this name."""
    return {"$ref": f"{_PLACE}{name}"}


class Components:
    """The schemas of one document, by their names."""

    def __init__(self) -> None:
        self.schemas: dict[str, Schema] = {}

    def named(self, name: str, schema: Mapping[str, Any]) -> Schema:
        """A reference to the schema; its name has a number when another schema has it."""
        free, number = name, 1
        while self.schemas.setdefault(free, dict(schema)) != schema:
            number += 1
            free = f"{name}{number}"
        return ref(free)

    def of(self, model: type[BaseModel], form: SchemaForm, name: str = "", **more: Schema) -> Schema:
        """A reference to a model in this form, under its own name unless there is another; ``more``: properties."""
        schema = model.model_json_schema(
            by_alias=True,
            mode="serialization" if form is SchemaForm.ANSWER else "validation",
        )
        return self.whole(schema, form, name or f"{model.__name__}{form}", **more)

    def whole(self, schema: Mapping[str, Any], form: SchemaForm, name: str, **more: Schema) -> Schema:
        """The same of a schema as pydantic makes it."""
        parts = schema.get("$defs", {})
        own = {key: value for key, value in schema.items() if key not in ("$defs", "title", "description")}
        found: Schema = self._converted(own, form, parts, ())
        if "properties" not in own:  # such as one that holds itself
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
        if found.get("default", ...) is None:  # it only says that the property may be left out
            del found["default"]
        if found.get("format") == "email":
            found["format"] = "idn-email"  # pydantic takes letters of any script; "email" means ASCII alone
        for key, value in found.items():
            inner = SchemaForm.INPUT if form is SchemaForm.PATCH and key in ("items", "prefixItems") else form
            if key == "properties":
                found[key] = {
                    name: self._converted(each, inner, parts, within) | _told(each)
                    for name, each in value.items()
                }
            elif key not in _VALUES:
                found[key] = self._converted(value, inner, parts, within)
        return _as_object(found, form) if "properties" in found else found

    def _part(self, name: str, form: SchemaForm, parts: Mapping[str, Any], within: tuple[str, ...]) -> Schema:
        schema, told = parts[name], f"{name}{form}"
        if "properties" not in schema:  # an enumeration
            return self.named(name, {key: each for key, each in schema.items() if key != "title"})
        if name in within:  # a circle: the first turn is being described
            return ref(told)
        return self.named(told, self._converted(schema, form, parts, (*within, name)))

    def example(self, schema: Mapping[str, Any], name: str = "text") -> Any:
        """A value that the schema allows; a text is its property's name in words."""
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
        words = "".join(f" {each.lower()}" if each.isupper() else each for each in name).capitalize()
        return _EXAMPLES.get(str(schema.get("format")), words[: schema.get("maxLength", 100)])

    def written_out(self, node: Any, within: tuple[str, ...] = ()) -> Any:
        """The same without references, for a place that has no components; a circle is told to its first turn."""
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
        del found["additionalProperties"]  # more may come in a later version
        found["required"] = _always(found["properties"])
    if form is SchemaForm.PATCH:
        found.pop("required", None)
    return found


def _always(properties: Mapping[str, Any]) -> list[str]:
    """Without the version, which nobody knows once another writer has replaced it."""
    return [name for name in properties if name != ETAG]


def _told(schema: Any) -> Schema:
    """What a service's own description says of a property."""
    return (
        {"description": schema["description"]} if isinstance(schema, dict) and "description" in schema else {}
    )

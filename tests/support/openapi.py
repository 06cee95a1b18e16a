"""Whether an answer is one that docs/use/openapi.json describes: its status, headers, type and every field of it."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from tests.support.paths import ROOT

FILE = ROOT / "docs" / "use" / "openapi.json"
_UNDOCUMENTED = {
    "content-type", "content-length", "date", "server", "x-content-type-options", "access-control-expose-headers",
    "content-security-policy", "referrer-policy", "cross-origin-opener-policy", "permissions-policy",
}  # fmt: skip
"""What every answer has, and what guards the page in a browser."""


@cache
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


def takes(operation_id: str) -> set[str]:
    """The headers that a call takes; of a call that is not in the document none is known."""
    return {
        each["name"]
        for calls in document()["paths"].values()
        for call in calls.values()
        if call["operationId"] == operation_id
        for each in call["parameters"]
        if each["in"] == "header"
    }


def resolved(node: dict[str, Any]) -> dict[str, Any]:
    """What a reference leads to; what is none, as it is."""
    while "$ref" in node:
        reference = node["$ref"]
        node = document()
        for name in reference.removeprefix("#/").split("/"):
            node = node[name]
    return node


def closed(schema: Any) -> Any:
    """A schema that allows no field but its own: an answer must hold nothing that the document does not describe."""
    if isinstance(schema, list):
        return [closed(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return closed(resolved(schema))
    found = {name: closed(inner) for name, inner in schema.items()}
    return found | ({"additionalProperties": False} if "properties" in found else {})


def problems_of(value: Any, schema_name: str) -> list[str]:
    """What of a value the schema does not describe."""
    schema = closed(document()["components"]["schemas"][schema_name])
    checker = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    return [f"{error.json_path}: {error.message}" for error in checker.iter_errors(value)]


def untold(method: str, path: str, status: int, headers: Mapping[str, str], body: bytes) -> list[str]:
    """What of an answer the document does not describe."""
    documented = document()["paths"][path][method.lower()]["responses"].get(str(status))
    if documented is None:
        return [f"{method} {path} is answered {status}"]
    documented = resolved(documented)
    found = [
        f"the header {name}"
        for name in headers
        if name.lower() not in {each.lower() for each in documented.get("headers", {})} | _UNDOCUMENTED
        and not (status >= 400 and name.lower() == "cache-control")
    ]
    media_type = headers.get("Content-Type", "").partition(";")[0]
    if not body:
        return found + (["no body"] if documented.get("content") and status != 304 else [])
    if media_type not in documented.get("content", {}):
        return [*found, f"a body of type {media_type}"]
    schema = documented["content"][media_type].get("schema")
    return found + (
        problems_of(json.loads(body), schema["$ref"].rpartition("/")[2])
        if schema and "json" in media_type
        else []
    )

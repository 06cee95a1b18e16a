"""What a call takes and gives, in the words of OpenAPI 3.1, for a framework that shows its calls."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from cosmos_outbox.http.calls import MERGE_PATCH, Call
from cosmos_outbox.http.request import MAX_PAGE_SIZE, PAGE

_REFUSALS = {
    400: "Malformed or invalid; `errors` names each wrong field",
    404: "There is none",
    409: "Refused, or others won the race each time",
    412: "At another version than that in If-Match",
    413: "Too large",
    415: "A body of another kind than this call takes",
    422: "The key was used before, with another request",
    429: "The store asks to slow down; see Retry-After",
    503: "The store is away, or events wait for too long; see Retry-After",
}


def refusals(call: Call) -> Mapping[int, str]:
    """The errors that a call may be answered with, each a problem document (RFC 9457)."""
    wanted = {400, 429, 503}
    if "{id}" in call.route:
        wanted |= {404}
    if "If-Match" in call.honours:
        wanted |= {409, 412}
    if call.takes:
        wanted |= {413, 415}
    if "Idempotency-Key" in call.honours:
        wanted |= {422}
    return {status: _REFUSALS[status] for status in sorted(wanted)}


def operation(call: Call) -> dict[str, Any]:
    """The parameters and the body of a call."""
    parameters = [_parameter(name, "header", {"type": "string"}) for name in call.honours]
    if "{id}" in call.route:
        parameters.insert(
            0, {**_parameter("id", "path", {"type": "string", "format": "uuid"}), "required": True}
        )
    elif call.method == "GET":
        size, token = PAGE
        parameters.append(
            _parameter(size, "query", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE})
        )
        parameters.append(_parameter(token, "query", {"type": "string"}))
    told: dict[str, Any] = {"parameters": parameters}
    if call.body is not None:
        schema = _schema(call.body, partial=MERGE_PATCH in call.takes)
        told["requestBody"] = {
            "required": True,
            "content": {media_type: {"schema": schema} for media_type in call.takes},
        }
    return told


def _parameter(name: str, place: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": place, "schema": dict(schema)}


def _schema(model: type[BaseModel], *, partial: bool) -> dict[str, Any]:
    """The model with what it refers to written out, since a body is described in one place; ``partial``: of a patch."""
    whole = model.model_json_schema(by_alias=True)
    parts = whole.pop("$defs", {})

    def written(schema: Any, within: tuple[str, ...] = ()) -> Any:
        if isinstance(schema, list):
            return [written(each, within) for each in schema]
        if not isinstance(schema, dict):
            return schema
        if "$ref" in schema:
            name = str(schema["$ref"]).rpartition("/")[2]
            inner = {} if name in within else written(parts[name], (*within, name))  # a circle has no end
            return {**inner, **{key: value for key, value in schema.items() if key != "$ref"}}
        left_out = {"required", "default"} if partial and schema.get("type") == "object" else set()
        return {key: written(value, within) for key, value in schema.items() if key not in left_out}

    described: dict[str, Any] = written(whole)
    return described

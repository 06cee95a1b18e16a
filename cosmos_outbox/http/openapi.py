"""What a call takes and gives, in the words of OpenAPI 3.1, for a framework that shows its calls."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from cosmos_outbox.http.calls import MERGE_PATCH, Call
from cosmos_outbox.http.request import MAX_PAGE_SIZE
from cosmos_outbox.http.resource import SEQUENCE

_REFUSALS = {
    400: "Malformed or invalid; `errors` names each wrong field",
    404: "There is none",
    409: "Refused, or others won the race each time",
    410: "The key was used, and what it created was deleted",
    412: "At another version than that in If-Match",
    413: "Too large",
    415: "A body of another kind than this call takes",
    422: "The key was used before, with another request",
    429: "The store asks to slow down; see Retry-After",
    503: "The store is away, or events wait for too long; see Retry-After",
}


_TEXT = {"type": "string"}
_PROBLEM = {
    "type": "object",
    "properties": {
        "type": _TEXT, "title": _TEXT, "status": {"type": "integer"}, "detail": _TEXT,
        "errors": {"type": "array", "items": {
            "type": "object", "properties": {"field": _TEXT, "reason": _TEXT}, "required": ["field", "reason"],
        }},
        "correlationId": {"anyOf": [_TEXT, {"type": "null"}]},
    },
    "required": ["type", "title", "status", "detail", "errors", "correlationId"],
}  # fmt: skip


def answers(call: Call) -> dict[int | str, dict[str, Any]]:
    """Every answer to a call, by its status: the one when all is well, then each refusal (RFC 9457)."""
    told: dict[int | str, dict[str, Any]] = {call.status.value: _success(call)}
    if "If-None-Match" in call.honours:
        told[304] = {"description": "The caller has this version", "headers": _headers("ETag")}
    for status, text in _refusals(call).items():
        told[status] = {
            "description": text, "content": {"application/problem+json": {"schema": _PROBLEM}}
        }  # fmt: skip
    return told


def _success(call: Call) -> dict[str, Any]:
    headers = ["Location"] if call.status == HTTPStatus.CREATED else []
    if call.status != HTTPStatus.NO_CONTENT and not call.query:
        headers.append("ETag")
    if "Idempotency-Key" in call.honours:
        headers.append("Idempotency-Replayed")
    told: dict[str, Any] = {"description": call.status.phrase, "headers": _headers(*headers)}
    if call.status != HTTPStatus.NO_CONTENT:
        told["content"] = {"application/json": {"schema": _shown(call)}}
    return told


def _headers(*names: str) -> dict[str, Any]:
    return {name: {"schema": _TEXT} for name in names}


def _shown(call: Call) -> dict[str, Any]:
    described = call.resource.described if call.resource else None
    one = {"type": "object"} if described is None else written_out(described)
    if call.query:
        page = {"items": {"type": "array", "items": one}, "continuationToken": {"type": ["string", "null"]}}
        return {"type": "object", "properties": page, "required": list(page)}
    if "If-Match" not in call.honours:
        return one
    late = {"id": _TEXT, SEQUENCE: {"type": "integer"}}  # to a repetition, when others have changed it since
    return {"anyOf": [one, {"type": "object", "properties": late, "required": list(late)}]}


def _refusals(call: Call) -> Mapping[int, str]:
    """The errors that a call may be answered with."""
    wanted = {400, 429, 503}
    if "{id}" in call.route:
        wanted |= {404}
    if "If-Match" in call.honours:
        wanted |= {409, 412}
    if call.takes:
        wanted |= {413, 415}
    if "Idempotency-Key" in call.honours:
        wanted |= {422}
    if call.status == HTTPStatus.CREATED:
        wanted |= {410}
    return {status: _REFUSALS[status] for status in sorted(wanted)}


def operation(call: Call) -> dict[str, Any]:
    """The parameters and the body of a call."""
    parameters = [_parameter(name, "header", _TEXT) for name in call.honours]
    if "{id}" in call.route:
        parameters.insert(
            0, {**_parameter("id", "path", {"type": "string", "format": "uuid"}), "required": True}
        )
    elif call.query:
        size, token = call.query
        parameters.append(
            _parameter(size, "query", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE_SIZE})
        )
        parameters.append(_parameter(token, "query", _TEXT))
    told: dict[str, Any] = {"parameters": parameters}
    if call.body is not None:
        schema = written_out(call.body.model_json_schema(by_alias=True), partial=MERGE_PATCH in call.takes)
        told["requestBody"] = {
            "required": True,
            "content": {media_type: {"schema": schema} for media_type in call.takes},
        }
    return told


def _parameter(name: str, place: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": place, "schema": dict(schema)}


def written_out(schema: Mapping[str, Any], *, partial: bool = False) -> dict[str, Any]:
    """A model's schema with what it refers to written out, since it stands in one place; ``partial``: of a patch."""
    whole = dict(schema)
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

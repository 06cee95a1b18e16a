"""Describes calls in OpenAPI 3.1, for an API's own document and for that of a framework."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from pydantic.alias_generators import to_pascal

from cosmos_outbox.http import listing
from cosmos_outbox.http.calls import MERGE_PATCH, Call
from cosmos_outbox.http.components import (
    TAG,
    TEXT,
    UUID_TEXT,
    Components,
    Schema,
    SchemaForm,
    parameter,
    ref,
    template,
)
from cosmos_outbox.http.listing import AS_OF
from cosmos_outbox.http.request import CORRELATION_HEADER, ETAG
from cosmos_outbox.http.resource import SEQUENCE, Resource
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.canonical import LARGEST_INTEGER
from cosmos_outbox.outbox.selection import orders

_OF_EVERY_ANSWER = (CORRELATION_HEADER, "Content-Encoding", "Vary")
"""The headers that any response may have."""
_REFUSALS = {
    400: "Malformed or invalid; `errors` names each wrong field",
    404: "There is none",
    405: "Another method than those of this path",
    409: "Refused, or others won the race each time; then see Retry-After",
    410: "The key was used, and what it created was deleted",
    412: "At another version than the conditions allow",
    413: "Too large",
    415: "A body of another kind than this call takes",
    422: "The key was used before, with another request",
    429: "The store asks to slow down; see Retry-After",
    500: "A setting is wrong, or the service has a bug",
    503: "The store is away, or events wait for too long; see Retry-After",
}
_ALSO = {
    405: ("Allow",), 409: ("Retry-After",), 415: ("Accept", "Accept-Patch", "Accept-Encoding"),
    429: ("Retry-After",), 503: ("Retry-After",),
}  # fmt: skip
"""Additional headers of each error response."""

_PROBLEM = {"application/problem+json": {"schema": ref("Problem")}}
_VERSION: Schema = TEXT | {
    "pattern": f"^{TAG}$", "description": "As an answer had it: 412 when it is at another version now."
}  # fmt: skip
_DESCRIPTIONS = {
    "POST": "Send an `Idempotency-Key`: without one, a repetition after a lost answer creates a second one.",
    "PATCH": "What is left out stays, `null` removes a value. What the service decides must be as it is now, or left "
    "out. Without `If-Match` it is applied to the newest version.",
    "PUT": "What was read may be edited and sent back whole: what the service decides must be as it is now. Without "
    "`If-Match` it replaces the newest version.",
    "DELETE": "Without `If-Match` the newest version is deleted.",
    "action": "Without `If-Match` it is done to the newest version.",
    "list": "Go on with `continuationToken` until it is null.",
    "one": "With `If-None-Match` it is sent only when it is another version.",
}


def written_out(call: Call) -> dict[str, Any]:
    """Returns an operation without references, for the document of a framework, which lacks our components."""
    components = with_problems()
    found: dict[str, Any] = components.written_out(described(call, components))
    return found


def with_problems() -> Components:
    """Returns components with the problem schemas that every API has."""
    components = Components()
    components.schemas |= template()["components"]["schemas"]
    return components


@dataclass(frozen=True)
class DocumentedRoute:
    """One operation in a document."""

    name: str
    method: str
    route: str
    """The path below the API's root, without a leading slash."""
    described: Mapping[str, Any]
    security: list[dict[str, list[str]]] | None = None


def described(call: Call, components: Components) -> dict[str, Any]:
    """Returns an operation with its responses, for a document with these components."""
    in_head = [*(["id"] if "{id}" in call.route else []), *call.honours]
    also = () if call.query else ("Cache-Control",) if call.method == "GET" else ("traceparent", "tracestate")
    found: dict[str, Any] = {
        "summary": call.summary[0].upper() + call.summary[1:],
        "description": _description(call),
        "tags": [call.route.partition("/{")[0]],
        "parameters": [
            *(parameter(name, _condition(call, name)) for name in in_head),
            *(parameter(name, _queried(call, name), "query") for name in call.query),
            *(parameter(name) for name in also),
        ],
    }
    if call.body is not None:
        schema = _body(call, components)
        decided = _sent_back(call, components)  # an example cannot know stored values
        example = {name: value for name, value in components.example(schema).items() if name not in decided}
        content = {"schema": schema, "example": example}
        found["requestBody"] = {"required": True, "content": dict.fromkeys(call.takes, content)}
    found["responses"] = {str(call.status.value): _success(call, components)}
    if call.method == "GET" and "If-None-Match" in call.honours:
        described = "The caller has this version"
        found["responses"]["304"] = {"description": described, "headers": _headers("ETag", "Last-Modified")}
    for status in sorted(_refusals(call)):
        found["responses"][str(status)] = {"description": _REFUSALS[status], "content": _PROBLEM}
    return found


def document(
    title: str, operations: Iterable[DocumentedRoute], components: Components, *, base: str = ""
) -> dict[str, Any]:
    """Returns the API's document below ``base``. Adds the common parameters and responses to each operation."""
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        described = dict(each.described)
        described["parameters"] = [*described.get("parameters", ()), parameter(CORRELATION_HEADER)]
        described["responses"] = _completed(described["responses"])
        if each.security:
            described["responses"]["401"] = {
                "description": "No key, or a wrong one: the platform's answer, without a body."
            }
        described["responses"] = dict(sorted(described["responses"].items()))
        security = {} if each.security is None else {"security": each.security}
        paths.setdefault(f"{base}/{each.route}", {})[each.method.lower()] = {
            "operationId": each.name, **described, **security
        }  # fmt: skip
    return {
        **template(),
        "info": template()["info"] | {"title": title},
        "paths": paths,
        "components": {
            "schemas": dict(sorted(components.schemas.items())),
            "headers": template()["components"]["headers"],
            "responses": {f"problem{status}": _problem_response(status) for status in _REFUSALS},
        },
    }


def _completed(responses: Mapping[str, Any]) -> dict[str, Any]:
    """Adds the common headers to the responses, and the errors that every call may return."""
    found: dict[str, Any] = {}
    for status, each in responses.items():
        if int(status) >= 400:
            found[status] = {"$ref": f"#/components/responses/problem{status}"}
        else:
            names = [*_OF_EVERY_ANSWER, "Cache-Control", *each.get("headers", ())]
            found[status] = each | {
                "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in names}
            }
    return found | {
        str(status): {"$ref": f"#/components/responses/problem{status}"} for status in (400, 405, 500)
    }


def _problem_response(status: int) -> dict[str, Any]:
    names = (*_OF_EVERY_ANSWER, *_ALSO.get(status, ()))
    return {
        "description": _REFUSALS[status],
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in names},
        "content": _PROBLEM,
    }


def _description(call: Call) -> str:
    if call.method == "GET":
        return _DESCRIPTIONS["list" if call.query else "one"]
    if call.method == "POST" and "{id}" in call.route:
        return _DESCRIPTIONS["action"]
    return _DESCRIPTIONS[call.method]


def _success(call: Call, components: Components) -> dict[str, Any]:
    headers = ["Location"] if call.status == HTTPStatus.CREATED else []
    if call.status != HTTPStatus.NO_CONTENT and not call.query:
        headers += ["ETag", "Last-Modified"]
    if "Idempotency-Key" in call.honours:
        headers += ["Written", "Idempotency-Replayed"]
    described: dict[str, Any] = {"description": call.status.phrase, "headers": _headers(*headers)}
    if call.status != HTTPStatus.NO_CONTENT:
        schema = _shown(call, components)
        described["content"] = {"application/json": {"schema": schema, "example": components.example(schema)}}
    return described


def _headers(*names: str) -> dict[str, Any]:
    return {name: {"schema": TEXT} for name in names}


def _shown(call: Call, components: Components) -> Schema:
    resource = _resource(call)
    one, name = _one(resource, components), _name(resource)
    if call.query:
        text = {"type": ["string", "null"]}
        page = {"items": {"type": "array", "items": one}, "continuationToken": text, "nextLink": text}
        page[AS_OF] = text | {"format": "date-time"}
        return components.named(f"{name}Page", {"type": "object", "properties": page, "required": list(page)})
    if "If-Match" not in call.honours:
        return one
    # The response to a repeated request after another writer has changed the aggregate.
    late = {"id": UUID_TEXT, SEQUENCE: {"type": "integer"}}
    stale = components.named("Superseded", {"type": "object", "properties": late, "required": list(late)})
    return components.named(f"Changed{name}", {"anyOf": [one, stale]})


def _one(resource: Resource[Any, Any], components: Components) -> Schema:
    if (described := resource.described) is None:
        return {"type": "object"}
    return components.whole(described, SchemaForm.ANSWER, _name(resource))


def _resource(call: Call) -> Resource[Any, Any]:
    assert call.resource is not None, "no other call is described"
    return call.resource


def _name(resource: Resource[Any, Any]) -> str:
    return to_pascal(resource.kind.aggregate_type.replace("-", "_"))


def _refusals(call: Call) -> set[int]:
    """Returns the error statuses of a call."""
    wanted = {400, 405, 429, 500, 503}
    if "{id}" in call.route:
        wanted |= {404}
    if "If-Match" in call.honours:
        wanted |= {409, 412}
    if call.takes:
        wanted |= {413, 415}
    if "Idempotency-Key" in call.honours:
        wanted |= {422}
    if call.status == HTTPStatus.CREATED:
        wanted |= {409, 410}
    if call.method != "GET":
        wanted |= {*_resource(call).errors.values()} & _REFUSALS.keys()
    return wanted


def _condition(call: Call, name: str) -> Schema | None:
    """Only a change limits the pattern: a read ignores a malformed condition, a change could not be undone."""
    changes = name == "If-None-Match" and call.method != "GET"
    return template()["components"]["parameters"]["If-Match"]["schema"] if changes else None


def _queried(call: Call, name: str) -> Schema | None:
    """Returns the schema of a list's parameter that depends on the resource."""
    kind = _resource(call).kind
    if name == listing.SORT:
        found = orders(kind)
        return TEXT | {"enum": [*map(str, found)], "default": str(found[0])}
    if name not in listing.found_by(kind):
        return None
    state = kind.state_type.model_json_schema(by_alias=True)
    one = {**state, "properties": {name: state["properties"][name]}}
    alone = Components()
    found_by: Schema = alone.written_out(alone.whole(one, SchemaForm.INPUT, name))["properties"][name]
    return found_by


def _body(call: Call, components: Components) -> Schema:
    body = call.body
    assert body is not None, "asked for only then"
    new: object = _resource(call).new
    if new is not body:
        return components.of(body, SchemaForm.INPUT)
    name = _name(_resource(call))
    if call.method == "POST":
        return components.of(body, SchemaForm.INPUT, f"New{name}")
    more = _sent_back(call, components)
    if MERGE_PATCH in call.takes:
        return components.of(body, SchemaForm.PATCH, f"{name}Patch", **more)
    return components.of(body, SchemaForm.INPUT, f"{name}Replacement", **more)


def _sent_back(call: Call, components: Components) -> dict[str, Schema]:
    """Returns the read-only properties, which may be sent back unchanged, and the version."""
    if call.body is None or call.method == "POST":
        return {}
    one = str(_one(_resource(call), components).get("$ref", "")).rpartition("/")[2]
    settable = {field.alias or name for name, field in call.body.model_fields.items()}
    return {
        name: {**_readable(schema), "description": "As it is now, or left out."}
        for name, schema in components.schemas.get(one, {}).get("properties", {}).items()
        if name not in settable
    } | {ETAG: _VERSION}


def _readable(schema: Schema) -> Schema:
    """Limits integers to those that a request body may hold."""
    if schema.get("type") != "integer":
        return schema
    return {"minimum": -LARGEST_INTEGER, "maximum": LARGEST_INTEGER} | schema

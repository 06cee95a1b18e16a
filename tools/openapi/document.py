"""Paths, methods, keys, parameters and texts are those of the functions; ``calls`` adds what a call takes and gives."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cosmos_outbox.http.answering import STATUS_OF
from tools.openapi import schemas
from tools.openapi.calls import CALLS, Call

VERSION = "3.1.0"
_DOCSTRING = re.compile(
    r"(?P<method>[A-Z]+) /(?P<path>[^?:\s]+)(?:\?(?P<query>\S*))?(?: \{.*?\})?: (?P<summary>.+)", re.DOTALL
)
_KEYS: dict[str, list[dict[str, list[str]]]] = {
    "function": [{"functionKey": []}],
    "admin": [{"adminKey": []}],
    "anonymous": [],
}


@dataclass(frozen=True)
class Route:
    """One HTTP function, as the app declares it and as its docstring tells it."""

    name: str
    path: str
    method: str
    level: str
    query: list[str]
    summary: str


def routes() -> Iterator[Route]:
    """Every HTTP function but the one for what no other takes. Raises ValueError: a docstring tells another call."""
    from function_app import app  # noqa: PLC0415 - lists the functions of the service

    for function in app.get_functions():
        trigger = function.get_trigger()
        declared = trigger.get_dict_repr() if trigger else {}
        route = str(declared.get("route"))
        if declared.get("type") != "httpTrigger" or "{*" in route:
            continue
        [method] = (str(each.value) for each in declared["methods"] if each.value != "HEAD")
        told = _DOCSTRING.match(function.get_user_function().__doc__ or "")
        if told is None or (told["method"], told["path"]) != (method, route):
            raise ValueError(
                f"{function.get_function_name()}: the docstring begins with {method} /{route}: ..."
            )
        level = str(getattr(declared["authLevel"], "value", declared["authLevel"])).lower()
        query = re.findall(r"(\w+)=", told["query"] or "")
        yield Route(
            str(function.get_function_name()), route, method, level, query, told["summary"].partition("\n")[0]
        )


def document() -> dict[str, Any]:
    """The whole document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes():
        paths.setdefault(f"/api/{route.path}", {})[route.method.lower()] = _operation(
            route, CALLS[route.name]
        )
    return {
        "openapi": VERSION,
        "info": {
            "title": "Contact service",
            "version": "1.0.0",
            "description": "docs/use/api.md tells the rules: repetitions, versions, what operators do. Whatever "
            "takes GET takes HEAD too, and answers with the same status and headers.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [
            {"url": "http://127.0.0.1:7071", "description": "make run"},
            {
                "url": "https://{app}.azurewebsites.net",
                "description": "a deployment",
                "variables": {"app": {"default": "contacts", "description": "The name of the function app."}},
            },
        ],
        "paths": paths,
        "components": {
            "schemas": schemas.SCHEMAS,
            "headers": _HEADERS,
            "responses": _problems(),
            "securitySchemes": {
                "functionKey": _key("A function key; a local stack asks for none, unless told to."),
                "adminKey": _key("The admin (master) key."),
            },
        },
    }  # fmt: skip


def _operation(route: Route, call: Call) -> dict[str, Any]:
    in_path = [{"name": name, "in": "path", "required": True, "schema": schemas.PARAMETERS[name]}
               for name in re.findall(r"\{(\w+)\}", route.path)]  # fmt: skip
    in_query = [{"name": name, "in": "query", "schema": schemas.PARAMETERS[name]} for name in route.query]
    in_headers = [
        {"name": name, "in": "header", "schema": {"type": "string"}}
        for name in ("x-correlation-id", *call.headers)
    ]
    answers: dict[str, Any] = {str(answer.status): answer.told() for answer in call.answers}
    # 400: a condition or a key that the call cannot honour
    problems = {*call.problems, 400, 500} | ({429, 503} if call.uses_store else set())
    answers |= {
        str(status): {"$ref": f"#/components/responses/problem{status}"} for status in sorted(problems)
    }
    if route.level != "anonymous":
        answers["401"] = {"description": "No key, or a wrong one: the platform's answer, without a document."}
    body = {"requestBody": {"required": True, "content": {
        media_type: {"schema": schemas.ref(call.body)} for media_type in call.media_types
    }}} if call.body else {}  # fmt: skip
    return {
        "operationId": route.name,
        "summary": route.summary.rstrip("."),
        "tags": ["operators" if route.level == "admin" else "contacts"],
        "security": _KEYS[route.level],
        "parameters": in_path + in_query + in_headers,
        **body,
        "responses": dict(sorted(answers.items())),
    }


def _problems() -> dict[str, Any]:
    """An answer for each status that an error has; the title is that of the first error with it."""
    titles = {status: title for _, status, title in reversed(STATUS_OF)}
    return {
        f"problem{status}": {
            "description": title,
            "headers": {"x-correlation-id": {"$ref": "#/components/headers/x-correlation-id"}}
            | {name: {"$ref": f"#/components/headers/{name}"} for name in ALSO.get(status, ())},
            "content": {"application/problem+json": {"schema": schemas.ref("Problem")}},
        }
        for status, title in sorted(titles.items())
    }


ALSO = {415: ("Accept", "Accept-Patch", "Accept-Encoding"), 429: ("Retry-After",), 503: ("Retry-After",)}
"""Headers of the answer to an error."""


def _key(description: str) -> dict[str, str]:
    return {"type": "apiKey", "in": "header", "name": "x-functions-key", "description": description}


def _header(description: str) -> dict[str, Any]:
    return {"description": description, "schema": {"type": "string"}}


_HEADERS = {
    "x-correlation-id": _header("The caller's own, if it was well-formed; else a new one."),
    "ETag": _header(
        "The version. It may be missing after a change that another writer has already replaced."
    ),
    "Location": _header("The path of the new contact."),
    "Idempotency-Replayed": _header('"true": the answer to an earlier request with this key.'),
    "Cache-Control": _header("Who may keep the answer."),
    "Retry-After": _header("In how many seconds to come back."),
    "Accept": _header("The media types that the call takes."),
    "Accept-Patch": _header("The media types that the PATCH takes (RFC 5789)."),
    "Accept-Encoding": _header("The content coding that the call takes."),
}


def functions_without_a_description() -> set[str]:
    """The functions of which ``calls`` tells nothing, and what it tells of functions that there are not."""
    return {route.name for route in routes()} ^ set(CALLS)

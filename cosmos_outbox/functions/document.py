"""Builds the OpenAPI document of a function app from its functions: their paths, methods, keys and texts.

Calls on resources are described by their declarations. Other calls are described by the arguments of
``functions.answering`` and by their docstrings: ``GET /board?city=&pageSize=: the board``. Operators' calls are
excluded.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import azure.functions as func

from cosmos_outbox.functions.edge.http_functions import ByHand, declared_in, methods_of
from cosmos_outbox.http import openapi
from cosmos_outbox.http.calls import Call
from cosmos_outbox.http.components import Components, SchemaForm, parameter
from cosmos_outbox.http.documents import ROUTES
from cosmos_outbox.http.openapi import DocumentedRoute
from cosmos_outbox.http.request import PAGE

_DOCSTRING = re.compile(
    r"(?P<method>[A-Z]+) /(?P<path>[^?:\s]+)(?:\?(?P<query>\S*))?(?: \{.*?\})?: (?P<summary>.+)", re.DOTALL
)
_KEYS: Mapping[str, list[dict[str, list[str]]]] = {
    "function": [{"functionKey": []}], "anonymous": []
}  # fmt: skip
_OPEN_TO_OPERATORS = {"health", "operations"}


@dataclass(frozen=True)
class Route:
    """One call of an HTTP function, from the app's declaration and the function's docstring."""

    name: str
    path: str
    method: str
    level: str
    query: Sequence[str]
    summary: str
    by_hand: ByHand | None


def routes(functions: Sequence[func.Function]) -> Iterator[Route]:
    """Yields every call except those that the document does not describe."""
    for function, route, declared in declared_in(functions):
        if route in ROUTES:
            continue
        user_function = function.get_user_function()
        text = (user_function.__doc__ or "").strip()
        found = _DOCSTRING.match(text)
        query = re.findall(r"(\w+)=", (found["query"] or "") if found else "")
        summary = (found["summary"] if found else text).partition("\n")[0]
        level = str(getattr(declared.get("authLevel"), "value", declared.get("authLevel"))).lower()
        for method in sorted((methods_of(declared) or {"GET"}) - {"HEAD"}):
            name = str(function.get_function_name())
            by_hand = getattr(user_function, "by_hand", None)
            yield Route(name, route, method, level, query, summary or name, by_hand)


def document(
    title: str, functions: Sequence[func.Function], calls: Sequence[Call], base: str
) -> dict[str, Any]:
    """Returns the API's document; ``calls``: those on resources."""
    components, by_name = openapi.with_problems(), {call.name: call for call in calls}
    operations = []
    for route in routes(functions):
        if route.level == "admin" or route.path in _OPEN_TO_OPERATORS:
            continue
        call = by_name.get(route.name)
        described = openapi.described(call, components) if call else _described(route, components)
        operations.append(
            DocumentedRoute(route.name, route.method, route.path, described, _KEYS.get(route.level, []))
        )
    found = openapi.document(title, operations, components, base=base)
    tags = dict.fromkeys(tag for each in operations for tag in each.described["tags"])
    found["tags"] = [{"name": tag} for tag in tags]
    found["components"]["securitySchemes"] = {
        "functionKey": {
            "type": "apiKey",
            "in": "header",
            "name": "x-functions-key",
            "description": "A function key; a local stack asks for none by default.",
        }
    }
    return found


def _described(route: Route, components: Components) -> dict[str, Any]:
    head: dict[str, Any] = {
        "summary": (route.summary[0].upper() + route.summary[1:]).rstrip("."),
        "description": f"{route.method} /{route.path}: {route.summary.rstrip('.')}.",
    }
    by_hand = route.by_hand or ByHand()
    in_path = [parameter(name, place="path") for name in re.findall(r"\{(\w+)\}", route.path)]
    schemas: Mapping[str, Any] = {}
    if by_hand.query is not None:
        apart = Components()
        schemas = apart.written_out(apart.of(by_hand.query, SchemaForm.INPUT))["properties"]
    wanted = dict.fromkeys([*schemas, *(name for name in route.query if not schemas or name in PAGE)])
    parameters = in_path + [parameter(name, schemas.get(name), "query") for name in wanted]
    answer: dict[str, Any] = {"description": "OK"}
    if by_hand.gives is not None:
        schema = components.of(by_hand.gives, SchemaForm.ANSWER)
        content = {"schema": schema, "example": components.example(schema)}
        answer["content"] = {"application/json": content}
    responses = {"200": answer, **{str(status): {} for status in (*by_hand.problems, 429, 503)}}
    return head | {"tags": [route.path.partition("/")[0]], "parameters": parameters, "responses": responses}

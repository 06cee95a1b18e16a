"""Builds a service's function app with every function that the outbox's guarantees depend on, and its document.

The Functions host tries HTTP routes in the alphabetical order of the functions' names
(https://github.com/Azure/azure-functions-host/issues/9876): so the name of the catch-all function sorts last.

In the OpenAPI document calls on resources are described by their declarations. Other calls are described by the
arguments of ``functions.answering`` and by their docstrings: ``GET /board?city=&pageSize=: the board``. Operators'
calls are excluded.
"""

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import azure.functions as func

from cosmos_outbox.functions.http import (
    ByHand,
    HttpFunctions,
    declared_in,
    methods_of,
    paths,
    paths_of,
    resource_functions,
)
from cosmos_outbox.functions.operators import operator_functions
from cosmos_outbox.functions.relay import relay_functions
from cosmos_outbox.functions.subscription import subscription_functions
from cosmos_outbox.http import openapi, request
from cosmos_outbox.http.answering import Answering, kinds_of
from cosmos_outbox.http.calls import Call, calls, no_such_call
from cosmos_outbox.http.components import Components, SchemaForm, parameter
from cosmos_outbox.http.documents import ROUTES, document_calls
from cosmos_outbox.http.message import Answer, Request
from cosmos_outbox.http.openapi import DocumentedRoute
from cosmos_outbox.http.problems import ProblemKind
from cosmos_outbox.http.request import PAGE
from cosmos_outbox.http.resource import Resource
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.service import Service
from cosmos_outbox.settings.errors import needed
from cosmos_outbox.settings.transports import named

CATCH_ALL = "unrouted"
_HOSTED = "FUNCTIONS_WORKER_RUNTIME"
"""The setting that every host has: a test, or a tool that lists the functions, has none and needs no other."""


class App(func.FunctionApp):
    """A function app whose functions can be listed repeatedly, and whose catch-all is tried last.

    azure-functions 1.26 checks in each call of ``get_functions`` that names are unique, and finds those of the
    previous call.
    """

    _functions: list[func.Function] | None = None

    def get_functions(self) -> list[func.Function]:
        """Returns the functions, built once. Raises ValueError if two share a name or a call, or one hides another.

        The host orders names without regard to case, with ``_`` after the letters.
        """
        if self._functions is None:
            listed = super().get_functions()
            for each in listed:
                name, trigger = str(each.get_function_name()), each.get_trigger()
                is_http = trigger is not None and trigger.get_binding_name() == "httpTrigger"
                if is_http and _as_ordered(name) > _as_ordered(CATCH_ALL):
                    raise ValueError(
                        f"the function {name} would get no call: the host tries {CATCH_ALL}, which takes every path, "
                        "before it. Give it a name that sorts before"
                    )
            _refuse_hidden_calls(listed)
            self._functions = listed
        return self._functions


def _refuse_hidden_calls(listed: Sequence[func.Function]) -> None:
    """Raises ValueError for a call that another takes first: the same, or ``people/{id}`` of ``people/oldest``."""
    named = [(str(each.get_function_name()), path) for each in listed for path in paths_of([each])]
    named.sort(key=lambda each: _as_ordered(each[0]))
    for at, (name, path) in enumerate(named):
        for first, other in named[:at]:
            shared = ", ".join(sorted({*path.methods} & {*other.methods}))
            if shared and other.shape == path.shape:
                raise ValueError(
                    f"two functions take {shared} /{path.route}: give the resource, or the route, another path"
                )
            if shared and other.parts(path.route) is not None:
                raise ValueError(
                    f"the function {name} would get no call: {first} takes {shared} /{path.route}, and the host tries "
                    "it before. Give the function a name that sorts before, or another path"
                )


def _as_ordered(name: str) -> str:
    return name.upper()


def app(service: Service, *, resources: Sequence[Resource[Any, Any]] = ()) -> App:
    """The function app of a service: relay, subscribers, timers, health and operators' calls are in it.

    It also has the calls on ``resources``. A service that only subscribes has no resources, no relay and no operations
    page. Decorate the service's other functions with the app. Raises Misconfigured if a setting is wrong or,
    in a host, missing, or the package of its transport is missing.
    """
    needed(named(os.environ, service.transport))
    if _HOSTED in os.environ:
        (service.settings if service.publishes else service.subscriber_settings)(os.environ)
    _quiet_sdks()
    made = App(http_auth_level=func.AuthLevel.FUNCTION)
    made.register_functions(operator_functions(service))
    on_resources: Sequence[Call] = ()
    if service.publishes:
        made.register_functions(relay_functions(service))
        on_resources = calls(service, resources)
        made.register_functions(resource_functions(on_resources))
    elif resources:
        raise ValueError(f"{service.name} only subscribes: give the resources to the service that keeps them")
    for each in service.subscribers:
        made.register_functions(subscription_functions(service, each))

    def kinds() -> Mapping[str, ProblemKind]:
        by_hand = [each.by_hand.errors for each in routes(made.get_functions()) if each.by_hand]
        return kinds_of([*(each.errors for each in resources), *by_hand])

    def described(base: str) -> Mapping[str, Any]:
        return document(service.name.capitalize(), made.get_functions(), on_resources, base)

    made.register_functions(resource_functions(document_calls(described, kinds), func.AuthLevel.ANONYMOUS))

    @made.function_name(CATCH_ALL)
    @made.route(route="{*path}")  # with every method: azure-functions cannot name TRACE in a list
    @HttpFunctions(Answering()).accepting(*request.HONOURED)
    async def unrouted(req: Request) -> Answer:
        """Answers every call that no other function takes."""
        path = req.route.get("path", "").removesuffix("/")
        return no_such_call(req, path, paths(made), _hint(service, resources))

    return made


def _quiet_sdks() -> None:
    """Raises the SDKs' log level to WARNING: at INFO an SDK writes two long lines for each request.

    ``logLevel`` in host.json drops them only after they were formatted and sent to the host. A level set before stays.
    """
    if logging.getLogger("azure").level == logging.NOTSET:
        logging.getLogger("azure").setLevel(logging.WARNING)


def _hint(service: Service, resources: Sequence[Resource[Any, Any]]) -> str:
    if not service.publishes:
        return "operators begin at /api/stuck"
    declared = {each.kind: each.path for each in resources}
    places = [
        f"{declared[kind]} are at /api/{declared[kind]}" for kind in service.aggregates if kind in declared
    ]
    return "; ".join(places) or "operators begin at /api/operations"


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

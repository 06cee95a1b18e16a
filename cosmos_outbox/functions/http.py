"""Adapts the handlers of :mod:`cosmos_outbox.http`, which do not depend on Azure Functions, to HTTP functions."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any
from urllib.parse import urlsplit

import azure.functions as func
from pydantic import BaseModel

from cosmos_outbox.http.answering import Answering, status_of
from cosmos_outbox.http.calls import Call, Path
from cosmos_outbox.http.message import Answer, Handler, Request
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.service import Wired
from cosmos_outbox.telemetry.tracing import invoked

HttpFunction = Callable[..., Awaitable[func.HttpResponse]]
_API = "/api"
"""The host's prefix of each route, unless ``host.json`` sets another."""


@dataclass(frozen=True)
class ByHand:
    """The description of a call without a resource, for the API's document."""

    gives: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    errors: Mapping[type[Exception], int] = field(default_factory=dict)

    @property
    def problems(self) -> Sequence[int]:
        """The statuses of its own errors."""
        return sorted(set(self.errors.values()))


class HttpFunctions:
    """A decorator, below ``app.route``: turns a handler into an HTTP function, and its errors into responses.

    ``answering``: the meaning of errors; ``by_hand``: the description in the API's document.
    """

    def __init__(self, answering: Answering, by_hand: ByHand | None = None) -> None:
        self._answering, self._by_hand = answering, by_hand

    def __call__(self, handler: Handler) -> HttpFunction:
        """Returns the function, which supports neither conditions nor an idempotency key."""
        return self.accepting()(handler)

    def accepting(self, *headers: str) -> Callable[[Handler], HttpFunction]:
        """As the decorator itself, for a handler that supports these headers: see ``Answering``."""
        answered = self._answering.accepting(*headers)

        def made(handler: Handler) -> HttpFunction:
            function = http_function(answered(handler))
            function.by_hand = self._by_hand  # type: ignore[attr-defined]  # any function may have it
            return function

        return made


def answering(
    service: Callable[[], Wired],
    *,
    errors: Mapping[type[Exception], int] | None = None,
    gives: type[BaseModel] | None = None,
    query: type[BaseModel] | None = None,
) -> HttpFunctions:
    """Returns the decorator for a service's calls without a resource; ``errors``: the statuses of its own errors.

    ``gives`` and ``query`` describe response and query in the API's document. Changes are refused while events wait for
    too long, as in calls on a resource.
    """

    def check_load() -> None:
        service().outbox.shedder.check()

    by_hand = ByHand(gives, query, errors or {})
    return HttpFunctions(Answering(status_of(errors or {}), check_load=check_load), by_hand)


def http_function(handler: Handler) -> HttpFunction:
    """Returns the HTTP function that runs a handler."""

    @functools.wraps(handler, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    async def served(req: func.HttpRequest, context: func.Context | None = None) -> func.HttpResponse:
        with invoked(context):
            return response(await handler(received(req)))

    # The host passes its context if the signature has it, and unwraps decorators. With any other annotation than the
    # plain class it loads no function of the app.
    served.__annotations__["context"] = func.Context
    served.__signature__ = inspect.signature(served, follow_wrapped=False)  # type: ignore[attr-defined]  # any function may have it
    return served


def resource_functions(calls: Iterable[Call], level: func.AuthLevel | None = None) -> func.Blueprint:
    """Returns a function for each call, under its name; ``level`` None: the app's default level applies."""
    app = func.Blueprint()  # type: ignore[no-untyped-call]  # the library does not annotate its constructor
    for call in calls:
        function = http_function(call.handler)
        app.function_name(call.name)(
            app.route(route=call.route, methods=call.methods, auth_level=level)(function)
        )
    return app


def received(req: func.HttpRequest) -> Request:
    """Converts the host's request. The host matches paths in any case, so the base path is normalised."""
    base = _API if urlsplit(req.url).path.lower().startswith(f"{_API}/") else ""
    return Request(req.method, req.url, req.headers, dict(req.route_params), req.get_body(), base)


def response(answer: Answer) -> func.HttpResponse:
    """Converts a response for the host, whose library appends the charset to the type of a text."""
    return func.HttpResponse(
        answer.body, headers=dict(answer.headers), status_code=answer.status, mimetype=answer.media_type
    )


@functools.cache
def paths(app: func.FunctionApp) -> Sequence[Path]:
    """Returns the paths of the app's functions, read once."""
    return paths_of(app.get_functions())


def paths_of(functions: Sequence[func.Function]) -> Sequence[Path]:
    """Returns the paths of HTTP functions, except a catch-all, each with the methods of its function."""
    return [Path(route, methods_of(declared)) for _, route, declared in declared_in(functions)]


def declared_in(functions: Sequence[func.Function]) -> Iterator[tuple[func.Function, str, Mapping[str, Any]]]:
    """Yields each HTTP function, except a catch-all, with its route and its trigger's declaration."""
    for function in functions:
        trigger = function.get_trigger()
        declared = trigger.get_dict_repr() if trigger is not None else {}
        route = str(declared.get("route") or function.get_function_name())
        if declared.get("type") == "httpTrigger" and "{*" not in route:
            yield function, route, declared


def methods_of(declared: Mapping[str, Any]) -> set[str]:
    """Returns the methods that a trigger names."""
    return {str(getattr(each, "value", each)) for each in declared.get("methods") or ()}

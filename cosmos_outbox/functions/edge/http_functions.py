"""The one edge between HTTP functions and the handlers of :mod:`cosmos_outbox.http`, which know no Functions."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import azure.functions as func
from pydantic import BaseModel

from cosmos_outbox.http.answering import Answering, status_of
from cosmos_outbox.http.calls import Call, Serving
from cosmos_outbox.http.catch_all import Path
from cosmos_outbox.http.message import Answer, Handler, Request
from cosmos_outbox.telemetry.tracing import invoked

HttpFunction = Callable[..., Awaitable[func.HttpResponse]]
_API = "/api"
"""What the host puts before each route, unless ``host.json`` says otherwise."""


@dataclass(frozen=True)
class ByHand:
    """What the API's document tells of a call that no resource declares."""

    gives: type[BaseModel] | None = None
    query: type[BaseModel] | None = None
    errors: Mapping[type[Exception], int] = field(default_factory=dict)

    @property
    def problems(self) -> Sequence[int]:
        """The statuses of its own errors."""
        return sorted(set(self.errors.values()))


class HttpFunctions:
    """A decorator, below ``app.route``: a handler becomes an HTTP function, whose errors become answers.

    ``answering`` says which errors mean what, ``by_hand`` what the API's document tells.
    """

    def __init__(self, answering: Answering, by_hand: ByHand | None = None) -> None:
        self._answering, self._by_hand = answering, by_hand

    def __call__(self, handler: Handler) -> HttpFunction:
        """The function; it takes no condition and no key."""
        return self.honouring()(handler)

    def honouring(self, *headers: str) -> Callable[[Handler], HttpFunction]:
        """As the decorator itself, for a handler that keeps what these headers ask for: see ``Answering``."""
        answered = self._answering.honouring(*headers)

        def made(handler: Handler) -> HttpFunction:
            function = http_function(answered(handler))
            function.by_hand = self._by_hand  # type: ignore[attr-defined]  # any function may have it
            return function

        return made


def answering(
    service: Callable[[], Serving],
    *,
    errors: Mapping[type[Exception], int] | None = None,
    gives: type[BaseModel] | None = None,
    query: type[BaseModel] | None = None,
) -> HttpFunctions:
    """The decorator for a service's calls that no resource declares; ``errors``: the status of each error of its own.

    ``gives`` and ``query`` tell the API's document of the answer and of what may stand in the query. It refuses changes
    while events wait for too long, as the calls on a resource do.
    """

    def check_load() -> None:
        service().outbox.shedder.check()

    by_hand = ByHand(gives, query, errors or {})
    return HttpFunctions(Answering(status_of(errors or {}), check_load=check_load), by_hand)


def http_function(handler: Handler) -> HttpFunction:
    """The function that serves what a handler answers."""

    @functools.wraps(handler, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    async def served(req: func.HttpRequest, context: func.Context | None = None) -> func.HttpResponse:
        with invoked(context):
            return response(await handler(received(req)))

    # The host gives its context to a function whose signature has it, and looks through a decorator. Where it finds
    # another annotation than the class alone, it loads no function of the app.
    served.__annotations__["context"] = func.Context
    served.__signature__ = inspect.signature(served, follow_wrapped=False)  # type: ignore[attr-defined]  # any function may have it
    return served


def resource_functions(calls: Iterable[Call], level: func.AuthLevel | None = None) -> func.Blueprint:
    """A function for each of these calls, under its name; without a level, with the key of the app's functions."""
    app = func.Blueprint()  # type: ignore[no-untyped-call]  # the library does not annotate its constructor
    for call in calls:
        function = http_function(call.handler)
        app.function_name(call.name)(
            app.route(route=call.route, methods=call.methods, auth_level=level)(function)
        )
    return app


def received(req: func.HttpRequest) -> Request:
    """What the host hands over. It takes a path in any case, and the type of a problem is the same in each."""
    base = _API if urlsplit(req.url).path.lower().startswith(f"{_API}/") else ""
    return Request(req.method, req.url, req.headers, dict(req.route_params), req.get_body(), base)


def response(answer: Answer) -> func.HttpResponse:
    """What the host gets. Its library writes the encoding behind the type of a text."""
    return func.HttpResponse(
        answer.body, headers=dict(answer.headers), status_code=answer.status, mimetype=answer.media_type
    )


@functools.cache
def paths(app: func.FunctionApp) -> Sequence[Path]:
    """Those of the app's functions, read once."""
    return paths_of(app.get_functions())


def paths_of(functions: Sequence[func.Function]) -> Sequence[Path]:
    """The paths of HTTP functions but for a catch-all, each with the methods that its function takes."""
    return [Path(route, methods_of(declared)) for _, route, declared in declared_in(functions)]


def declared_in(functions: Sequence[func.Function]) -> Iterator[tuple[func.Function, str, Mapping[str, Any]]]:
    """Each HTTP function but for a catch-all, with its route and its trigger as it is declared."""
    for function in functions:
        trigger = function.get_trigger()
        declared = trigger.get_dict_repr() if trigger is not None else {}
        route = str(declared.get("route") or function.get_function_name())
        if declared.get("type") == "httpTrigger" and "{*" not in route:
            yield function, route, declared


def methods_of(declared: Mapping[str, Any]) -> set[str]:
    """The methods that a trigger names."""
    return {str(getattr(each, "value", each)) for each in declared.get("methods") or ()}

"""Every request gets an answer: the function's, or the one that the real host gives in its place.

No keys are asked for, as with ``func start``. An unknown route, and a known one with another method, is
404; a function that raises, or returns what is no response, is 500; both without a body.
"""

import logging
from collections.abc import Iterable
from typing import Any

from aiohttp import web
from azure.functions import meta
from azure.functions.http import HttpRequestConverter, HttpResponseConverter
from multidict import CIMultiDict, MultiMapping

from devstack.functions.indexing import FunctionInfo
from devstack.functions.invocation import Invoker, TraceContext
from devstack.functions.logs import logged_as
from devstack.functions.routing import Router, RouteTemplate, UnsupportedRoute
from devstack.service import CannotStart

MAX_BODY_BYTES = 100 * 1024 * 1024
"""https://learn.microsoft.com/azure/azure-functions/functions-bindings-http-webhook-trigger#limits"""
HOME_PAGE = "Your Azure Functions app is up and running (devstack).\n"

_logger = logging.getLogger(__name__)


def make_router(functions: Iterable[FunctionInfo], prefix: str) -> Router[FunctionInfo]:
    """The HTTP functions under their routes. Raises CannotStart for a route that is not supported."""
    router: Router[FunctionInfo] = Router()
    for function in functions:
        if function.trigger_type == "httpTrigger":
            route = str(function.trigger.get("route") or "")
            try:
                # A route that starts with a slash is the same route: the prefix comes before it all the same.
                template = RouteTemplate.parse(f"{prefix}/{route.lstrip('/')}")
            except UnsupportedRoute as error:
                raise CannotStart(
                    f"functions: {function.name}: {error}; see the list in routing.py"
                ) from error
            methods = function.trigger.get("methods") or ()
            router.add(
                function.name, template, frozenset(str(method).upper() for method in methods), function
            )
    return router


def make_application(router: Router[FunctionInfo], invoker: Invoker) -> web.Application:
    """The web application that answers for all HTTP functions."""
    edge = _Edge(router, invoker)
    application = web.Application(client_max_size=MAX_BODY_BYTES)
    application.router.add_route("*", "/{path:.*}", edge.answer)
    return application


class _Edge:
    def __init__(self, router: Router[FunctionInfo], invoker: Invoker) -> None:
        self._router = router
        self._invoker = invoker

    async def answer(self, request: web.Request) -> web.Response:
        found = self._router.find(request.method, request.rel_url.raw_path)
        if found is None:
            home = request.path == "/" and request.method in ("GET", "HEAD")
            return web.Response(text=HOME_PAGE) if home else web.Response(status=404)
        function, parameters = found
        argument = _decode(request, parameters, await request.read())
        headers = request.headers
        trace = TraceContext.continued(headers.get("traceparent"), headers.get("tracestate", ""))
        try:
            returned = await self._invoker.invoke(function, argument, trace_context=trace)
            return _encode(returned)
        except Exception:
            with logged_as(function.name):
                _logger.exception("failed: %s %s", request.method, request.path)
            return web.Response(status=500)


def _decode(request: web.Request, parameters: dict[str, str], body: bytes) -> Any:
    def strings(values: dict[str, str]) -> dict[str, meta.Datum]:
        return {name: meta.Datum(value, "string") for name, value in values.items()}

    value = {
        "method": meta.Datum(request.method, "string"),
        "url": meta.Datum(str(request.url), "string"),
        "headers": strings(_joined(request.headers)),
        "query": strings(_joined(request.query)),
        "params": strings(parameters),
        # The worker asks the host for raw bytes, whatever the content type (its capability RawHttpBodyBytes).
        "body": meta.Datum(body, "bytes"),
    }
    return HttpRequestConverter.decode(meta.Datum(value, "http"), trigger_metadata={})


def _joined(values: MultiMapping[str]) -> dict[str, str]:
    """Repeated names become one, with a comma between the values: the worker's protocol has no lists there."""
    return {name: ",".join(values.getall(name)) for name in values}


def _encode(returned: Any) -> web.Response:
    # Raises for anything but a text or an HttpResponse, None too, as the worker does.
    datum = HttpResponseConverter.encode(returned, expected_type=None)
    if datum.type == "string":
        return web.Response(text=datum.value)
    value = datum.value
    headers: CIMultiDict[str] = CIMultiDict((name, header.value) for name, header in value["headers"].items())
    for cookie in value["cookies"] or ():
        for morsel in cookie.values():
            headers.add("Set-Cookie", morsel.OutputString())
    return web.Response(status=int(value["status_code"].value), headers=headers, body=value["body"].value)

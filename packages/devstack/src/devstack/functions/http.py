"""Every request gets an answer: the function's, or the one that the real host gives in its place.

Keys are asked for only when the host is configured so: else none is, as with ``func start``. An unknown route, and a
known one with another method, is 404; a function that raises, or returns what is no response, is 500; both
without a body.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote

from aiohttp import web
from azure.functions import meta
from multidict import CIMultiDict, MultiMapping

from devstack.functions.cors import Cors
from devstack.functions.execution import Executor, stack_trace
from devstack.functions.indexing import FunctionInfo
from devstack.functions.invocation import FunctionFailed, Input, Invoker, TraceContext
from devstack.functions.keys import Keys, Level, wanted
from devstack.functions.logs import logged_as
from devstack.functions.routing import Router, RouteTemplate, UnsupportedRoute, resolved_path
from devstack.http_server import EVERY_PATH
from devstack.service import CannotStart

NOT_OVER_TLS = ("localhost", "127.0.0.1", "[::1]")
HOME_PAGE = "Your Azure Functions app is up and running (devstack).\n"

_log = logging.getLogger(__name__)


def make_router(functions: Iterable[FunctionInfo], prefix: str) -> Router[FunctionInfo]:
    """The HTTP functions under their routes. Raises CannotStart for a route that is not supported."""
    router: Router[FunctionInfo] = Router()
    for function in functions:
        if function.trigger_type == "httpTrigger":
            route = str(function.trigger.get("route") or function.name)
            try:
                template = RouteTemplate.parse(f"{prefix}/{route}" if prefix else route)
            except UnsupportedRoute as error:
                raise CannotStart(
                    f"functions: {function.name}: {error}; see the list in routing.py"
                ) from error
            methods = function.trigger.get("methods") or ()
            router.add(
                function.name, template, frozenset(str(method).upper() for method in methods), function
            )
    return router


@dataclass(frozen=True)
class EdgeSettings:
    """What the host does with every request and answer, whichever function they are for."""

    max_body_bytes: int
    hsts: str | None = None
    """The header that makes browsers come over TLS alone; None: it is switched off."""
    cors: Cors | None = None
    keys: Keys | None = None
    """None: nobody is asked for one."""


def make_application(
    router: Router[FunctionInfo], invoker: Invoker, settings: EdgeSettings, own: Iterable[web.RouteDef] = ()
) -> web.Application:
    """The web application that answers for all HTTP functions.

    ``own``: calls of the host itself, which come before those of the app.
    """
    edge = _Edge(router, invoker, settings)
    application = web.Application(client_max_size=settings.max_body_bytes)
    application.router.add_routes(own)
    application.router.add_route("*", EVERY_PATH, edge.answer)
    return application


class _Edge:
    def __init__(self, router: Router[FunctionInfo], invoker: Invoker, settings: EdgeSettings) -> None:
        self._router = router
        self._invoker = invoker
        self._settings = settings
        self._keys = settings.keys

    async def answer(self, request: web.Request) -> web.Response:
        cors = self._settings.cors
        answer = cors.preflight(request) if cors else None
        if answer is None:
            answer = await self._answer(request)
            if cors:
                cors.allow(request, answer)
        if self._settings.hsts and _scheme(request) == "https" and not _is_local(request.host):
            answer.headers["Strict-Transport-Security"] = self._settings.hsts
        return answer

    async def _answer(self, request: web.Request) -> web.Response:
        path = resolved_path(request.rel_url.raw_path)
        found = self._router.find(request.method, path)
        if found is None:
            return web.Response(text=HOME_PAGE) if path == "/" else web.Response(status=404)
        function, parameters = found
        if refusal := self._refusal(request, function):
            return refusal
        if (request.content_length or 0) > self._settings.max_body_bytes:
            refused = web.Response(status=413)
            refused.force_close()
            return refused
        # A body that does not say how long it is, a chunked one, is not handed on.
        body = await request.read() if request.content_length else b""
        value = Input(_datum(request, path, parameters, body))
        headers = request.headers
        trace = TraceContext.continued(headers.get("traceparent"), headers.get("tracestate", ""))
        try:
            return _response(await Executor(function, self._invoker).run(value, trace))
        except FunctionFailed as error:
            with logged_as(function.name):
                _log.error("failed: %s %s%s", request.method, request.rel_url.raw_path, stack_trace(error))
            return web.Response(status=500)

    def _refusal(self, request: web.Request, function: FunctionInfo) -> web.Response | None:
        """What a caller gets who may not call the function; None: the function runs."""
        level = None if self._keys is None else self._keys.level(request, function.name)
        if level is not None and level < wanted(function):
            return web.Response(status=401)
        if function.disabled and level is not Level.ADMIN:
            # It hides the functions behind it all the same.
            return web.Response(status=404)
        return None


def _datum(request: web.Request, path: str, parameters: dict[str, str], body: bytes) -> meta.Datum:
    def strings(values: dict[str, str]) -> dict[str, meta.Datum]:
        return {name: meta.Datum(value, "string") for name, value in values.items()}

    query = f"?{request.rel_url.raw_query_string}" if request.rel_url.raw_query_string else ""
    value = {
        "method": meta.Datum(request.method, "string"),
        "url": meta.Datum(f"{_scheme(request)}://{request.host}{_encoded(path)}{query}", "string"),
        "headers": strings(_joined(request.headers)),
        # Names without a value are left out, as the worker's protocol has no way to say null.
        "query": strings({name: value for name, value in _joined(request.query).items() if value}),
        "params": strings(parameters),
        # The worker asks the host for raw bytes, whatever the content type (its capability RawHttpBodyBytes).
        "body": meta.Datum(body, "bytes"),
    }
    return meta.Datum(value, "http")


def _scheme(request: web.Request) -> str:
    """As the caller used it: in Azure TLS ends before the host, which believes this header there."""
    return request.headers.get("X-Forwarded-Proto") or request.scheme


def _is_local(host: str) -> bool:
    """ASP.NET Core's middleware leaves these out."""
    return host.rpartition(":")[0] in NOT_OVER_TLS or host in NOT_OVER_TLS


def _encoded(path: str) -> str:
    # An encoded slash is still encoded.
    return quote(path, safe="/%:@!$&'()*+,;=~")


def _joined(values: MultiMapping[str]) -> dict[str, str]:
    """Names that are repeated, in whatever case, become one, with a comma between the values that are not empty.

    The worker's protocol has no lists there.
    """
    joined: dict[str, tuple[str, list[str]]] = {}
    for name, value in values.items():
        joined.setdefault(name.lower(), (name, []))[1].append(value)
    return {name: ",".join(filter(None, each)) for name, each in joined.values()}


def _response(datum: meta.Datum) -> web.Response:
    if datum.type == "string":
        return web.Response(text=datum.value)
    value = datum.value
    headers: CIMultiDict[str] = CIMultiDict((name, header.value) for name, header in value["headers"].items())
    for cookie in value["cookies"] or ():
        for morsel in cookie.values():
            headers.add("Set-Cookie", morsel.OutputString())
    return web.Response(status=int(value["status_code"].value), headers=headers, body=value["body"].value)

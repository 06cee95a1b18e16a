"""Translates between ASGI and the handlers of this package, and serves the calls on resources as an application.

https://asgi.readthedocs.io/en/latest/specs/www.html
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any
from urllib.parse import quote

from cosmos_outbox.http import openapi
from cosmos_outbox.http.answering import Answering, kinds_of
from cosmos_outbox.http.calls import Call, CallerOf, Path, calls, no_such_call
from cosmos_outbox.http.documents import ROUTES, document_calls
from cosmos_outbox.http.message import Answer, Handler, Request
from cosmos_outbox.http.openapi import DocumentedRoute
from cosmos_outbox.http.request import HONOURED, MAX_BODY_BYTES
from cosmos_outbox.http.resource import Resource
from cosmos_outbox.service import Wired

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_answering = Answering()


def asgi_app(
    service: Callable[[], Wired],
    resources: Sequence[Resource[Any, Any]],
    *,
    caller_of: CallerOf | None = None,
) -> "AsgiApp":
    """Returns an ASGI application with the calls on these resources, for Starlette's ``Mount("/api", app=...)``.

    It also serves ``openapi.json`` and ``docs``, a page to try the calls.
    ``caller_of``: the sender of a request according to the program's own authentication; equal ``Idempotency-Key``
    texts of two callers are then two keys. Relay and subscribers are not started: the program runs them.
    """
    served = calls(service, resources, caller_of=caller_of)

    def document(base: str) -> Mapping[str, Any]:
        components = openapi.with_problems()
        operations = [
            DocumentedRoute(each.name, each.method, each.route, openapi.described(each, components))
            for each in served
        ]
        return openapi.document(", ".join(each.path for each in resources), operations, components, base=base)

    return AsgiApp([*served, *document_calls(document, lambda: kinds_of(each.errors for each in resources))])


class AsgiApp:
    """Serves calls; answers 404 for an unknown path, and 405 with the allowed methods for an unknown method."""

    def __init__(self, served: Sequence[Call]) -> None:
        self._served = [(Path(call.route, call.methods), call.handler) for call in served]
        self._unrouted = unrouted([path for path, _ in self._served])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request. Raises NotImplementedError for a web socket, and for a lifespan: it needs none."""
        if scope["type"] != "http":
            raise NotImplementedError(f"this application serves http, not {scope['type']}")
        base = scope.get("root_path", "")
        path = str(scope["path"]).removeprefix(base.removeprefix(cut_off(scope))).removeprefix("/")
        for known, handler in self._served:
            parts = known.parts(path)
            if parts is not None and scope["method"] in known.methods:
                return await serve(handler, parts, scope, receive, send, base)
        return await serve(self._unrouted, {"path": path}, scope, receive, send, base)


def cut_off(scope: Scope) -> str:
    """Returns the prefix that a proxy has cut off the path, and that a caller's path has; empty: there is none."""
    prefix = str(scope.get("app_root_path", scope.get("root_path", "")))
    return "" if f"{scope['path']}/".startswith(f"{prefix}/") else prefix


def unrouted(known: Sequence[Path]) -> Handler:
    """Returns the handler of requests that match no call. The part ``path`` of its route is the whole path."""
    plain = {path.route for path in known if "{" not in path.route} - {*ROUTES}
    hint = ", ".join(f"/{route}" for route in sorted(plain))

    @_answering.accepting(*HONOURED)
    async def none(req: Request) -> Answer:
        return no_such_call(req, req.route["path"], known, f"there is {hint}")

    return none


async def serve(  # noqa: PLR0913, PLR0917 - ASGI's three, and what is served
    handler: Handler, parts: Mapping[str, str], scope: Scope, receive: Receive, send: Send, base: str
) -> None:
    """Answers one request unless its caller disconnected before all of it arrived. ``base``: see ``Request``."""
    answer = await answer_call(handler, parts, scope, receive, base)
    if answer is None:
        return
    headers = {name.lower(): value for name, value in answer.headers.items()}
    if answer.status != 204:
        headers["content-type"] = answer.content_type
    if answer.status not in (204, 304):  # a 304's length would be that of the 200 (RFC 9110, 8.6)
        headers["content-length"] = str(len(answer.body))
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": encoded})
    await send({"type": "http.response.body", "body": answer.body})


async def answer_call(
    handler: Handler, parts: Mapping[str, str], scope: Scope, receive: Receive, base: str
) -> Answer | None:
    """Returns the response to a request; None: the caller disconnected before all of it arrived."""
    body = await _body(receive)
    return None if body is None else await handler(received(scope, parts, body, base))


async def _body(receive: Receive) -> bytes | None:
    """Reads the body until its end, or until it exceeds ``MAX_BODY_BYTES``; None: the caller disconnected."""
    parts, size, more = [], 0, True
    while more and size <= MAX_BODY_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size, more = size + len(parts[-1]), message.get("more_body", False)
    return b"".join(parts)


def received(scope: Scope, parts: Mapping[str, str], body: bytes, base: str = "") -> Request:
    """Converts an ASGI request. Joins the values of a repeated header with a comma (RFC 9110, 5.3)."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name != "transfer-encoding":  # hop-by-hop: the server has already assembled the body
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    query = scope.get("query_string", b"").decode("latin-1")
    url = quote(cut_off(scope) + scope["path"], safe="/:@!$&'()*+,;=~") + (f"?{query}" if query else "")
    return Request(scope["method"], url, headers, parts, body, base)

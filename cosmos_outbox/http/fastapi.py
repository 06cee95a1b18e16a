"""Serves the calls on resources as a FastAPI router; the program's own ``/docs`` lists them.

FastAPI gets descriptions of bodies and responses but parses none: its validation errors would have another format, and
would precede the limits of this package.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from cosmos_outbox.settings.errors import needed

needed("fastapi")

from fastapi import APIRouter, Request, Response  # noqa: E402 - not before it is known that it can be imported
from starlette.routing import Route  # noqa: E402

from cosmos_outbox.http.answering import kinds_of  # noqa: E402
from cosmos_outbox.http.asgi import Receive, Scope, Send, answer_call, cut_off, serve, unrouted  # noqa: E402
from cosmos_outbox.http.calls import CallerOf, Path, calls  # noqa: E402
from cosmos_outbox.http.documents import problem_call  # noqa: E402
from cosmos_outbox.http.message import Handler  # noqa: E402
from cosmos_outbox.http.openapi import written_out  # noqa: E402
from cosmos_outbox.http.resource import Resource  # noqa: E402
from cosmos_outbox.service import Wired  # noqa: E402


def fastapi_router(
    service: Callable[[], Wired],
    resources: Sequence[Resource[Any, Any]],
    *,
    caller_of: CallerOf | None = None,
) -> APIRouter:
    """Returns a router with the calls: ``app.include_router(fastapi_router(service, [people]), prefix="/api")``.

    ``dependencies`` of the router or the program, such as authentication, apply to them. ``caller_of``: the sender of
    a request according to that authentication; equal ``Idempotency-Key`` texts of two callers are then two keys. The
    router answers 405 for other methods on a resource's path: register the program's own routes on such a path before
    the router.
    """
    router = APIRouter()
    served = calls(service, resources, caller_of=caller_of)
    for call in served:
        for method in call.methods:
            router.add_api_route(
                f"/{call.route}",
                _endpoint(call.handler, call.route),
                methods=[method],
                status_code=call.status,
                name=call.name,
                response_model=None,
                openapi_extra=written_out(call),
                include_in_schema=method == call.method,
            )
    explained = problem_call(lambda: kinds_of(each.errors for each in resources))
    router.add_api_route(
        f"/{explained.route}", _endpoint(explained.handler, explained.route), methods=list(explained.methods),
        name=explained.name, response_model=None, include_in_schema=False,
    )  # fmt: skip
    paths = [Path(call.route, call.methods) for call in served]
    for route in dict.fromkeys(call.route for call in served):
        rest = _Unrouted(route, unrouted(paths))
        router.routes.append(Route(f"/{route}", rest, name=f"unrouted {route}"))
    return router


def _endpoint(handler: Handler, path: str) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        answer = await answer_call(
            handler, request.path_params, request.scope, request.receive, _base(request.scope, path)
        )
        if answer is None:
            return Response(status_code=400)  # the caller has disconnected
        kind = None if answer.status == 204 else answer.media_type
        return Response(answer.body, answer.status, dict(answer.headers), kind)

    return endpoint


def _base(scope: Scope, route: str) -> str:
    """Returns a caller's path before the route: a program may mount the router anywhere, and be behind a proxy."""
    return cut_off(scope) + str(scope["path"]).rstrip("/").rsplit("/", route.count("/") + 1)[0]


class _Unrouted:
    """Accepts every method: Starlette does not restrict methods if the endpoint is not a function."""

    def __init__(self, route: str, handler: Handler) -> None:
        self._route, self._handler = route, handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await serve(self._handler, {"path": self._route}, scope, receive, send, _base(scope, self._route))

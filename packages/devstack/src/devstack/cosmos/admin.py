"""Administrative calls, which the service does not have: they are there only when asked for on the command line.

Under ``/_devstack/``, unsigned, JSON in and out::

    POST   /_devstack/faults  {"kind": "drop-after-commit", "count": 2, "operation": "batch", "container": "orders"}
    GET    /_devstack/faults
    DELETE /_devstack/faults
    POST   /_devstack/split   {"database": "shop", "container": "orders", "range": "0"}
"""

from collections.abc import Awaitable, Callable

from aiohttp import web
from pydantic import BaseModel, ConfigDict, ValidationError

from devstack.cosmos.errors import CosmosError
from devstack.cosmos.resources import partitions
from devstack.cosmos.resources.service import Service
from devstack.cosmos.wire.faults import Fault, Faults

Handler = Callable[[web.Request], Awaitable[web.Response]]


class _SplitRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    database: str
    container: str
    range: str


def routes(service: Service, faults: Faults) -> list[web.RouteDef]:
    async def add_fault(request: web.Request) -> web.Response:
        faults.add(Fault.model_validate_json(await request.read()))
        return _listed(faults)

    async def list_faults(_request: web.Request) -> web.Response:
        return _listed(faults)

    async def clear_faults(_request: web.Request) -> web.Response:
        faults.clear()
        return _listed(faults)

    async def split(request: web.Request) -> web.Response:
        wanted = _SplitRequest.model_validate_json(await request.read())
        container = service.catalogue.container(wanted.database, wanted.container)
        done = partitions.split(service, container, int(wanted.range))
        return web.json_response(
            {"parent": str(done.parent.id), "children": [str(child.id) for child in done.children]}
        )

    return [
        web.post("/_devstack/faults", _answering(add_fault)),
        web.get("/_devstack/faults", _answering(list_faults)),
        web.delete("/_devstack/faults", _answering(clear_faults)),
        web.post("/_devstack/split", _answering(split)),
    ]


def _listed(faults: Faults) -> web.Response:
    pending = [fault.model_dump(by_alias=True, exclude_none=True) for fault in faults.pending()]
    return web.json_response({"faults": pending})


def _answering(handler: Handler) -> Handler:
    """What is wrong with the call, as an answer."""

    async def handle(request: web.Request) -> web.Response:
        try:
            return await handler(request)
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
            return web.json_response({"error": "; ".join(problems)}, status=400)
        except ValueError as error:
            return web.json_response({"error": str(error)}, status=400)
        except CosmosError as error:
            return web.json_response({"error": error.message}, status=error.kind.status)

    return handle

"""Administrative calls, which the service does not have: they are there only when asked for on the command line.

Beside the faults of :mod:`devstack.fault_api`::

    POST   /_devstack/split   {"database": "shop", "container": "orders", "range": "0"}
"""

from aiohttp import web

from devstack.cosmos.errors import CosmosError
from devstack.cosmos.resources import partitions
from devstack.cosmos.resources.service import Service
from devstack.cosmos.wire.faults import Fault, Faults
from devstack.fault_api import Call, CallRefused, answering, fault_routes


class _SplitCall(Call):
    database: str
    container: str
    range: str


def routes(service: Service, faults: Faults) -> list[web.RouteDef]:
    async def split(request: web.Request) -> web.Response:
        wanted = await _SplitCall.read(request)
        try:
            container = service.catalogue.container(wanted.database, wanted.container)
            done = partitions.split(service, container, int(wanted.range))
        except CosmosError as error:
            raise CallRefused(error.kind.status, error.message) from error
        except ValueError as error:
            raise CallRefused(400, str(error)) from error
        return web.json_response(
            {"parent": str(done.parent.id), "children": [str(child.id) for child in done.children]}
        )

    return [
        *fault_routes(Fault, faults, lambda _: False),
        web.post("/_devstack/split", answering(split)),
    ]

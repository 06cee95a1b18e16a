"""Administrative calls, which the service does not have: they are there only when asked for on the command line.

Beside the faults of :mod:`devstack.fault_api`::

    POST   /_devstack/split   {"database": "shop", "container": "orders", "range": "0"}
    POST   /_devstack/clock   {"ahead": -600}
    POST   /_devstack/account {"enableMultipleWriteLocations": true}
"""

import time
from typing import Annotated

from aiohttp import web
from pydantic import Field

from devstack.cosmos.protocol.errors import CosmosError
from devstack.cosmos.resources import partitions
from devstack.cosmos.resources.service import Service
from devstack.cosmos.wire.faults import Fault, Faults
from devstack.fault_api import Call, CallRefused, answering, fault_routes


class _SplitCall(Call):
    database: str
    container: str
    range: str


class _ClockCall(Call):
    ahead: Annotated[float, Field(ge=-86_400, le=86_400)]


class _AccountCall(Call):
    enable_multiple_write_locations: bool


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

    async def clock(request: web.Request) -> web.Response:
        wanted = await _ClockCall.read(request)
        service.clock = lambda: time.time() + wanted.ahead
        return web.json_response({"ahead": wanted.ahead})

    async def account(request: web.Request) -> web.Response:
        wanted = await _AccountCall.read(request)
        service.multiple_writes = wanted.enable_multiple_write_locations
        return web.json_response({"enableMultipleWriteLocations": service.multiple_writes})

    return [
        *fault_routes(Fault, faults, lambda _: False),
        web.post("/_devstack/split", answering(split)),
        web.post("/_devstack/clock", answering(clock)),
        web.post("/_devstack/account", answering(account)),
    ]

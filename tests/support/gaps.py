"""A proxy that makes devstack's Cosmos DB lack what Microsoft's Linux emulator (vNext) lacks.

https://github.com/Azure/azure-cosmos-db-emulator-docker/issues/302 and 319: ``If-Match`` inside a batch is ignored.
338: an update of a container does nothing.
"""

import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from aiohttp import ClientSession, web

Gap = Literal["batch-if-match", "container-update"]
GAPS: Collection[Gap] = ("batch-if-match", "container-update")

_HOP_BY_HOP = {"host", "content-length", "transfer-encoding", "connection", "content-encoding"}


@dataclass(frozen=True)
class Gappy:
    """A server as a client sees it through the proxy."""

    connection_string: str


@asynccontextmanager
async def gappy(connection_string: str, gaps: Collection[Gap] = GAPS) -> AsyncIterator[Gappy]:
    """The account of this connection string, with these gaps."""
    parts = dict(part.split("=", 1) for part in connection_string.rstrip(";").split(";"))
    upstream = parts["AccountEndpoint"].rstrip("/")
    async with ClientSession(auto_decompress=True) as session:

        async def pass_on(request: web.Request) -> web.Response:
            body = await request.read()
            if "batch-if-match" in gaps and "x-ms-cosmos-is-batch-request" in request.headers:
                body = json.dumps([_unconditional(each) for each in json.loads(body)]).encode()
            method = request.method
            if (
                "container-update" in gaps
                and method == "PUT"
                and len(request.path.strip("/").split("/")) == 4
            ):
                return web.Response(status=200, body=body, content_type="application/json")
            headers = {
                name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP
            }
            url = f"{upstream}{request.raw_path}"
            async with session.request(
                method, url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                content = (await answer.read()).replace(upstream.encode(), str(request.url.origin()).encode())
                return web.Response(
                    status=answer.status,
                    body=content,
                    headers={
                        name: value
                        for name, value in answer.headers.items()
                        if name.lower() not in _HOP_BY_HOP
                    },
                )

        app = web.Application(client_max_size=8 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", pass_on)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            port = runner.addresses[0][1]
            yield Gappy(f"AccountEndpoint=http://127.0.0.1:{port}/;AccountKey={parts['AccountKey']};")
        finally:
            await runner.cleanup()


def _unconditional(operation: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in operation.items() if name != "ifMatch"}

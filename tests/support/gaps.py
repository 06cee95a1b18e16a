"""A proxy before devstack that lacks what Microsoft's emulators lack, so that every machine can run tests against that.

``python -m tests.support.gaps all pytest tests/contract`` starts devstack behind it and runs the rest of the line as a
command of this Python, with the addresses in ``TEST_COSMOS`` and ``TEST_SERVICEBUS``. In the place of ``all`` there may
be names of :class:`Gap`, joined by commas.
"""

from tools.required import require

if __name__ == "__main__":
    require("gaps")

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiohttp import ClientSession, web
from yarl import URL

from devstack.testing import Service, running
from tests.support.emulators import Gap

GAPS = (
    Gap.BATCH_IGNORES_ETAG,
    Gap.CONTAINER_UPDATE,
    Gap.INDEX_POLICY,
    Gap.SESSION_TOKEN_IGNORED,
    Gap.SESSION_TOKEN_OF_QUERIES,
    Gap.NO_304,
    Gap.PAGE_SIZE,
    Gap.DELIVERY_COUNT,
)
"""Those that a proxy can show."""

MOST_DELIVERIES = 10
_INDEXED = {
    "indexingMode": "consistent",
    "automatic": True,
    "includedPaths": [{"path": "/*"}],
    "excludedPaths": [{"path": '/"_etag"/?'}],
}
_HOP_BY_HOP = {"host", "content-length", "transfer-encoding", "connection", "content-encoding"}
_TOKEN = "x-ms-session-token"


@dataclass
class _Call:
    """What passes: the request, and then its answer."""

    method: str
    path: str
    headers: MutableMapping[str, str]
    body: bytes
    status: int = 200

    @property
    def is_of_a_container(self) -> bool:
        return re.fullmatch(r"/dbs/[^/]+/colls/[^/]+/?", self.path) is not None

    @property
    def is_query(self) -> bool:
        return "query+json" in self.headers.get("Content-Type", "")


_Send = Callable[[_Call], Awaitable[_Call]]


@asynccontextmanager
async def gappy(connection_string: str, gaps: Collection[Gap] = GAPS) -> AsyncIterator[str]:
    """The connection string of an account that is this one, with these gaps."""
    parts = dict(part.split("=", 1) for part in connection_string.rstrip(";").split(";"))
    async with _before(parts["AccountEndpoint"].rstrip("/"), _cosmos, gaps) as address:
        yield f"AccountEndpoint={address}/;AccountKey={parts['AccountKey']};"


async def _cosmos(call: _Call, gaps: Collection[Gap], send: _Send) -> _Call:
    headers, is_query = call.headers, call.is_query
    if Gap.CONTAINER_UPDATE in gaps and call.method == "PUT" and call.is_of_a_container:
        return _Call(call.method, call.path, {"Content-Type": "application/json"}, call.body)
    if Gap.BATCH_IGNORES_ETAG in gaps and "x-ms-cosmos-is-batch-request" in headers:
        call.body = json.dumps([_unconditional(each) for each in json.loads(call.body)]).encode()
    if Gap.SESSION_TOKEN_IGNORED in gaps:
        headers.pop(_TOKEN, None)
    if Gap.NO_304 in gaps and "A-IM" not in headers:
        headers.pop("If-None-Match", None)
    if Gap.PAGE_SIZE in gaps and is_query and b"ORDER BY" in call.body:
        headers["x-ms-max-item-count"] = "-1"
    answer = await send(call)
    if Gap.SESSION_TOKEN_OF_QUERIES in gaps and _TOKEN in answer.headers:
        known = re.sub(r":-?\d+#", ":0#", answer.headers[_TOKEN])
        answer.headers[_TOKEN] = re.sub(r"#\d+", "#0", known) if is_query else known
    if Gap.INDEX_POLICY in gaps and call.is_of_a_container and answer.status == 200 and answer.body:
        answer.body = json.dumps(json.loads(answer.body) | {"indexingPolicy": _INDEXED}).encode()
    return answer


def _unconditional(operation: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in operation.items() if name != "ifMatch"}


@asynccontextmanager
async def gappy_management(address: str, gaps: Collection[Gap] = GAPS) -> AsyncIterator[str]:
    """The address of the management API of a Service Bus that is this one, with these gaps."""
    async with _before(address.rstrip("/"), _management, gaps) as own:
        yield own


async def _management(call: _Call, gaps: Collection[Gap], send: _Send) -> _Call:
    asked = re.search(rb"MaxDeliveryCount>(\d+)<", call.body)
    if Gap.DELIVERY_COUNT in gaps and call.method == "PUT" and asked and int(asked[1]) > MOST_DELIVERIES:
        text = f"<Error><Code>400</Code><Detail>MaxDeliveryCount is above {MOST_DELIVERIES}</Detail></Error>"
        return _Call(call.method, call.path, {"Content-Type": "application/xml"}, text.encode(), 400)
    return await send(call)


@asynccontextmanager
async def _before(
    upstream: str, change: Callable[[_Call, Collection[Gap], _Send], Awaitable[_Call]], gaps: Collection[Gap]
) -> AsyncIterator[str]:
    """The address of a server on a free port that passes everything on, as ``change`` will have it."""
    async with ClientSession(auto_decompress=True) as session:

        async def handle(request: web.Request) -> web.Response:
            async def send(call: _Call) -> _Call:
                url = URL(f"{upstream}{request.raw_path}", encoded=True)
                async with session.request(
                    call.method, url, data=call.body, headers=call.headers, allow_redirects=False
                ) as answer:
                    body = (await answer.read()).replace(
                        upstream.encode(), str(request.url.origin()).encode()
                    )
                    return _Call(call.method, call.path, _end_to_end(answer.headers), body, answer.status)

            call = _Call(request.method, request.path, _end_to_end(request.headers), await request.read())
            answer = await change(call, gaps, send)
            return web.Response(status=answer.status, body=answer.body, headers=answer.headers)

        app = web.Application(client_max_size=8 * 1024 * 1024)
        app.router.add_route("*", r"/{path:[\s\S]*}", handle)  # an id may have a line end
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


def _end_to_end(headers: Any) -> Any:
    kept = headers.copy()
    for name in _HOP_BY_HOP:
        kept.popall(name, None)
    return kept


async def run(gaps: Collection[Gap], command: list[str]) -> int:
    """The exit code of this Python with these arguments, beside a local Azure that has these gaps."""
    with TemporaryDirectory() as folder:
        cosmos, servicebus = (Service(name, Path(folder) / name) for name in ("cosmos", "servicebus"))
        with running(cosmos), running(servicebus):
            amqp, management = servicebus.addresses
            async with (
                _before(cosmos.address.rstrip("/"), _cosmos, gaps) as account,
                gappy_management(management, gaps) as administration,
            ):
                environment = os.environ | {
                    "TEST_COSMOS": f"{account}/",
                    "TEST_SERVICEBUS": f"{amqp} {administration}",
                    "TEST_GAPS": " ".join(gap.name for gap in gaps),
                }
                process = await asyncio.create_subprocess_exec(sys.executable, *command, env=environment)
                return await process.wait()


if __name__ == "__main__":
    os.environ["DEVSTACK_NO_FSYNC"] = "1"
    names, *rest = sys.argv[1:]
    sys.exit(asyncio.run(run(GAPS if names == "all" else [Gap[name] for name in names.split(",")], rest)))

"""A batch whose answer came and could not be read may be stored, whatever the service answers to its repetition."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from devstack.testing import Service
from domain.contact import Contact
from infra.connections import Connection
from infra.cosmos.client import cosmos_client
from infra.cosmos.container import Container
from tests.contract.conftest import CosmosStore
from tests.support.azure import CONTACTS, contacts_database
from tests.support.contacts import DETAILS, NOON
from tests.support.emulators import Gap

UNREADABLE = {"a page": b"<html>", "half": b"[{"}


@dataclass
class Proxy:
    """Passes each request on. What it does to the answers of the next batches is in ``answers``."""

    target: str
    http: aiohttp.ClientSession
    answers: list[str] = field(default_factory=list)
    address: str = ""

    async def pass_on(self, request: web.Request) -> web.Response:
        is_batch = "x-ms-cosmos-is-batch-request" in request.headers
        what = self.answers.pop(0) if is_batch and self.answers else ""
        if what == "throttled":
            return web.Response(status=429, headers={"x-ms-retry-after-ms": "10"})
        url, headers = self.target + request.path_qs, request.headers
        async with self.http.request(
            request.method, url, headers=headers, data=await request.read()
        ) as answer:
            body = (await answer.read()).replace(self.target.encode(), self.address.encode())
            kept = {name: value for name, value in answer.headers.items() if name.startswith("x-ms-")}
            return web.Response(status=answer.status, headers=kept, body=UNREADABLE.get(what, body))


@pytest.fixture
async def proxy(cosmos_server: Service) -> AsyncIterator[Proxy]:
    target = cosmos_server.connection_string.partition("AccountEndpoint=")[2].partition(";")[0].rstrip("/")
    async with aiohttp.ClientSession(auto_decompress=True) as http:
        proxy, app = Proxy(target, http), web.Application()
        app.router.add_route("*", "/{path:.*}", proxy.pass_on)
        async with TestServer(app) as server:
            proxy.address = str(server.make_url("")).rstrip("/")
            yield proxy


@pytest.mark.known_gap(Gap.BATCH_NOT_ATOMIC)
@pytest.mark.parametrize("unreadable", UNREADABLE)
async def test_a_throttle_after_an_answer_that_cannot_be_read_does_not_mean_that_nothing_was_written(
    cosmos_server: Service, proxy: Proxy, unreadable: str
) -> None:
    async with contacts_database(cosmos_server) as database:
        text = cosmos_server.connection_string.replace(proxy.target, proxy.address)
        client = cosmos_client(Connection(text), None)
        store = CosmosStore(Container(client, database.id, CONTACTS), database.id, CONTACTS)
        contact = Contact.create(DETAILS, at=NOON)
        proxy.answers = [unreadable] + ["throttled"] * 4  # which is more than the SDK repeats
        async with store.open() as work:
            work.add(contact)
            receipt = (await work.commit()).receipt(contact)
        assert proxy.answers == []
        assert receipt.etag is not None
        assert [event.sequence for event in await store.events(contact.key)] == [1]
        await client.close()

"""A batch whose answer came and could not be read may be stored, whatever the service answers to its repetition."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from azure.cosmos.aio import ContainerProxy

from cosmos_outbox.cosmos import transaction
from cosmos_outbox.cosmos.store.client import cosmos_client
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.cosmos.store.partition_key import Item, Key
from cosmos_outbox.outbox.aggregate import Receipt
from cosmos_outbox.outbox.errors import OutcomeUnknown
from cosmos_outbox.settings.connections import Connection
from devstack.testing import Service
from domain.contact import Contact
from tests.contract.conftest import CosmosStore
from tests.support.azure import CONTACTS, contacts_database
from tests.support.contacts import DETAILS, NOON
from tests.support.emulators import Gap

pytestmark = pytest.mark.needs_a_socket("a proxy that changes the answers")

UNREADABLE = {
    "a page": b"<html>",
    "half": b"[{",
    "empty": b"",
    "null": b"null",
    "no operation": b"[]",
    "one operation of two": b'[{"statusCode": 201, "eTag": "1"}]',
    "an object": b'{"statusCode": 201}',
    "no status": b"[{}, {}]",
    "a word for a status": b'[{"statusCode": "created"}, {"statusCode": "created"}]',
    "numbers": b"[201, 201]",
}


@dataclass
class Proxy:
    """Passes each request on. What it does to the answers of the next batches is in ``answers``."""

    target: str
    http: aiohttp.ClientSession
    answers: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    """The same, to the next reads of an item."""
    address: str = ""

    async def pass_on(self, request: web.Request) -> web.Response:
        is_read = request.method == "GET" and "/docs/" in request.path
        is_batch = "x-ms-cosmos-is-batch-request" in request.headers
        planned = self.answers if is_batch else self.reads if is_read else []
        what = planned.pop(0) if planned else ""
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


@pytest.fixture
async def store(
    cosmos_server: Service, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CosmosStore]:
    """Behind the proxy, on replicas that lag as far as the contract allows."""
    monkeypatch.setattr(transaction, "PATIENCE_SECONDS", 60.0)  # a busy machine loses no patience
    async with contacts_database(cosmos_server) as database:
        text = cosmos_server.connection_string.replace(proxy.target, proxy.address)
        client = cosmos_client(Connection(text), None)
        yield CosmosStore(Lagging(client, database.id, CONTACTS), database.id, CONTACTS)
        await client.close()


class Lagging(Container):
    """A read without a session token sees nothing."""

    async def read_with_age(self, item_id: str, partition_key: Key) -> tuple[Item, float] | None:
        if self.seen(partition_key) is None:
            return None
        return await super().read_with_age(item_id, partition_key)


async def create(store: CosmosStore, contact: Contact) -> Receipt[Contact]:
    async with store.open() as work:
        work.add(contact)
        return (await work.commit()).receipt(contact)


@pytest.mark.known_gap(Gap.BATCH_NOT_ATOMIC)
@pytest.mark.parametrize(
    "unreadable",
    ["half", *(pytest.param(each, marks=pytest.mark.long) for each in UNREADABLE if each != "half")],
)
async def test_a_throttle_after_an_unreadable_answer_does_not_mean_unwritten(
    store: CosmosStore, proxy: Proxy, unreadable: str
) -> None:
    contact = Contact.create(DETAILS, at=NOON)
    proxy.answers = [unreadable] + ["throttled"] * 4  # which is more than the SDK repeats
    receipt = await create(store, contact)
    assert proxy.answers == []
    assert receipt.etag is not None
    assert [event.sequence for event in await store.events(contact.key)] == [1]


@pytest.mark.known_gap(Gap.BATCH_NOT_ATOMIC)
async def test_where_no_answer_can_be_read_the_outcome_is_unknown(
    store: CosmosStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "PATIENCE_SECONDS", 0.3)
    contact = Contact.create(DETAILS, at=NOON)
    proxy.answers = ["empty"] * 20
    with pytest.raises(OutcomeUnknown):
        await create(store, contact)
    proxy.answers = []
    assert [event.sequence for event in await store.events(contact.key)] == [1]


@pytest.mark.known_gap(Gap.BATCH_NOT_ATOMIC)
async def test_where_the_own_event_cannot_be_read_either_the_outcome_is_unknown(
    store: CosmosStore, proxy: Proxy
) -> None:
    proxy.answers, proxy.reads = ["empty"], ["empty"]
    with pytest.raises(OutcomeUnknown):
        await create(store, Contact.create(DETAILS, at=NOON))
    assert proxy.reads == []


async def test_an_error_of_python_without_an_answer_is_a_bug_and_no_lost_answer(
    store: CosmosStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise TypeError("a bug")

    monkeypatch.setattr(ContainerProxy, "execute_item_batch", broken)
    with pytest.raises(TypeError, match="a bug"):
        await create(store, Contact.create(DETAILS, at=NOON))

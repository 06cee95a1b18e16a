"""Each identity of a deployment may write only where its code writes."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from application.directory import Search
from cosmos_outbox.cosmos.store.client import TrackingTransport
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.aggregate import KeyedRequest
from cosmos_outbox.worker import subscriber as subscriber_worker
from devstack.testing import Service, eventually
from tests.contract.test_idle_costs import kind_of
from tests.deploy.bicep import DECLARED, MAIN
from tests.support.contacts import DETAILS, ORIGIN
from tests.support.deployed import Deployed, deployed, relaying
from tests.support.use_cases import contacts_of, directory_of, healing_of, read_model_of, subscriber_of, wire

pytestmark = pytest.mark.needs_a_socket("requests are looked at on their way")


def allowed(identity: str) -> set[str]:
    """The containers in which an identity may write."""
    settings, made = DECLARED["settings"], {each["name"] for each in DECLARED["cosmos"]["containers"]}
    named = {
        "containerName": settings["COSMOS_CONTAINER"],
        "leaseContainerName": settings["COSMOS_LEASE_CONTAINER"],
        "parkedContainerName": settings["COSMOS_PARKED_CONTAINER"],
        "claimContainerName": settings["COSMOS_CLAIM_CONTAINER"],
    }
    text = MAIN.declaration("var", f"{identity}Writes").text
    found = {named[name] for name in re.findall(r"\b(\w*[cC]ontainerName)\b", text)}
    return made - found if "filter(" in text else found


class Written(set[str]):
    """The containers in which something was to be written, in vain or not."""

    def taken(self) -> set[str]:
        """Those since the last call."""
        found = {*self}
        self.clear()
        return found


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    found, send = Written(), TrackingTransport.send

    async def noted(transport: Any, request: Any, **options: Any) -> Any:
        container = re.search(r"/colls/([^/]+)/docs", request.url)
        if container and kind_of(request) == "write":
            found.add(container[1])
        return await send(transport, request, **options)

    monkeypatch.setattr(TrackingTransport, "send", noted)
    return found


@pytest.fixture
async def service(cosmos_server: Service, servicebus_server: Service) -> AsyncIterator[Deployed]:
    async with deployed(cosmos_server, servicebus_server) as made:
        yield made


async def test_each_writes_only_where_its_identity_may(service: Deployed, written: Written) -> None:
    application = service.application
    contacts, outbox = contacts_of(application), application.outbox

    def request() -> KeyedRequest:
        return KeyedRequest("ada", uuid4().hex, "a")

    again = request()
    for _ in range(2):
        receipt, _ = await contacts.create_once(DETAILS, ORIGIN, again)
    contact = receipt.aggregate.id
    await contacts.revise(contact, lambda now: now.model_copy(update={"description": "!"}), ORIGIN)
    await contacts.revise_once(contact, lambda now: now, ORIGIN, request())
    await contacts.read(contact, ORIGIN, newest=True)
    await contacts.page(10, None, ORIGIN)
    await directory_of(application).search(Search({}), 10, None)
    await read_model_of(application).shows(AggregateKey("contact", str(contact)), 0)
    await application.operator.observer.oldest_waiting_seconds()
    other = (await contacts.create(DETAILS, ORIGIN)).aggregate.id
    await contacts.delete_once(other, ORIGIN, request())
    await outbox.check()
    assert written.taken() == allowed("api")

    bad = {"id": "made-by-hand", "partitionKey": str(contact), "type": "domainEvent", "ttl": 600}
    await outbox.feed.create_item({**bad, "aggregateType": "contact", "data": {}})
    written.clear()
    async with relaying(service.environment):

        async def parked() -> bool:
            return bool((await application.operator.parking.page(10, None, discarded=False)).items)

        await eventually(parked)
        await eventually(lambda: service.topic.receive(str(other), 1))
        await application.operator.parking.upkeep()
        await application.operator.observer.watch()
    assert written.taken() <= allowed("relay")

    stop = asyncio.Event()
    subscribing = asyncio.create_task(subscriber_worker.run(wire(service.environment), stop))
    await eventually(lambda: read_model_of(application).shows(AggregateKey("contact", str(other)), 2))
    await healing_of(application).run(seconds=10)
    await subscriber_of(application).watch()
    stop.set()
    await subscribing
    assert written.taken() <= allowed("subscriber")

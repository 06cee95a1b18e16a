"""What is stuck is listed, and mended by an operator: a broken event of the store, a message that cannot be applied.

A broken event is parked; its contact waits, and other contacts go on.
"""

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from devstack.testing import eventually
from tests.e2e.conftest import Stack
from tests.support.azure import CONTACTS, DIRECTORY
from tests.support.emulators import Gap


async def insert(stack: Stack, item: dict[str, Any]) -> None:
    async with CosmosClient.from_connection_string(stack.cosmos.connection_string) as client:
        await client.get_database_client(stack.database).get_container_client(CONTACTS).create_item(item)


def poison(partition_key: str, **data: Any) -> dict[str, Any]:
    return {
        "id": f"poison-{uuid4()}",
        "partitionKey": partition_key,
        "type": "domainEvent",
        "data": data,
        "ttl": 600,
    }


async def stuck(stack: Stack, http: aiohttp.ClientSession, **wanted: Any) -> list[dict[str, Any]]:
    async with http.get(f"{stack.url}/stuck?pageSize=100") as answer:
        assert answer.status == 200
        items: list[dict[str, Any]] = (await answer.json())["items"]
    return [item for item in items if all(item[name] == value for name, value in wanted.items())]


@pytest.mark.long
@pytest.mark.known_gap(Gap.CHANGE_FEED)
async def test_poison_parks_its_contact_until_it_is_discarded_and_replayed(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    contact, other = await shared_stack.create(http), await shared_stack.create(http)
    contact_id = contact["id"]
    assert await shared_stack.sequences(contact_id, 1) == [1]
    bad = poison(contact_id, secret="Xanthippe")
    await insert(shared_stack, bad)
    await eventually(lambda: stuck(shared_stack, http, eventId=bad["id"]), what="the poison is parked")
    await shared_stack.patch(http, contact_id, name={"firstName": "Jane"}, description="waits")
    await shared_stack.patch(http, other["id"], description="goes on")
    assert await shared_stack.sequences(other["id"], 2) == [1, 2]

    async def three_parked() -> bool:
        return len(await stuck(shared_stack, http, aggregateId=contact_id)) == 3

    await eventually(three_parked)
    assert await shared_stack.topic.is_empty(contact_id)
    [blocker] = await stuck(shared_stack, http, eventId=bad["id"])
    async with http.post(f"{shared_stack.url}/stuck/{blocker['id']}/retry") as answer:
        assert answer.status == 409
        assert bad["id"] in (await answer.json())["detail"]

    [blocker] = await stuck(shared_stack, http, eventId=bad["id"])
    assert (blocker["state"], blocker["attempts"]) == ("inTheWay", 2)
    assert "Xanthippe" not in str(blocker)
    [behind] = await stuck(shared_stack, http, aggregateId=contact_id, sequence=2)
    async with http.post(f"{shared_stack.url}/stuck/{behind['id']}/discard", json={"reason": "r"}) as answer:
        assert answer.status == 409
        assert bad["id"] in (await answer.json())["detail"]
    async with http.get(f"{shared_stack.url}/stuck/{blocker['id']}") as answer:
        assert (await answer.json())["payload"]["data"] == {"secret": "Xanthippe"}
    discard = f"{shared_stack.url}/stuck/{blocker['id']}/discard"
    async with http.post(discard, json={"reason": " "}) as answer:
        assert (answer.status, (await answer.json())["errors"][0]["field"]) == (400, "reason")
    for _ in range(2):
        async with http.post(discard, json={"reason": "made by hand"}) as answer:
            assert answer.status == 204
    [placed] = await stuck(shared_stack, http, aggregateId=contact_id, action="EventDiscarded")
    assert (placed["kind"], placed["sequence"]) == ("event", None)
    async with http.get(f"{shared_stack.url}/stuck?state=discarded&pageSize=100") as answer:
        [given_up] = [one for one in (await answer.json())["items"] if one["id"] == blocker["id"]]
    assert (given_up["state"], given_up["discardReason"]) == ("discarded", "made by hand")
    async with http.post(f"{shared_stack.url}/stuck/{placed['id']}/retry") as answer:
        assert (answer.status, await answer.json()) == (200, {"retried": 3, "remaining": False})
    async with http.post(f"{shared_stack.url}/stuck/{placed['id']}/retry") as answer:
        assert answer.status == 404, "nothing is left to retry"

    [message] = await shared_stack.topic.receive(contact_id, 1)
    assert (str(message.message_id), message.subject) == (placed["eventId"], "EventDiscarded")
    assert message.application_properties is not None
    assert message.application_properties[b"unsequenced"] is True
    await shared_stack.patch(http, contact_id, description="flows again")
    assert await shared_stack.sequences(contact_id, 3) == [2, 3, 4]
    assert await stuck(shared_stack, http, aggregateId=contact_id) == []
    assert "Xanthippe" not in shared_stack.log()


@pytest.mark.known_gap(Gap.CHANGE_FEED)
async def test_poison_of_no_contact_is_parked_alone(shared_stack: Stack, http: aiohttp.ClientSession) -> None:
    documents = [poison("nobody"), poison("nobody", id=[1], sequence="x"), poison(str(uuid4()), sequence=-1)]
    for document in documents:
        await insert(shared_stack, document)
    contact = await shared_stack.create(http)
    assert await shared_stack.sequences(contact["id"], 1) == [1]
    for document in documents:
        await eventually(partial(stuck, shared_stack, http, eventId=document["id"]))


@pytest.mark.known_gap(Gap.CHANGE_FEED)
async def test_the_relays_status_says_that_nothing_is_late(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    contact = await shared_stack.create(http)
    assert await shared_stack.sequences(contact["id"], 1) == [1]

    async def status() -> dict[str, Any] | None:
        async with http.get(f"{shared_stack.url}/relay") as answer:
            assert answer.status == 200
            document: dict[str, Any] = await answer.json()
        return document if [lease["lag"] for lease in document["leases"]] == [0] else None

    quiet = await eventually(status, what="all is checkpointed")
    assert quiet is not None
    assert quiet["late"] is False
    assert (quiet["leases"][0]["oldestWaitingSeconds"], quiet["leases"][0]["ttlUsed"]) == (None, 0)


@pytest.fixture
async def entries(shared_stack: Stack) -> AsyncIterator[ContainerProxy]:
    async with CosmosClient.from_connection_string(shared_stack.cosmos.connection_string) as client:
        yield client.get_database_client(shared_stack.database).get_container_client(DIRECTORY)


async def call(http: aiohttp.ClientSession, method: str, url: str, **body: Any) -> tuple[int, Any]:
    async with http.request(method, url, json=body or None) as answer:
        text = await answer.text()
        return answer.status, json.loads(text) if text else None


async def shown(stack: Stack, http: aiohttp.ClientSession, contact_id: str, **query: str) -> int:
    """The sequence that the directory shows of a contact; 0: none."""
    async with http.get(f"{stack.url}/directory", params={"pageSize": "100", **query}) as answer:
        items = (await answer.json())["items"]
    return next((item["sequence"] for item in items if item["id"] == contact_id), 0)


async def broken(entries: ContainerProxy, contact_id: str) -> dict[str, Any]:
    """Break the entry of a contact, so that no event of it can be applied; the entry as it was.

    A state that cannot be read would be read anew from the contact. What has no sequence has no place to go on from.
    """
    whole = dict(await entries.read_item(contact_id, contact_id))
    await entries.replace_item(
        contact_id, {name: value for name, value in whole.items() if name != "lastSequence"}
    )
    return whole


@pytest.mark.known_gap(Gap.CHANGE_FEED)
@pytest.mark.timeout(120)
async def test_an_operator_repairs_the_cause_and_applies_what_was_set_aside(
    shared_stack: Stack, http: aiohttp.ClientSession, entries: ContainerProxy
) -> None:
    contact_id = str((await shared_stack.create(http, email="repaired@contoso.com"))["id"])
    query = {"email": "repaired@contoso.com"}
    await eventually(lambda: shown(shared_stack, http, contact_id, **query))
    whole = await broken(entries, contact_id)
    await shared_stack.patch(http, contact_id, name={"firstName": "Repaired"})

    async def its_record() -> dict[str, Any] | None:
        found = await stuck(shared_stack, http)
        return next((item for item in found if item["aggregateId"] == contact_id), None)

    record = await eventually(its_record)
    assert record is not None
    assert (record["state"], record["sequence"], record["action"]) == (
        "waiting",
        2,
        "ContactNameUpdatedEvent",
    )
    assert record["reason"].startswith("KeyError")
    assert "payload" not in record
    url = f"{shared_stack.url}/stuck/{record['id']}"
    status, whole_record = await call(http, "GET", url)
    assert (status, json.loads(whole_record["payload"]["body"])["name"]["firstName"]) == (200, "Repaired")
    assert (await call(http, "POST", f"{url}/retry"))[0] == 409

    await entries.replace_item(contact_id, whole)
    assert await call(http, "POST", f"{url}/retry") == (200, {"retried": 1, "remaining": False})
    assert await shown(shared_stack, http, contact_id, **query) == 2
    assert (await call(http, "GET", url))[0] == 404
    assert (await call(http, "POST", f"{url}/retry"))[0] == 200, "as the first time"
    assert (await call(http, "POST", f"{url}/discard", reason="too late"))[0] == 409


@pytest.mark.known_gap(Gap.CHANGE_FEED)
async def test_a_message_that_is_no_event_is_refused_and_can_be_discarded(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    junk = str(uuid4())
    async with (
        ServiceBusClient.from_connection_string(shared_stack.servicebus.connection_string) as client,
        client.get_topic_sender(shared_stack.topic.name) as sender,
    ):
        await sender.send_messages(ServiceBusMessage(b"junk", message_id=junk, session_id=junk))

    async def refused() -> list[dict[str, Any]]:
        return [item for item in await stuck(shared_stack, http) if item["state"] == "refused"]

    [record] = await eventually(refused)
    status, how = await call(http, "GET", f"{shared_stack.url}/subscribers")
    assert (status, how["items"][0]["setAside"]["refused"]) == (200, 1)
    assert record["aggregateId"] is None
    url = f"{shared_stack.url}/stuck/{record['id']}"
    assert (await call(http, "POST", f"{url}/discard"))[0] == 415
    assert (await call(http, "POST", f"{url}/discard", reason="not ours"))[0] == 204
    assert (await call(http, "POST", f"{url}/discard", reason="of another operator"))[0] == 204
    assert (await call(http, "POST", f"{url}/retry"))[0] == 409
    assert await refused() == []
    answer = await call(http, "POST", f"{shared_stack.url}/dead-letters/collect")
    assert answer == (200, {"collected": 0, "emptied": True})
    assert (await call(http, "GET", f"{shared_stack.url}/stuck/nonsense"))[0] == 404

"""A broken event in the store is parked, its contact waits, other contacts go on, and an operator resolves it."""

from functools import partial
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
from azure.cosmos.aio import CosmosClient

from devstack.testing import eventually
from tests.e2e.conftest import Stack
from tests.support.azure import CONTACTS
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


async def parked(stack: Stack, http: aiohttp.ClientSession, **wanted: Any) -> list[dict[str, Any]]:
    async with http.get(f"{stack.url}/stuck?pageSize=100") as answer:
        assert answer.status == 200
        items: list[dict[str, Any]] = (await answer.json())["items"]
    return [item for item in items if all(item[name] == value for name, value in wanted.items())]


@pytest.mark.known_gap(Gap.CHANGE_FEED)
async def test_poison_parks_its_contact_until_it_is_discarded_and_replayed(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    contact, other = await shared_stack.create(http), await shared_stack.create(http)
    contact_id = contact["id"]
    assert await shared_stack.sequences(contact_id, 1) == [1]
    bad = poison(contact_id, secret="Xanthippe")
    await insert(shared_stack, bad)
    await eventually(lambda: parked(shared_stack, http, eventId=bad["id"]), what="the poison is parked")
    await shared_stack.patch(http, contact_id, name={"firstName": "Jane"}, description="waits")
    await shared_stack.patch(http, other["id"], description="goes on")
    assert await shared_stack.sequences(other["id"], 2) == [1, 2]

    async def three_parked() -> bool:
        return len(await parked(shared_stack, http, aggregateId=contact_id)) == 3

    await eventually(three_parked)
    assert await shared_stack.topic.is_empty(contact_id)
    [blocker] = await parked(shared_stack, http, eventId=bad["id"])
    async with http.post(f"{shared_stack.url}/stuck/{blocker['id']}/retry") as answer:
        assert answer.status == 409
        assert bad["id"] in (await answer.json())["detail"]

    [blocker] = await parked(shared_stack, http, eventId=bad["id"])
    assert (blocker["state"], blocker["attempts"]) == ("inTheWay", 2)
    assert "Xanthippe" not in str(blocker)
    [behind] = await parked(shared_stack, http, aggregateId=contact_id, sequence=2)
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
    [placed] = await parked(shared_stack, http, aggregateId=contact_id, action="EventDiscarded")
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
    assert await parked(shared_stack, http, aggregateId=contact_id) == []
    assert "Xanthippe" not in shared_stack.log()


@pytest.mark.known_gap(Gap.CHANGE_FEED)
async def test_poison_of_no_contact_is_parked_alone(shared_stack: Stack, http: aiohttp.ClientSession) -> None:
    documents = [poison("nobody"), poison("nobody", id=[1], sequence="x"), poison(str(uuid4()), sequence=-1)]
    for document in documents:
        await insert(shared_stack, document)
    contact = await shared_stack.create(http)
    assert await shared_stack.sequences(contact["id"], 1) == [1]
    for document in documents:
        await eventually(partial(parked, shared_stack, http, eventId=document["id"]))


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

"""What cannot be applied holds up nobody, is seen by an operator, and is applied once its cause is gone."""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from devstack.testing import eventually
from tests.e2e.conftest import Stack, stack
from tests.support.azure import DIRECTORY
from tests.support.emulators import Gap
from tests.support.paths import ROOT

SICK = 20
SLOTS = "8"


@pytest.fixture(scope="module")
def narrow_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """With few slots for sessions."""
    host = "AzureFunctionsJobHost__extensions__serviceBus__"
    with stack(
        tmp_path_factory.mktemp("stack"), app=ROOT, **{f"{host}maxConcurrentSessions": SLOTS}
    ) as started:
        yield started


@pytest.fixture
async def entries(narrow_stack: Stack) -> AsyncIterator[ContainerProxy]:
    async with CosmosClient.from_connection_string(narrow_stack.cosmos.connection_string) as client:
        yield client.get_database_client(narrow_stack.database).get_container_client(DIRECTORY)


async def call(http: aiohttp.ClientSession, method: str, url: str, **body: Any) -> tuple[int, Any]:
    async with http.request(method, url, json=body or None) as answer:
        text = await answer.text()
        return answer.status, json.loads(text) if text else None


async def set_aside(stack: Stack, http: aiohttp.ClientSession) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    token: str | None = ""
    while token is not None:
        more = f"&continuationToken={token}" if token else ""
        _, page = await call(http, "GET", f"{stack.url}/stuck?pageSize=100{more}")
        found += page["items"]
        token = page["continuationToken"]
    return found


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


async def seconds_behind(stack: Stack, http: aiohttp.ClientSession, contacts: list[str], name: str) -> float:
    """How long a new contact takes to the directory behind a change of each of these."""

    async def change(contact_id: str) -> None:
        await stack.patch(http, contact_id, description=name)

    await asyncio.gather(*map(change, contacts))
    contact_id, begun = (await stack.create(http, email=f"{name}@contoso.com"))["id"], time.monotonic()
    await eventually(lambda: shown(stack, http, contact_id, email=f"{name}@contoso.com"), within=60)
    return time.monotonic() - begun


@pytest.mark.known_gap(Gap.CHANGE_FEED)
@pytest.mark.timeout(180)
@pytest.mark.long  # tests/unit/test_receiver.py has a hundred sick ones
async def test_sick_contacts_hold_up_a_healthy_one_by_little_more_than_healthy_ones_do(
    narrow_stack: Stack, http: aiohttp.ClientSession, entries: ContainerProxy
) -> None:
    """Measured against as many healthy ones: most of the time goes into opening sessions. For a hundred sick ones and
    eight slots see tests/unit/test_receiver.py."""

    async def applied(number: int) -> str:
        contact_id = str((await narrow_stack.create(http, email=f"s{number}@contoso.com"))["id"])
        query = {"email": f"s{number}@contoso.com"}
        await eventually(lambda: shown(narrow_stack, http, contact_id, **query), within=60)
        return contact_id

    contacts = await asyncio.gather(*map(applied, range(SICK)))
    behind_healthy = await seconds_behind(narrow_stack, http, contacts, "healthy")
    await asyncio.gather(*(broken(entries, contact_id) for contact_id in contacts))
    behind_sick = await seconds_behind(narrow_stack, http, contacts, "sick")
    assert behind_sick - behind_healthy < 5

    async def all_set_aside() -> bool:
        return {item["aggregateId"] for item in await set_aside(narrow_stack, http)} >= set(contacts)

    await eventually(all_set_aside, within=60)


@pytest.mark.known_gap(Gap.CHANGE_FEED)
@pytest.mark.timeout(120)
async def test_an_operator_repairs_the_cause_and_applies_what_was_set_aside(
    narrow_stack: Stack, http: aiohttp.ClientSession, entries: ContainerProxy
) -> None:
    contact_id = str((await narrow_stack.create(http, email="repaired@contoso.com"))["id"])
    query = {"email": "repaired@contoso.com"}
    await eventually(lambda: shown(narrow_stack, http, contact_id, **query))
    whole = await broken(entries, contact_id)
    await narrow_stack.patch(http, contact_id, name={"firstName": "Repaired"})

    async def its_record() -> dict[str, Any] | None:
        found = await set_aside(narrow_stack, http)
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
    url = f"{narrow_stack.url}/stuck/{record['id']}"
    status, whole_record = await call(http, "GET", url)
    assert (status, json.loads(whole_record["payload"]["body"])["name"]["firstName"]) == (200, "Repaired")
    assert (await call(http, "POST", f"{url}/retry"))[0] == 409

    await entries.replace_item(contact_id, whole)
    assert await call(http, "POST", f"{url}/retry") == (200, {"retried": 1, "remaining": False})
    assert await shown(narrow_stack, http, contact_id, **query) == 2
    assert (await call(http, "GET", url))[0] == 404
    assert (await call(http, "POST", f"{url}/retry"))[0] == 200, "as the first time"
    assert (await call(http, "POST", f"{url}/discard", reason="too late"))[0] == 409


@pytest.mark.known_gap(Gap.CHANGE_FEED)
async def test_a_message_that_is_no_event_is_refused_and_can_be_discarded(
    narrow_stack: Stack, http: aiohttp.ClientSession
) -> None:
    junk = str(uuid.uuid4())
    async with (
        ServiceBusClient.from_connection_string(narrow_stack.servicebus.connection_string) as client,
        client.get_topic_sender(narrow_stack.topic.name) as sender,
    ):
        await sender.send_messages(ServiceBusMessage(b"junk", message_id=junk, session_id=junk))

    async def refused() -> list[dict[str, Any]]:
        return [item for item in await set_aside(narrow_stack, http) if item["state"] == "refused"]

    [record] = await eventually(refused)
    status, how = await call(http, "GET", f"{narrow_stack.url}/subscribers")
    assert (status, how["items"][0]["setAside"]["refused"]) == (200, 1)
    assert record["aggregateId"] is None
    url = f"{narrow_stack.url}/stuck/{record['id']}"
    assert (await call(http, "POST", f"{url}/discard"))[0] == 415
    assert (await call(http, "POST", f"{url}/discard", reason="not ours"))[0] == 204
    assert (await call(http, "POST", f"{url}/discard", reason="of another operator"))[0] == 204
    assert (await call(http, "POST", f"{url}/retry"))[0] == 409
    assert await refused() == []
    answer = await call(http, "POST", f"{narrow_stack.url}/dead-letters/collect")
    assert answer == (200, {"collected": 0, "emptied": True})
    assert (await call(http, "GET", f"{narrow_stack.url}/stuck/nonsense"))[0] == 404

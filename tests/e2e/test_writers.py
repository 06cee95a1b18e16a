"""Writers that race, and documents that expire."""

import asyncio

import aiohttp

from devstack.testing import Service, eventually
from tests.e2e.conftest import Stack
from tests.support.azure import CONTACTS
from tests.support.contacts import DETAILS, ORIGIN
from tests.support.deployed import deployed
from tests.support.use_cases import contacts_of


async def test_event_documents_expire_contacts_stay_and_what_is_deleted_has_its_time(
    cosmos_server: Service, servicebus_server: Service
) -> None:
    """Nothing relays them, so that their time can be short on any machine."""
    async with deployed(cosmos_server, servicebus_server, EVENT_TTL_SECONDS="1") as there:
        contacts, container = contacts_of(there.application), there.database.get_container_client(CONTACTS)
        stays, gone = [(await contacts.create(DETAILS, ORIGIN)).aggregate.id for _ in range(2)]
        await contacts.delete(gone, ORIGIN)

        async def left() -> dict[tuple[str, str], int]:
            feed = [item async for item in container.query_items_change_feed(start_time="Beginning")]
            return {(item["type"], item["id"]): item["ttl"] for item in feed}

        async def without_events() -> bool:
            return "domainEvent" not in {kind for kind, _ in await left()}

        await eventually(without_events, what="the events expire")
        found = await left()
        assert (await contacts.read(stays, ORIGIN)).aggregate.id == stays
    assert found == {
        ("contact", str(stays)): -1,
        ("contact", str(gone)): 86_400,  # IDEMPOTENCY_TTL_SECONDS: a claim may still name its id
        ("idempotencyRecord", f"request-{gone}"): 86_400,
    }


async def test_a_losing_writers_events_are_never_published(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    contact = await shared_stack.create(http)
    url = f"{shared_stack.url}/contacts/{contact['id']}"
    async with http.get(url) as answer:
        etag = answer.headers["ETag"]

    async def patch(name: str) -> int:
        async with http.patch(url, json={"description": name}, headers={"If-Match": etag}) as answer:
            return answer.status

    statuses = await asyncio.gather(*(patch(f"writer {number}") for number in range(8)))

    assert sorted(statuses) == [200] + [412] * 7
    await shared_stack.patch(http, contact["id"], description="the end")
    assert await shared_stack.sequences(contact["id"], 3) == [1, 2, 3]
    assert await shared_stack.topic.is_empty(contact["id"])


async def test_without_a_pinned_version_every_writer_gets_its_turn(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    contact = await shared_stack.create(http)
    await asyncio.gather(
        shared_stack.patch(http, contact["id"], name={"firstName": "Jane"}),
        shared_stack.patch(http, contact["id"], email="jane@contoso.com"),
        shared_stack.patch(http, contact["id"], description="all three"),
    )
    async with http.get(f"{shared_stack.url}/contacts/{contact['id']}") as answer:
        final = await answer.json()
    assert (final["name"]["firstName"], final["email"], final["description"]) == (
        "Jane", "jane@contoso.com", "all three",
    )  # fmt: skip
    assert await shared_stack.sequences(contact["id"], 4) == [1, 2, 3, 4]

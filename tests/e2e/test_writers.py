"""Writers that race, and documents that expire."""

import asyncio
from pathlib import Path

import aiohttp
from azure.cosmos.aio import CosmosClient

from devstack.testing import eventually
from tests.e2e.conftest import Stack, stack
from tests.support.azure import CONTACTS


async def test_event_documents_expire_contacts_stay_and_what_is_deleted_has_its_time(
    tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    with stack(tmp_path, EVENT_TTL_SECONDS="3") as started:
        contact = await started.create(http)
        gone = await started.create(http)
        async with http.delete(f"{started.url}/contacts/{gone['id']}") as answer:
            assert answer.status == 204
        assert len(await started.topic.receive(contact["id"], 1)) == 1
        async with CosmosClient.from_connection_string(started.cosmos.connection_string) as client:
            container = client.get_database_client(started.database).get_container_client(CONTACTS)

            async def left() -> dict[tuple[str, str], int]:
                feed = [item async for item in container.query_items_change_feed(start_time="Beginning")]
                return {(item["type"], item["id"]): item["ttl"] for item in feed}

            async def without_events() -> bool:
                return "domainEvent" not in {kind for kind, _ in await left()}

            await eventually(without_events, what="the events expire")
            found = await left()
        assert found == {
            ("contact", contact["id"]): -1,
            ("contact", gone["id"]): 86_400,  # IDEMPOTENCY_TTL_SECONDS: a claim may still name its id
            ("idempotencyRecord", f"request-{gone['id']}"): 86_400,
        }
        async with http.get(f"{started.url}/contacts/{contact['id']}") as answer:
            assert answer.status == 200


async def test_a_losing_writers_events_are_never_published(
    own_stack: Stack, http: aiohttp.ClientSession
) -> None:
    contact = await own_stack.create(http)
    url = f"{own_stack.url}/contacts/{contact['id']}"
    async with http.get(url) as answer:
        etag = answer.headers["ETag"]

    async def patch(name: str) -> int:
        async with http.patch(url, json={"description": name}, headers={"If-Match": etag}) as answer:
            return answer.status

    statuses = await asyncio.gather(*(patch(f"writer {number}") for number in range(8)))

    assert sorted(statuses) == [200] + [412] * 7
    await own_stack.patch(http, contact["id"], description="the end")
    assert await own_stack.sequences(contact["id"], 3) == [1, 2, 3]
    assert await own_stack.topic.is_empty(contact["id"])


async def test_without_a_pinned_version_every_writer_gets_its_turn(
    own_stack: Stack, http: aiohttp.ClientSession
) -> None:
    contact = await own_stack.create(http)
    await asyncio.gather(
        own_stack.patch(http, contact["id"], name={"firstName": "Jane"}),
        own_stack.patch(http, contact["id"], email="jane@contoso.com"),
        own_stack.patch(http, contact["id"], description="all three"),
    )
    async with http.get(f"{own_stack.url}/contacts/{contact['id']}") as answer:
        final = await answer.json()
    assert (final["name"]["firstName"], final["email"], final["description"]) == (
        "Jane", "jane@contoso.com", "all three",
    )  # fmt: skip
    assert await own_stack.sequences(contact["id"], 4) == [1, 2, 3, 4]

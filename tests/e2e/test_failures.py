"""What fails on the way loses nothing, doubles nothing, reorders nothing."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from azure.cosmos.aio import CosmosClient
from azure.cosmos.exceptions import CosmosResourceNotFoundError

from tests.e2e.conftest import Stack, stack
from tests.support.azure import CONTACTS, cosmos_connection
from tests.support.contacts import DETAILS_JSON
from tests.support.eventually import eventually

FAILING_APP = Path(__file__).parent / "apps" / "failing_relay"


@pytest.fixture
def own_stack(tmp_path: Path) -> Iterator[Stack]:
    with stack(tmp_path) as started:
        yield started


async def backlog(started: Stack, http: aiohttp.ClientSession, contacts: int) -> list[str]:
    """Contacts with three events each, written while nothing is relayed: one batch of the feed."""
    ids = []
    for _ in range(contacts):
        contact = await started.create(http)
        await started.patch(http, contact["id"], name={"firstName": "Jane"}, description="x")
        ids.append(contact["id"])
    return ids


async def test_a_relay_that_dies_after_half_of_a_batch_loses_and_doubles_nothing(
    tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    with stack(tmp_path, app=FAILING_APP, RELAY_FAILURES="2", RELAY_RETRIES="-1") as started:
        ids = await backlog(started, http, 6)
        received = await asyncio.gather(*(started.sequences(contact_id, 3) for contact_id in ids))
        assert received == [[1, 2, 3]] * 6
        await eventually(lambda: started.log().count("injected: died") >= 2)
        assert all(await asyncio.gather(*(started.topic.is_empty(contact_id) for contact_id in ids)))


async def test_the_same_relay_with_a_finite_retry_loses_the_batch_as_in_azure(
    tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    with stack(tmp_path, app=FAILING_APP, RELAY_FAILURES="2", RELAY_RETRIES="1") as started:
        lost = await started.create(http)
        await eventually(lambda: started.log().count("injected: died") >= 2)
        after = await started.create(http)
        assert await started.sequences(after["id"], 1) == [1]
        assert await started.topic.is_empty(lost["id"])


async def test_an_event_committed_before_everything_was_killed_arrives(
    own_stack: Stack, http: aiohttp.ClientSession
) -> None:
    own_stack.servicebus.kill()
    contact = await own_stack.create(http)
    own_stack.functions.kill()
    own_stack.cosmos.kill()

    for service in (own_stack.cosmos, own_stack.servicebus, own_stack.functions):
        service.start()

    # The killed host's lease has to expire first.
    assert await own_stack.sequences(contact["id"], 1, within=40) == [1]
    async with http.get(f"{own_stack.url}/contacts/{contact['id']}") as answer:
        assert answer.status == 200


async def test_without_the_broker_the_api_works_and_the_events_wait(
    own_stack: Stack, http: aiohttp.ClientSession
) -> None:
    own_stack.servicebus.kill()
    contact = await own_stack.create(http)
    for number in range(3):
        await own_stack.patch(http, contact["id"], description=f"{number}")
    own_stack.servicebus.start()
    assert await own_stack.sequences(contact["id"], 4, within=30) == [1, 2, 3, 4]


async def test_without_the_store_the_api_says_so_quickly_and_recovers_by_itself(
    own_stack: Stack, http: aiohttp.ClientSession
) -> None:
    contact = await own_stack.create(http)
    url = f"{own_stack.url}/contacts"
    own_stack.cosmos.kill()

    async def refused(method: str, path: str = "") -> None:
        started = time.monotonic()
        async with http.request(method, url + path, json=DETAILS_JSON if method != "GET" else None) as answer:
            assert answer.status == 503, await answer.text()
            assert int(answer.headers["Retry-After"]) >= 1
            assert answer.content_type == "application/problem+json"
        assert time.monotonic() - started < 10

    await asyncio.gather(
        refused("POST"),
        refused("GET"),
        refused("GET", f"/{contact['id']}"),
        refused("PATCH", f"/{contact['id']}"),
    )

    own_stack.cosmos.start()
    async with http.get(f"{url}/{contact['id']}") as answer:
        assert answer.status == 200
    again = await own_stack.create(http)
    assert await own_stack.sequences(again["id"], 1, within=30) == [1]


async def test_a_store_that_hangs_is_a_503_within_ten_seconds_and_no_change_is_made_twice(
    own_stack: Stack, http: aiohttp.ClientSession
) -> None:
    contact = await own_stack.create(http)
    url = f"{own_stack.url}/contacts"
    own_stack.cosmos.pause()

    async def refused(method: str, path: str, **more: Any) -> None:
        began = time.monotonic()
        async with http.request(method, url + path, **more) as answer:
            assert answer.status == 503, await answer.text()
        assert time.monotonic() - began < 10

    key = {"Idempotency-Key": "once"}
    await asyncio.gather(
        refused("POST", "", json=DETAILS_JSON, headers=key),
        refused("PATCH", f"/{contact['id']}", json={"description": "x"}),
        refused("GET", f"/{contact['id']}"),
    )
    own_stack.cosmos.resume()

    async with http.post(url, json=DETAILS_JSON, headers=key) as answer:
        assert answer.status == 201
        once = await answer.json()
    assert await own_stack.sequences(once["id"], 1, within=30) == [1]
    assert await own_stack.topic.is_empty(once["id"])


async def test_a_host_that_starts_before_the_store_comes_up_by_itself(
    tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    with stack(tmp_path) as started:
        started.functions.kill()
        started.cosmos.kill()
        started.functions.start()
        async with http.post(f"{started.url}/contacts", json=DETAILS_JSON) as answer:
            assert answer.status == 503
        started.cosmos.start()
        contact = await started.create(http)
        assert await started.sequences(contact["id"], 1, within=40) == [1]


async def test_event_documents_expire_and_contacts_stay(tmp_path: Path, http: aiohttp.ClientSession) -> None:
    with stack(tmp_path, EVENT_TTL_SECONDS="3") as started:
        contact = await started.create(http)
        gone = await started.create(http)
        async with http.delete(f"{started.url}/contacts/{gone['id']}") as answer:
            assert answer.status == 204
        [message] = await started.topic.receive(contact["id"], 1)
        async with CosmosClient.from_connection_string(cosmos_connection(started.cosmos)) as client:
            container = client.get_database_client(started.database).get_container_client(CONTACTS)

            async def missing(item_id: str, key: str) -> bool:
                try:
                    await container.read_item(item_id, key)
                except CosmosResourceNotFoundError:
                    return True
                return False

            await eventually(
                lambda: missing(str(message.message_id), contact["id"]), what="the event expires"
            )
            await eventually(lambda: missing(gone["id"], gone["id"]), what="the tombstone expires")
            feed = [item async for item in container.query_items_change_feed(start_time="Beginning")]
        assert [(item["type"], item["id"]) for item in feed] == [("contact", contact["id"])]
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

"""After a lost answer the caller still gets the right answer, and every event exists once."""

from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import Stack, stack
from tests.support.contacts import DETAILS_JSON

pytestmark = pytest.mark.own_stack


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Nobody but the request writes a batch: the directory's renewed token for a new contact would meet its faults."""
    off: dict[str, Any] = {
        f"AzureWebJobs.{name}.Disabled": "true" for name in ("contact_directory", "walk_contact_directory")
    }
    with stack(tmp_path_factory.mktemp("stack"), **off) as started:
        yield started


BATCH = {"operation": "batch", "container": "contacts"}


async def test_a_creation_is_answered_once_and_rightly(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    """Four in a row are more than the SDK repeats on its own; tests/contract/test_transactions has the other losses."""
    await shared_stack.cosmos.faults.add("drop-after-commit", count=4, **BATCH)
    async with http.post(f"{shared_stack.url}/contacts", json=DETAILS_JSON) as answer:
        assert answer.status == 201, await answer.text()
        contact, etag = await answer.json(), answer.headers["ETag"]
    async with http.get(f"{shared_stack.url}/contacts/{contact['id']}") as answer:
        assert (await answer.json(), answer.headers["ETag"]) == (contact, etag)
    assert await shared_stack.sequences(contact["id"], 1) == [1]
    assert await shared_stack.topic.is_empty(contact["id"])


async def test_a_store_that_throttles_for_long_is_a_429(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    await shared_stack.cosmos.faults.add("throttle", count=50, retryAfterMs=10, **BATCH)
    async with http.post(f"{shared_stack.url}/contacts", json=DETAILS_JSON) as answer:
        assert (answer.status, answer.content_type) == (429, "application/problem+json")
        assert int(answer.headers["Retry-After"]) >= 1
    await shared_stack.cosmos.faults.clear()


async def test_a_send_that_was_stored_but_not_acknowledged_arrives_once(
    shared_stack: Stack, http: aiohttp.ClientSession
) -> None:
    await shared_stack.servicebus.faults.add("drop-after-commit", count=2)
    contact = await shared_stack.create(http)
    await shared_stack.patch(http, contact["id"], description="x")
    assert await shared_stack.sequences(contact["id"], 2) == [1, 2]
    assert await shared_stack.topic.is_empty(contact["id"])

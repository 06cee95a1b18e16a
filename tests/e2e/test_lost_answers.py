"""After a lost answer the caller still gets the right answer, and every event exists once."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import Stack, stack
from tests.support.contacts import DETAILS_JSON

pytestmark = pytest.mark.own_stack


@pytest.fixture(scope="module")
def shared_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Nobody but the request writes a batch: the directory's fence for a new contact would meet its faults."""
    off: dict[str, Any] = {
        f"AzureWebJobs.{name}.Disabled": "true" for name in ("contact_directory", "walk_contact_directory")
    }
    with stack(tmp_path_factory.mktemp("stack"), **off) as started:
        yield started


BATCH = {"operation": "batch", "container": "contacts"}
LOSSES = [
    ("drop-after-commit", 1), ("drop-after-commit", 2), ("drop-after-commit", 4), ("fail-before-commit", 1),
    ("fail-before-commit", 3), ("retry-with", 2), ("unavailable", 2), ("throttle", 1),
]  # fmt: skip
"""A few in a row are more than the SDK repeats on its own."""


def one_of(cases: Sequence[Any], here: Any) -> list[Any]:
    """At every run one, with what the SDK repeats unseen; tests/contract/test_transactions has the rules."""
    return [case if case == here else pytest.param(*case, marks=pytest.mark.long) for case in cases]


@pytest.mark.parametrize(("kind", "count"), one_of(LOSSES, ("drop-after-commit", 4)))
async def test_a_creation_is_answered_once_and_rightly(
    shared_stack: Stack, http: aiohttp.ClientSession, kind: str, count: int
) -> None:
    await shared_stack.cosmos.faults.add(kind, count=count, **BATCH)
    async with http.post(f"{shared_stack.url}/contacts", json=DETAILS_JSON) as answer:
        assert answer.status == 201, await answer.text()
        contact, etag = await answer.json(), answer.headers["ETag"]
    async with http.get(f"{shared_stack.url}/contacts/{contact['id']}") as answer:
        assert (await answer.json(), answer.headers["ETag"]) == (contact, etag)
    assert await shared_stack.sequences(contact["id"], 1) == [1]
    assert await shared_stack.topic.is_empty(contact["id"])


@pytest.mark.parametrize(("kind", "count"), one_of(LOSSES, ("drop-after-commit", 4)))
async def test_a_change_is_made_once_and_answered_rightly(
    shared_stack: Stack, http: aiohttp.ClientSession, kind: str, count: int
) -> None:
    contact = await shared_stack.create(http)
    url = f"{shared_stack.url}/contacts/{contact['id']}"
    async with http.get(url) as answer:
        pinned = {"If-Match": answer.headers["ETag"]}
    await shared_stack.cosmos.faults.add(kind, count=count, **BATCH)
    patch = {"name": {"firstName": "Jane"}, "email": "jane@contoso.com"}
    async with http.patch(url, json=patch, headers=pinned) as answer:
        assert answer.status == 200, await answer.text()
        etag = answer.headers["ETag"]
    async with http.get(url) as answer:
        assert answer.headers["ETag"] == etag
    assert await shared_stack.sequences(contact["id"], 3) == [1, 2, 3]
    assert await shared_stack.topic.is_empty(contact["id"])


@pytest.mark.parametrize(
    ("method", "losses"), one_of([*product(("POST", "PATCH", "DELETE"), (1, 2))], ("PATCH", 2))
)
async def test_a_throttle_after_a_lost_answer_does_not_mean_that_nothing_was_written(
    shared_stack: Stack, http: aiohttp.ClientSession, method: str, losses: int
) -> None:
    """The SDK repeats a batch whose connection broke, and the answer to that repetition is a 429."""
    existing = await shared_stack.create(http)
    url = f"{shared_stack.url}/contacts" + ("" if method == "POST" else f"/{existing['id']}")
    body = {"POST": DETAILS_JSON, "PATCH": {"description": "x"}, "DELETE": None}[method]
    await shared_stack.cosmos.faults.add("drop-after-commit", count=losses, **BATCH)
    await shared_stack.cosmos.faults.add("throttle", count=4, retryAfterMs=10, **BATCH)
    async with http.request(method, url, json=body) as answer:
        assert answer.status == {"POST": 201, "PATCH": 200, "DELETE": 204}[method], await answer.text()
        changed = existing if method != "POST" else await answer.json()
    assert await shared_stack.cosmos.faults.pending() == []
    expected = [1] if method == "POST" else [1, 2]
    assert await shared_stack.sequences(changed["id"], len(expected)) == expected
    assert await shared_stack.topic.is_empty(changed["id"])


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

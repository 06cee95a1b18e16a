"""Two instances answer requests with one key, while answers of the store get lost and its replicas lag."""

import asyncio
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import Stack, stack
from tests.support.contacts import DETAILS_JSON
from tests.support.paths import ROOT

# Within one process: tests/contract/test_idempotency, test_claims and test_lost_keys.
pytestmark = [pytest.mark.own_stack, pytest.mark.long]

CLAIM = {"container": "claims", "operation": "create"}
BATCH = {"container": "contacts", "operation": "batch"}
LONG = 12
"""More than the app and the SDK repeat on their own."""


@dataclass
class Two:
    """A stack with two instances of the app."""

    stack: Stack
    urls: list[str]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    with stack(tmp_path_factory.mktemp("stack")) as started:
        other = started.run_another(ROOT, "functions-2")
        hosts = [started.functions, other]
        yield Two(started, [f"{host.address.rstrip('/')}/api/contacts" for host in hosts])


async def post(
    http: aiohttp.ClientSession,
    url: str,
    key: str,
    body: Mapping[str, Any] = DETAILS_JSON,
    headers: Mapping[str, str] | None = None,
) -> tuple[int, dict[str, Any], bool]:
    sent = {"Idempotency-Key": key, **(headers or {})}
    async with http.post(url, json=dict(body), headers=sent) as answer:
        if answer.status in (429, 503):
            assert int(answer.headers["Retry-After"]) >= 1
        return answer.status, await answer.json(), "Idempotency-Replayed" in answer.headers


async def test_of_five_concurrent_requests_at_two_instances_one_creates(
    two: Two, http: aiohttp.ClientSession
) -> None:
    key, both = str(uuid.uuid4()), two.urls
    answers = await asyncio.gather(*(post(http, both[number % 2], key) for number in range(5)))
    assert {status for status, _, _ in answers} == {201}
    assert [replayed for _, _, replayed in answers].count(False) == 1
    [contact_id] = {body["id"] for _, body, _ in answers}
    assert await two.stack.sequences(contact_id, 1) == [1]
    assert await two.stack.topic.is_empty(contact_id)


async def test_after_both_answers_are_lost_another_instance_replays_the_creation(
    two: Two, http: aiohttp.ClientSession
) -> None:
    """On replicas that lag: the worst that can happen. tests/contract/test_lost_keys and test_claims have each loss."""
    losses = [(1, CLAIM), (LONG, BATCH)]
    key, both = str(uuid.uuid4()), two.urls
    faults = two.stack.cosmos.faults
    for container in ("claims", "contacts"):
        await faults.add("lag", container=container, seconds=600.0, count=None)
    for count, where in losses:
        await faults.add("drop-after-commit", count=count, forSeconds=2.0, **where)
    first = await post(http, both[0], key)
    assert first[0] in (201, 429, 503), first
    for count, where in losses:
        await faults.add("drop-after-commit", count=count, forSeconds=0.2, **where)
    status, contact, _ = await post(http, both[1], key)
    while status != 201:
        assert status in (429, 503), contact
        status, contact, _ = await post(http, both[1], key)
    await faults.clear()
    for url in both:
        again = await post(http, url, key)
        assert again == (201, contact, True)
    assert first[0] != 201 or first[1] == contact
    assert await two.stack.sequences(contact["id"], 1) == [1]
    assert await two.stack.topic.is_empty(contact["id"])
    async with http.get(both[0], params={"pageSize": "100"}) as answer:
        ids = [each["id"] for each in (await answer.json())["items"]]
    assert ids.count(contact["id"]) == 1

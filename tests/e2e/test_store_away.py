"""While the store is away the API says so in time, writes nothing twice, and recovers by itself."""

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from cosmos_outbox.operations.health import HEALTH_SECONDS
from tests.e2e.conftest import Stack, stack
from tests.support.contacts import DETAILS_JSON


@pytest.mark.long  # the next one has a store that does not answer, tests/contract/test_stores_away.py each call
async def test_without_the_store_the_api_says_so_quickly_and_recovers_by_itself(
    own_stack: Stack, http: aiohttp.ClientSession
) -> None:
    contact = await own_stack.create(http)
    url = f"{own_stack.url}/contacts"
    own_stack.cosmos.kill()

    async def refused(method: str, path: str = "") -> None:
        began = time.monotonic()
        async with http.request(method, url + path, json=DETAILS_JSON if method != "GET" else None) as answer:
            assert answer.status == 503, await answer.text()
            assert int(answer.headers["Retry-After"]) >= 1
            assert answer.content_type == "application/problem+json"
        assert time.monotonic() - began < 10

    await asyncio.gather(
        refused("POST"),
        refused("GET"),
        refused("GET", f"/{contact['id']}"),
        refused("PATCH", f"/{contact['id']}"),
    )

    async def ill() -> None:
        async with http.get(f"{own_stack.url}/health") as answer:
            assert answer.status == 503

    told, began = own_stack.log().count("answered 503"), time.monotonic()
    await asyncio.gather(*(ill() for _ in range(20)))
    looks = 1 + int((time.monotonic() - began) / HEALTH_SECONDS)
    lines = own_stack.log().count("answered 503") - told
    assert 1 <= lines <= looks, "anybody may ask for the health"

    own_stack.cosmos.start()
    async with http.get(f"{url}/{contact['id']}") as answer:
        assert answer.status == 200
    again = await own_stack.create(http)
    assert await own_stack.sequences(again["id"], 1) == [1]


async def test_a_store_that_hangs_is_a_503_in_ten_seconds_and_changes_once(
    own_stack: Stack, http: aiohttp.ClientSession
) -> None:
    contact = await own_stack.create(http)
    url = f"{own_stack.url}/contacts"
    own_stack.cosmos.pause()

    async def refused(method: str, path: str, **more: Any) -> None:
        began = time.monotonic()
        async with http.request(method, url + path, **more) as answer:
            assert answer.status == 503, await answer.text()
            assert int(answer.headers["Retry-After"]) >= 1
            assert answer.content_type == "application/problem+json"
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
    assert await own_stack.sequences(once["id"], 1) == [1]
    assert await own_stack.topic.is_empty(once["id"])


@pytest.mark.long
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

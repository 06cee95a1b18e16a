"""While the store is away the API says so, writes nothing twice, and recovers by itself."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.conftest import Stack, stack
from tests.support.contacts import DETAILS_JSON

PATIENCE = aiohttp.ClientTimeout(100)


@pytest.mark.long
async def test_a_store_that_hangs_is_a_503_and_changes_once(
    own_stack: Stack, http: aiohttp.ClientSession
) -> None:
    contact = await own_stack.create(http)
    url = f"{own_stack.url}/contacts"
    own_stack.cosmos.pause()

    async def refused(method: str, path: str, **more: Any) -> None:
        # The answer comes while the store still hangs, and before the client gives up.
        async with http.request(method, url + path, timeout=PATIENCE, **more) as answer:
            assert answer.status == 503, await answer.text()
            assert int(answer.headers["Retry-After"]) >= 1
            assert answer.content_type == "application/problem+json"

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

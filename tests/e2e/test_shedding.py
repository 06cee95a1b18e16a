"""While events wait for longer than SHED_LOAD_AFTER_SECONDS, changes are refused, reads go on, and nothing is lost."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from devstack.testing import eventually
from tests.e2e.conftest import stack
from tests.support.contacts import DETAILS_JSON


@pytest.mark.long
@pytest.mark.own_stack
async def test_changes_are_refused_while_the_broker_is_away_and_only_then(
    tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    with stack(tmp_path, SHED_LOAD_AFTER_SECONDS="5") as started:
        contact = await started.create(http)
        url = f"{started.url}/contacts/{contact['id']}"
        assert await started.sequences(contact["id"], 1) == [1]

        started.servicebus.kill()
        await started.patch(http, contact["id"], description="waits")
        unchanged = {"description": "waits"}  # while it is taken, it stores nothing
        await eventually(lambda: is_refused(http, "PATCH", url, json=unchanged), within=40)
        assert await is_refused(http, "PATCH", url, json={"description": "refused"})
        keyed: dict[str, Any] = {"json": DETAILS_JSON, "headers": {"Idempotency-Key": "once"}}
        assert await is_refused(http, "POST", f"{started.url}/contacts", **keyed)
        assert await is_refused(http, "DELETE", url)
        async with http.get(url) as answer:
            assert (answer.status, (await answer.json())["description"]) == (200, "waits")
        async with http.get(f"{started.url}/relay") as answer:
            assert (await answer.json())["leases"][0]["oldestWaitingSeconds"] >= 5

        # Two failures at once: the store goes away too. A change is refused by the one or the other.
        started.cosmos.kill()
        assert await is_refused(http, "PATCH", url, json={"description": "refused"})
        started.cosmos.start()
        started.servicebus.start()

        async def created() -> dict[str, Any] | None:
            async with http.post(f"{started.url}/contacts", **keyed) as answer:
                return await answer.json() if answer.status == 201 else None

        again = await eventually(created, within=60)
        assert await started.sequences(again["id"], 1) == [1]
        assert await started.sequences(contact["id"], 1) == [2]
        assert await started.topic.is_empty(contact["id"]), "what was refused was not stored"
        assert "answered 503 until it is less than 4 s (SHED_LOAD_AFTER_SECONDS)" in started.log()


async def is_refused(http: aiohttp.ClientSession, method: str, url: str, **request: Any) -> bool:
    async with http.request(method, url, **request) as answer:
        if answer.status != 503:
            return False
        assert int(answer.headers["Retry-After"]) >= 1
        assert answer.content_type == "application/problem+json"
        return True

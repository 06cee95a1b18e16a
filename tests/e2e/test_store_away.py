"""While the store is away the API says so, writes nothing twice, and recovers by itself."""

from pathlib import Path

import aiohttp
import pytest

from tests.e2e.conftest import stack
from tests.support.contacts import DETAILS_JSON


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

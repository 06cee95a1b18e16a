"""The relay is paused and resumed as docs/operate/pausing.md says: writers go on, and no event is lost."""

import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from devstack.testing import eventually
from tests.e2e.conftest import Stack, stack
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "operate" / "pausing.md").read_text()
PAUSED = dict(re.findall(r"(AzureWebJobs\.\w+\.Disabled)=(true)", PAGE))


@pytest.mark.long
@pytest.mark.own_stack
async def test_a_paused_relay_forwards_nothing_and_all_of_it_once_it_is_resumed(
    tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    assert set(PAUSED) == {"AzureWebJobs.relay.Disabled", "AzureWebJobs.tend_parked.Disabled"}
    with stack(tmp_path) as started:
        contact = await started.create(http)
        assert await started.sequences(contact["id"], 1) == [1]
        await eventually(lambda: waiting(started, http, None))

        started.restart_app(**PAUSED)
        await started.patch(http, contact["id"], description="one")
        await started.patch(http, contact["id"], email="two@contoso.com")
        await eventually(lambda: waiting(started, http, 1))
        assert await started.topic.is_empty(contact["id"])
        async with http.get(f"{started.url}/health") as answer:
            assert answer.status == 200

        started.restart_app(**dict.fromkeys(PAUSED, "false"))
        assert await started.sequences(contact["id"], 2) == [2, 3]
        await eventually(lambda: waiting(started, http, None))


async def waiting(started: Stack, http: aiohttp.ClientSession, seconds: int | None) -> bool:
    """Whether the oldest event has waited so long; None: nothing waits."""
    async with http.get(f"{started.url}/relay") as answer:
        status: dict[str, Any] = await answer.json()
    assert status["late"] is False
    oldest = [lease["oldestWaitingSeconds"] for lease in status["leases"]]
    if seconds is None:
        return bool(oldest) and oldest == [None] * len(oldest)
    return any(age is not None and age >= seconds for age in oldest)

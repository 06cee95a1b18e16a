"""A failure on the way to the subscriber loses no event, doubles none and reorders none."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from devstack.testing import eventually
from tests.e2e.conftest import Stack, stack

pytestmark = pytest.mark.own_stack

FAILING_APP = Path(__file__).parent / "apps" / "failing_relay"


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
        ids = await backlog(started, http, 3)
        received = await asyncio.gather(*(started.sequences(contact_id, 3) for contact_id in ids))
        assert received == [[1, 2, 3]] * 3
        await eventually(lambda: started.log().count("injected: died") >= 2)
        assert all(await asyncio.gather(*(started.topic.is_empty(contact_id) for contact_id in ids)))

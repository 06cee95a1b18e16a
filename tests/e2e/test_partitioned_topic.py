"""On a partitioned topic with duplicate detection, as ``topicPartitioned`` deploys it, every event arrives in order."""

import asyncio
from collections.abc import Iterator

import aiohttp
import pytest

from devstack.testing import eventually
from tests.e2e.conftest import Stack, stack

pytestmark = pytest.mark.own_stack  # Microsoft's emulator has no partitioned entities

CONTACTS, CHANGES = 3, 2


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with stack(tmp_path_factory.mktemp("partitioned"), SERVICEBUS_TOPIC_PARTITIONED="true") as started:
        yield started


@pytest.mark.long  # tests/contract/test_publisher has the sends, test_path the rest
async def test_events_of_many_contacts_arrive_in_order_and_fill_the_directory(
    partitioned: Stack, http: aiohttp.ClientSession
) -> None:
    async def one() -> str:
        contact = await partitioned.create(http)
        for number in range(CHANGES):
            await partitioned.patch(http, contact["id"], description=f"change {number}")
        return str(contact["id"])

    contacts = await asyncio.gather(*(one() for _ in range(CONTACTS)))

    received = await asyncio.gather(*(partitioned.sequences(each, 1 + CHANGES) for each in contacts))
    assert received == [list(range(1, 2 + CHANGES))] * CONTACTS
    assert all(await asyncio.gather(*(partitioned.topic.is_empty(each) for each in contacts)))
    found = await eventually(lambda: in_directory(partitioned, http))
    assert found == dict.fromkeys(contacts, 1 + CHANGES)


async def in_directory(started: Stack, http: aiohttp.ClientSession) -> dict[str, int] | None:
    """The sequence of each entry, once all are at the last."""
    async with http.get(f"{started.url}/directory", params={"pageSize": 100}) as answer:
        found = {each["id"]: each["sequence"] for each in (await answer.json())["items"]}
    return found if list(found.values()) == [1 + CHANGES] * CONTACTS else None

"""One command publishes a time again: with the relay of the running app, a broker that goes away, and an exit code."""

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_outbox.cli import publish_again
from devstack.testing import eventually
from tests.e2e.conftest import Stack, stack
from tests.support.azure import CONTACTS, LEASES

pytestmark = pytest.mark.own_stack


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    with stack(tmp_path) as running:
        for name, value in {
            "COSMOS": running.cosmos.connection_string,
            "COSMOS_DATABASE": running.database,
            "COSMOS_LEASE_CONTAINER": LEASES,
            "SERVICEBUS": running.servicebus.connection_string,
            "SERVICEBUS_TOPIC": running.topic.name,
        }.items():
            monkeypatch.setenv(name, value)
        yield running


async def command(*arguments: str) -> int:
    return await asyncio.to_thread(publish_again.main, [*arguments])


def times(since: int, to: int) -> list[str]:
    return ["--since", publish_again._text(since), "--to", publish_again._text(to)]


async def published(stack: Stack, http: aiohttp.ClientSession) -> tuple[dict[str, Any], list[str]]:
    """A contact with two events that subscribers have, and the time in which they were stored."""
    since = int(time.time())
    contact = await stack.create(http)
    await stack.patch(http, contact["id"], description="changed")
    assert await stack.sequences(contact["id"], 2) == [1, 2]
    return contact, times(since, int(time.time()) + 1)


async def forwarded(when: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Until the time is over and the relay has its checkpoint, the command refuses."""

    async def ready() -> bool:
        return await command(*when, "--dry-run") == publish_again.ALL

    await eventually(ready)
    assert "2 event(s) would be published" in capsys.readouterr().out


async def insert(stack: Stack, item: dict[str, Any]) -> None:
    async with CosmosClient.from_connection_string(stack.cosmos.connection_string) as client:
        await client.get_database_client(stack.database).get_container_client(CONTACTS).create_item(item)


def poison(partition_key: str, **data: Any) -> dict[str, Any]:
    return {
        "id": f"poison-{uuid4()}",
        "partitionKey": partition_key,
        "type": "domainEvent",
        "data": data,
        "ttl": 600,
    }


async def stuck(stack: Stack, http: aiohttp.ClientSession, **wanted: Any) -> list[dict[str, Any]]:
    async with http.get(f"{stack.url}/stuck?pageSize=100") as answer:
        assert answer.status == 200
        items: list[dict[str, Any]] = (await answer.json())["items"]
    return [item for item in items if all(item[name] == value for name, value in wanted.items())]


@pytest.mark.long  # tests/contract/test_republish.py and test_republish_lag.py have what it does, in memory
async def test_a_time_is_published_again_and_a_contact_that_is_parked_is_listed(
    started: Stack, http: aiohttp.ClientSession, capsys: pytest.CaptureFixture[str]
) -> None:
    contact, when = await published(started, http)
    await forwarded(when, capsys)
    assert await command(*when[:2], "--dry-run") == publish_again.ALL
    assert "2 event(s) would be published" in capsys.readouterr().out, "until now"
    assert await started.topic.is_empty(contact["id"]), "a dry run sends nothing"

    assert await command(*when) == publish_again.ALL
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "2 event(s) published" in printed.out
    [run] = re.findall(r"run ([0-9a-f-]{36}):", printed.out)
    assert await started.sequences(contact["id"], 2) == [1, 2]
    assert await command(*when, "--run", run) == publish_again.ALL
    assert await started.topic.is_empty(contact["id"]), "the topic knows this run"

    assert await command(*when, "--aggregate", "contact/someone-else") == publish_again.ALL
    assert "0 event(s) published" in capsys.readouterr().out

    bad = poison(contact["id"], secret="Xanthippe")
    await insert(started, bad)
    await eventually(lambda: stuck(started, http, eventId=bad["id"]), what="the poison is parked")
    assert await command(*when) == publish_again.NOT_ALL
    printed = capsys.readouterr()
    assert f"publish-again: skipped contact {contact['id']}: it is parked" in printed.out
    assert "0 event(s) published, 1 aggregate(s) skipped" in printed.out
    assert await started.topic.is_empty(contact["id"])

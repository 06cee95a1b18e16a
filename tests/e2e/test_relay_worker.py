"""The relay in a process of its own, without a Functions host: worker and function take over from one another."""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import pytest
from azure.cosmos.aio import CosmosClient, DatabaseProxy

from devstack.testing import Process, eventually
from tests.e2e.conftest import Stack, stack
from tests.support import command
from tests.support.azure import LEASES
from tests.support.contacts import DETAILS, ORIGIN
from tests.support.use_cases import Contacts, contacts_of, wire

pytestmark = pytest.mark.own_stack


def settings(started: Stack) -> dict[str, str]:
    return {
        "COSMOS": started.cosmos.connection_string,
        "COSMOS_DATABASE": started.database,
        "SERVICEBUS": started.servicebus.connection_string,
        "SERVICEBUS_TOPIC": started.topic.name,
    }


@contextmanager
def worker(started: Stack, log: Path) -> Iterator[Process]:
    process = command.worker("relay", settings(started), log)
    try:
        yield process
    finally:
        process.kill()


def probe_port(log: Path) -> int:
    [port] = re.findall(r"are answered at 127\.0\.0\.1, port ([0-9]+)", log.read_text())
    return int(port)


async def probe(log: Path, path: str) -> tuple[int, dict[str, str]]:
    """The answer of the worker that writes this log."""
    url = f"http://127.0.0.1:{probe_port(log)}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.json()


@asynccontextmanager
async def service(started: Stack) -> AsyncIterator[Contacts]:
    application = wire(settings(started))
    async with application.outbox.resources:
        yield contacts_of(application)


async def create(contacts: Contacts) -> UUID:
    return (await contacts.create(DETAILS, ORIGIN)).aggregate.id


async def leases(started: Stack) -> list[dict[str, Any]]:
    async with CosmosClient.from_connection_string(started.cosmos.connection_string) as client:
        return await leases_of(client.get_database_client(started.database))


async def leases_of(database: DatabaseProxy) -> list[dict[str, Any]]:
    container = database.get_container_client(LEASES)
    return [item async for item in container.read_all_items() if "LeaseToken" in item]


@pytest.mark.long
async def test_a_worker_relays_stops_at_once_and_a_functions_host_goes_on(tmp_path: Path) -> None:
    with stack(tmp_path) as started:
        assert started.functions.terminate() == 0
        log = tmp_path / "worker.log"
        async with service(started) as contacts:
            with worker(started, log) as process:
                first = await create(contacts)
                assert await started.sequences(str(first), 1) == [1]
                await eventually(lambda: all_checkpointed(started))
                assert process.terminate() == 0
            [lease] = await leases(started)
            assert lease["Owner"] is None
            assert "1 event(s) forwarded" in log.read_text()

            started.functions.start()
            second = await create(contacts)
            assert await started.sequences(str(second), 1) == [1]
            [taken_over] = await leases(started)
            assert taken_over["id"] == lease["id"]
            await eventually(lambda: "forwarded" in started.log())
            [forwarded] = [line for line in started.log().splitlines() if "forwarded" in line]
            assert "forwarded 1 event(s), parked 0" in forwarded


async def all_checkpointed(started: Stack) -> bool:
    return all(lease["ContinuationToken"] for lease in await leases(started))


async def is_ready(log: Path) -> bool:
    return await probe(log, "/readyz") == (200, {"status": "ready"})

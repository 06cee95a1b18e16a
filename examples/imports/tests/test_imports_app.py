"""Imports on a local Azure with a real queue: as functions, as a worker and as one program; jobs that are killed."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import aiohttp
import pytest
from azure.cosmos.aio import CosmosClient
from azure.storage.queue.aio import QueueClient

from cosmos_outbox.testing import LocalAzure, Program, eventually

APP = Path(__file__).parents[1]
ROOT = APP.parents[1]
HURRIED = {"IMPORT_RUN_SECONDS": "4", "IMPORT_PAUSE_SECONDS": "1", "IMPORT_VISIBILITY_SECONDS": "2"}
LARGE = b"name,city\n" + b"John,Tokyo\n" * 200_000
"""Takes a worker half a second."""
CSV = b"name,city\n" + b"John,Tokyo\n" * 1000

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


@pytest.fixture
def azure(tmp_path: Path) -> Iterator[LocalAzure]:
    """What ``devstack.toml`` makes."""
    with LocalAzure(tmp_path, settings={"PYTHONPATH": str(ROOT)}) as started:
        started.make(APP)
        yield started


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30)) as session:
        yield session


async def uploaded(http: aiohttp.ClientSession, url: str, key: str = "key-1", content: bytes = CSV) -> str:
    """The link to ask."""
    headers = {"Idempotency-Key": key}
    async with http.post(f"{url}?name=people.csv", data=BytesIO(content), headers=headers) as answer:
        assert answer.status == 202, await answer.text()
        return urljoin(url, answer.headers["Location"])


async def found(http: aiohttp.ClientSession, link: str) -> dict[str, Any]:
    with suppress(aiohttp.ClientError, TimeoutError):
        async with http.get(link) as answer:
            if answer.status == 200:
                document: dict[str, Any] = await answer.json()
                return document | {"retryAfter": answer.headers.get("Retry-After")}
    return {}


async def is_done(http: aiohttp.ClientSession, link: str) -> dict[str, Any]:
    document = await found(http, link)
    return document if document.get("status") in ("SUCCEEDED", "FAILED") else {}


async def test_functions_accept_a_file_and_a_queue_starts_its_job(
    azure: LocalAzure, http: aiohttp.ClientSession
) -> None:
    azure.run(APP)
    url = f"{azure.functions.address}api/imports"
    link, again = await uploaded(http, url), await uploaded(http, url)
    assert link == again
    done = await eventually(lambda: is_done(http, link), within=60)
    assert (done["status"], done["rows"], done["attempts"], done["retryAfter"]) == (
        "SUCCEEDED",
        1000,
        1,
        None,
    )
    broken = await uploaded(http, url, "key-2", b"a,b\n1\n")
    failed = await eventually(lambda: is_done(http, broken), within=60)
    assert (failed["status"], failed["lastError"]) == ("FAILED", "line 2 has 1 columns, and the first has 2")
    async with http.post(
        f"{url}?name=people.csv", data=b"other", headers={"Idempotency-Key": "key-1"}
    ) as refused:
        assert refused.status == 422
    async with http.get(f"{url}/{'0' * 8}-0000-0000-0000-000000000000") as nothing:
        assert nothing.status == 404


async def test_each_file_is_counted_once_though_workers_are_killed(
    azure: LocalAzure, http: aiohttp.ClientSession
) -> None:
    program = _program(azure, **HURRIED)
    workers = [_worker(azure, f"worker-{number}", **HURRIED) for number in range(2)]
    url = f"{program.address}/imports"
    links = [await uploaded(http, url, f"key-{number}", LARGE) for number in range(3)]
    for victim in (*workers, workers[0]):
        await eventually(lambda: _somebody_works(http, links), within=60)
        await asyncio.to_thread(victim.restart)
    for link in links:
        done = await eventually(partial(is_done, http, link), within=90)
        assert (done["status"], done["rows"]) == ("SUCCEEDED", LARGE.count(b"\n") - 1)
    async with CosmosClient.from_connection_string(azure.cosmos.connection_string) as client:
        container = client.get_database_client("imports").get_container_client("imports")
        query = "SELECT VALUE c.partitionKey FROM c WHERE c.data.action = 'FileImported'"
        found = [each async for each in container.query_items(query)]
    assert len(found) == len(set(found)) == 3


async def test_one_program_serves_relays_and_runs_jobs_beside_a_worker(
    azure: LocalAzure, http: aiohttp.ClientSession
) -> None:
    await _send(azure, "no base64!", "bm8gSlNPTg==", "")
    program, worker = _program(azure), _worker(azure, "worker")
    url = f"{program.address}/imports"
    links = [await uploaded(http, url, f"key-{number}") for number in range(4)]
    for link in links:
        done = await eventually(partial(is_done, http, link), within=60)
        assert (done["status"], done["rows"], done["attempts"]) == ("SUCCEEDED", 1000, 1)
    assert worker.terminate() == 0
    assert program.terminate() in (0, -15)
    logs = worker.log.read_text() + program.log.read_text()
    assert logs.count("cannot be worked on") == 3, "what is no event is logged, and kept for a while"
    assert "the queue cannot be read" not in logs


async def _send(azure: LocalAzure, *garbage: str) -> None:
    connection = azure.settings["STORAGEQUEUE"]
    async with QueueClient.from_connection_string(connection, "import-jobs") as queue:
        for each in garbage:
            await queue.send_message(each)


def _program(azure: LocalAzure, **settings: str) -> Program:
    command = (sys.executable, "-m", "uvicorn", "examples.imports.app:app", "--port", "0")
    return azure.program(
        *command, ready=r"running on (http://[^ ]+)", folder=ROOT, name="program", **settings
    )


def _worker(azure: LocalAzure, name: str, **settings: str) -> Program:
    command = (sys.executable, "-m", "examples.imports.worker")
    return azure.program(*command, ready="(waiting for jobs)", folder=ROOT, name=name, **settings)


async def _somebody_works(http: aiohttp.ClientSession, links: list[str]) -> bool:
    states = {(await found(http, link)).get("status") for link in links}
    return "RUNNING" in states or states == {"SUCCEEDED"}

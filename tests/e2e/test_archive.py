"""Events in a real Azurite: the function and the worker archive them alike, through crashes, and they can be erased."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from azure.storage.blob import BlobServiceClient

from cosmos_outbox.blobs.archive import BlobArchive
from cosmos_outbox.blobs.inspection import BlobInspection
from cosmos_outbox.cosmos.aggregates.documents import is_as_committed
from cosmos_outbox.outbox.archive import MARKS, Blob
from cosmos_outbox.outbox.archive_index import INDEX
from cosmos_outbox.outbox.errors import PreconditionFailed
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.errors import Misconfigured
from devstack.testing import Service, eventually, running
from tests.e2e.conftest import Stack, stack
from tests.e2e.test_relay_worker import create, service, settings
from tests.support import command
from tests.support.paths import ROOT

pytestmark = [pytest.mark.own_stack, pytest.mark.long, pytest.mark.timeout(400)]

CONTAINER = "event-archive"


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[str]:
    """Of an Azurite of the test's own."""
    with running(Service("storage", tmp_path / "storage")) as storage:
        yield storage.connection_string


def archived(connection: str) -> list[dict[str, Any]]:
    with BlobServiceClient.from_connection_string(connection) as client:
        container = client.get_container_client(CONTAINER)
        return [
            json.loads(line)
            for blob in container.list_blobs()
            if blob.name != MARKS
            for line in container.download_blob(blob.name).readall().splitlines()
        ]


def contacts_in(connection: str) -> set[str]:
    return {line["aggregateId"] for line in archived(connection)}


@contextmanager
def worker(started: Stack, connection: str, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "cosmos_outbox", "relay"], cwd=ROOT, stderr=output,
            env={**os.environ, **settings(started), "ARCHIVE": connection},
        )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


def erase(started: Stack, connection: str, contact: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "cosmos_outbox", "erase", "contact", contact],
        cwd=ROOT, env={**os.environ, **settings(started), "ARCHIVE": connection},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


async def test_function_and_worker_archive_what_was_committed_and_what_is_erased_is_emptied(
    tmp_path: Path, connection: str
) -> None:
    with stack(tmp_path, ARCHIVE=connection) as started:
        log = tmp_path / "worker.log"
        async with service(started) as contacts:
            by_function = await create(contacts)
            with BlobServiceClient.from_connection_string(connection) as client:
                client.create_container(CONTAINER)  # late: until then the page is tried again
            await eventually(lambda: str(by_function) in contacts_in(connection), within=60)
            assert started.functions.terminate() == 0

            made = {str(by_function)}
            for _ in range(3):
                with worker(started, connection, log) as process:
                    made |= {str(await create(contacts)) for _ in range(3)}
                    process.kill()
            with worker(started, connection, log):
                await eventually(lambda: contacts_in(connection) == made, within=90)
                lines = archived(connection)
                assert all(is_as_committed(line["document"]) for line in lines)
                assert {line["action"] for line in lines} == {"ContactCreatedEvent"}

                erased = await asyncio.to_thread(erase, started, connection, str(by_function))
        assert erased.returncode == 0, erased.stdout + erased.stderr
        assert re.search(r"[1-9] archived event.s. emptied", erased.stdout), erased.stdout
        of_person = [line for line in archived(connection) if line["aggregateId"] == str(by_function)]
        assert {line["action"]: "document" in line for line in of_person} == {
            "ContactCreatedEvent": False,
            "ContactDeletedEvent": True,
        }


async def test_a_relay_that_ends_by_itself_has_archived_what_was_stored_or_says_so(
    tmp_path: Path, connection: str
) -> None:
    """Of a job that begins every few minutes nothing else tells it: events would expire unarchived."""
    with stack(tmp_path) as started:
        assert started.functions.terminate() == 0
        environment = settings(started) | {"PATH": "/usr/bin:/bin", "ARCHIVE": connection}
        async with service(started) as contacts:
            made = {str(await create(contacts)) for _ in range(30)}

        def relay(*arguments: str) -> command.Ended:
            return command.run_command("relay", "--once", *arguments, environment=environment)

        away = await asyncio.to_thread(relay, "--for", "15")
        assert away.code == 1
        assert "30 event(s) forwarded by this relay" in away.out
        assert "not archived" in away.out
        with BlobServiceClient.from_connection_string(connection) as client:
            client.create_container(CONTAINER)
        done = await asyncio.to_thread(relay)
        assert (done.code, contacts_in(connection)) == (0, made), done.out


async def test_a_blob_is_claimed_once_and_filled_at_the_version_that_was_claimed(connection: str) -> None:
    async with AsyncExitStack() as resources:
        archive = BlobArchive(Connection(connection_string=connection), CONTAINER, None, resources)
        with pytest.raises(Misconfigured, match="has no blob container"):
            await archive.read("a.jsonl")
        with BlobServiceClient.from_connection_string(connection) as client:
            client.create_container(CONTAINER)
        assert await archive.read("a.jsonl") is None
        await BlobInspection(Connection(connection_string=connection), CONTAINER, None).try_writing()
        assert [each async for each in archive.blobs()] == [], "trying stores nothing"
        claimed = await archive.claim("a.jsonl")
        assert claimed is not None
        assert await archive.claim("a.jsonl") == claimed
        assert await archive.read("a.jsonl") == (b"", claimed)
        await archive.replace(Blob("a.jsonl", b""), claimed)
        with pytest.raises(PreconditionFailed):
            await archive.replace(Blob("a.jsonl", b"{}"), claimed)
        claimed = await archive.claim("a.jsonl")
        assert claimed is not None
        await archive.replace(Blob("a.jsonl", b"{}"), claimed)
        assert await archive.claim("a.jsonl") is None
        found = await archive.read("a.jsonl")
        assert found is not None
        assert (found[0], await archive.read("a.jsonl", found[1])) == (b"{}", None)
        with pytest.raises(PreconditionFailed):
            await archive.replace(Blob("b.jsonl", b"{}"), found[1])
        assert await archive.claim(f"{INDEX}b/1") is not None
        assert await archive.claim(f"{INDEX}a/2") is not None
        assert await archive.claim(f"{INDEX}a/1") is not None
        assert await archive.names(f"{INDEX}a/") == [f"{INDEX}a/1", f"{INDEX}a/2"]
        assert await archive.names(f"{INDEX}c/") == []
        assert [each async for each in archive.blobs()] == [(Blob("a.jsonl", b"{}"), found[1])]

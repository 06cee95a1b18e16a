"""What was acknowledged is there after SIGKILL; what cannot be served is refused in one line and left as it is."""

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.core.exceptions import AzureError
from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos.raw import KEY
from devstack.testing import Service, eventually, running
from devstack.testing.ended import Ended, run_module


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Service]:
    folder = tmp_path / "data"
    with running(Service("cosmos", folder)) as service:
        yield service


def start(folder: Path, port: int = 0) -> Ended:
    """A server that is expected to refuse."""
    return run_module("devstack", "cosmos", f"--port={port}", f"--data={folder}")


async def write_until_refused(container: ContainerProxy, writer: int, acknowledged: list[str]) -> None:
    number = 0
    while True:
        name = f"{writer}-{number}"
        try:
            await container.execute_item_batch(
                [("create", ({"id": name, "pk": "a"},)), ("create", ({"id": f"{name}-event", "pk": "a"},))],
                "a",
            )
        except AzureError:
            return
        acknowledged.append(name)
        number += 1


async def test_a_kill_loses_no_acknowledged_write_and_leaves_no_half_batch(server: Service) -> None:
    acknowledged: list[str] = []
    async with CosmosClient(server.address, KEY, retry_total=0, retry_connect=0) as client:
        database = await client.create_database("d")
        container = await database.create_container("c", PartitionKey("/pk"))
        writers = [asyncio.create_task(write_until_refused(container, n, acknowledged)) for n in range(4)]
        await eventually(lambda: len(acknowledged) >= 40)
        server.kill()
        await asyncio.gather(*writers)

    server.start()

    async with CosmosClient(server.address, KEY) as client:
        container = client.get_database_client("d").get_container_client("c")
        stored = {item["id"] async for item in container.read_all_items()}
        feed = {item["id"] async for item in container.query_items_change_feed(start_time="Beginning")}
    assert {name for written in acknowledged for name in (written, f"{written}-event")} <= stored
    halves = {name for name in stored if not name.endswith("-event") and f"{name}-event" not in stored}
    assert halves == set()
    assert len([name for name in stored if name.endswith("-event")]) * 2 == len(stored)
    assert feed == stored


def test_a_second_process_on_the_folder_is_refused(server: Service) -> None:
    refused = start(server.folder)

    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert "in use by another process" in refused.err


@pytest.mark.parametrize("damage", ["nonsense", "a cut", "another database"])
def test_a_damaged_file_is_named_and_not_touched(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "data"
    with running(Service("cosmos", folder)):
        pass
    file = folder / "cosmos.db"
    if damage == "nonsense":
        file.write_bytes(b"this is no database" * 1000)
    elif damage == "a cut":
        file.write_bytes(file.read_bytes()[:6000])
    else:
        file.unlink()
        other = sqlite3.connect(file)
        other.execute("CREATE TABLE mine (x)")
        other.commit()
        other.close()
    before = file.read_bytes()

    refused = start(folder)

    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert str(file) in refused.err
    assert file.read_bytes() == before


def test_a_file_that_was_being_made_when_the_process_was_killed_is_used(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "cosmos.db").touch()

    with running(Service("cosmos", folder)) as service:
        assert service.address.startswith("http://127.0.0.1:")


def test_a_taken_port_is_one_line(server: Service, tmp_path: Path) -> None:
    refused = start(tmp_path / "other", server.port)

    assert refused.code == 2
    assert "COSMOS_PORT" in refused.err
    assert "Traceback" not in refused.err

"""Each image is whole: what its Dockerfile copies and installs, and nothing else, runs its command."""

import socket
from pathlib import Path

import httpx
import pytest

from cosmos_outbox.testing import LocalAzure, Program, eventually
from devstack.testing import Process
from tests.deploy.image import Image
from tests.e2e.conftest import stack
from tests.e2e.test_relay_worker import create, service, settings
from tests.support.paths import ROOT

CONTAINERS = ROOT / "deploy" / "containers"

pytestmark = [pytest.mark.long, pytest.mark.own_stack, pytest.mark.timeout(600)]


def image(folder: Path, name: str) -> Image:
    made = Image(folder / "image")
    made.folder.mkdir()
    made.build(CONTAINERS / name)
    return made


def on_loopback(made: Image, port: str) -> tuple[list[str], int]:
    """Its command with another address, and the port there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        chosen = free.getsockname()[1]
    command = [each.replace("0.0.0.0", "127.0.0.1").replace(port, str(chosen)) for each in made.command]
    assert command != made.command
    return [str(made.folder / "venv" / "bin" / command[0]), *command[1:]], chosen


async def test_the_workers_image_forwards_stored_events_and_stops_on_sigterm(tmp_path: Path) -> None:
    made = image(tmp_path, "worker.Dockerfile")
    command, port = on_loopback(made, "8080")
    with stack(tmp_path) as started:
        assert started.functions.terminate() == 0
        log = tmp_path / "relay.log"
        worker = Process("relay", log, command, made.environment | settings(started), made.root).start()
        try:
            async with service(started) as contacts, httpx.AsyncClient() as http:
                contact = await create(contacts)
                assert await started.sequences(str(contact), 1) == [1], log.read_text()

                async def is_ready() -> bool:
                    return (await http.get(f"http://127.0.0.1:{port}/readyz")).status_code == 200

                await eventually(is_ready, within=60)
        finally:
            assert worker.terminate() == 0, log.read_text()


async def test_the_apis_image_stores_relays_and_applies(tmp_path: Path) -> None:
    made = image(tmp_path, "api.Dockerfile")
    command, port = on_loopback(made, "8000")
    with LocalAzure(tmp_path / "azure") as azure:
        azure.make(ROOT / "examples" / "fastapi")
        environment = made.environment | azure.settings
        api = Program(
            "api",
            log=tmp_path / "api.log",
            command=command,
            environment=environment,
            folder=made.root,
            ready="running on",
        )
        api.start()
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
                person = (await http.post("/people", json={"name": "Ada", "email": "a@contoso.com"})).json()

                async def is_listed() -> bool:
                    return [each["id"] for each in (await http.get("/directory")).json()["items"]] == [
                        person["id"]
                    ]

                await eventually(is_listed, within=60)
        finally:
            api.terminate()

"""As the README has it: a new service, and this receiver, which is away at times."""

import asyncio
import base64
import socket
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from cosmos_outbox.testing import LocalAzure, Program, eventually
from examples.receiver.app import reading

ROOT = Path(__file__).parents[3]
SECRET = f"whsec_{base64.b64encode(b'a secret of 32 bytes for a test.').decode()}"

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
def service(tmp_path: Path) -> Path:
    """Its folder."""
    folder = tmp_path / "bookings"
    init = [sys.executable, "-m", "cosmos_outbox", "init", "bookings", "--into", str(folder)]
    subprocess.run(init, check=True, cwd=ROOT, capture_output=True)
    return folder


async def test_a_new_services_changes_are_applied_once_by_a_restarted_receiver(
    service: Path, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    settings = {
        "PYTHONPATH": str(ROOT), "TRANSPORT": "webhook", "WEBHOOK_URL": f"{url}/events", "WEBHOOK_SECRETS": SECRET
    }  # fmt: skip
    with LocalAzure(tmp_path / "azure", settings=settings) as azure:
        azure.make(service)
        azure.run(service)
        bookings = f"{azure.functions.address}api/bookings"
        async with httpx.AsyncClient(timeout=30) as http:
            booking = (await http.post(bookings, json={"title": "The first"})).json()
            receiver = _receiver(azure, tmp_path, port)

            async def has(*events: str) -> bool:
                entry = (await http.get(f"{url}/entries/booking/{booking['id']}")).json()
                return [*(entry or {}).get("events", [])] == [*events]

            await eventually(lambda: has("BookingCreated"), within=90)
            receiver.terminate()
            for title in ("The second", "The third"):
                answer = await http.patch(f"{bookings}/{booking['id']}", json={"title": title})
                assert answer.status_code == 200, answer.text
            receiver.start()
            await eventually(lambda: has("BookingCreated", *["BookingTitleChanged"] * 2), within=90)
            read_again = reading(_source(azure))
            current = await asyncio.to_thread(read_again, "booking", booking["id"])
            assert current is not None
            assert (current.sequence, current.state["title"]) == (3, "The third"), "as on a skip marker"
            assert await asyncio.to_thread(read_again, "booking", str(uuid4())) is None


def _receiver(azure: LocalAzure, folder: Path, port: int) -> Program:
    command = (sys.executable, "-m", "uvicorn", "--factory", "examples.receiver.app:from_environment")
    return azure.program(
        *command, "--port", str(port), ready="Uvicorn running on", folder=ROOT, name="receiver",
        WEBHOOK_SECRETS=SECRET, RECEIVER_DATABASE=str(folder / "receiver.db"),
        SOURCE=_source(azure),
    )  # fmt: skip


def _source(azure: LocalAzure) -> str:
    return f"{azure.functions.address}api/{{type}}s/{{id}}"

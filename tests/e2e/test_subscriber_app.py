"""A team that only subscribes runs as a function app, or as a worker of the command: both do the same in one store."""

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import aiohttp
import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from cosmos_outbox.kernel.clock import utc_now
from devstack.testing import Process, Service, eventually, running
from tests.support.azure import Topic
from tests.support.paths import ROOT

APP = Path(__file__).parent / "apps" / "subscriber"
APP_MODULE = "tests.e2e.apps.subscriber.function_app"


@dataclass
class World:
    settings: dict[str, str]
    topic: Topic

    async def send(self, guest_id: str, sequence: int, name: str) -> None:
        body = {
            "id": f"{guest_id}-{sequence}", "action": "GuestNamed", "sequence": sequence, "guestId": guest_id,
            "createdAt": utc_now().isoformat(), "name": name,
        }  # fmt: skip
        message = ServiceBusMessage(
            json.dumps(body), message_id=str(uuid4()), session_id=guest_id, content_type="application/json",
            application_properties={"aggregateType": "guest"},
        )  # fmt: skip
        async with (
            ServiceBusClient.from_connection_string(self.topic.service.connection_string) as client,
            client.get_topic_sender(self.topic.name) as sender,
        ):
            await sender.send_messages(message)

    def guests(self) -> dict[str, tuple[int, str]]:
        file = Path(self.settings["HOTEL_DATABASE"])
        if not file.exists():
            return {}
        with sqlite3.connect(file) as connection:
            made = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'documents'").fetchone()
            query = "SELECT document FROM documents WHERE kind = 'entries of guests'"
            found = [json.loads(row[0]) for row in (connection.execute(query).fetchall() if made else [])]
        connection.close()
        return {each["id"]: (each["lastSequence"], each["data"]["name"]) for each in found}

    def letters(self) -> list[tuple[str, int]]:
        file = Path(self.settings["LETTERS"])
        return [tuple(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
async def world(servicebus_server: Service, tmp_path: Path) -> AsyncIterator[World]:
    topic = Topic(servicebus_server)
    await topic.create("guests", "letters")
    yield World(
        {
            "SERVICEBUS": servicebus_server.connection_string,
            "SERVICEBUS_TOPIC": topic.name,
            "HOTEL_DATABASE": str(tmp_path / "hotel.db"),
            "LETTERS": str(tmp_path / "letters"),
        },
        topic,
    )
    await topic.delete()


async def test_what_a_function_app_has_applied_a_worker_goes_on_with(world: World, tmp_path: Path) -> None:
    no_settings = tmp_path / "no.settings.json"
    no_settings.write_text('{"Values": {}}')
    options = f"--app={APP}", f"--settings={no_settings}", "--stop-seconds=3"
    host = Service("functions", tmp_path / "host", *options, environment=world.settings)
    with running(host):
        await world.send("g1", 1, "Ada")
        await eventually(lambda: world.guests() == {"g1": (1, "Ada")})
        await eventually(lambda: world.letters() == [("g1", 1)])
        async with aiohttp.ClientSession(host.address.rstrip("/") + "/") as http:
            answers = {}
            for path in ("health", "subscribers", "stuck", "relay"):
                async with http.get(f"api/{path}") as answer:
                    answers[path] = answer.status
        assert answers == {"health": 200, "subscribers": 200, "stuck": 200, "relay": 404}
    command = [sys.executable, "-m", "cosmos_outbox", "subscriber", "--service", APP_MODULE]
    worker = Process("worker", tmp_path / "worker.log", command, world.settings, ROOT).start()
    await world.send("g1", 1, "Ada")
    await world.send("g1", 2, "Ada King")
    await eventually(lambda: world.guests() == {"g1": (2, "Ada King")})
    await eventually(lambda: world.letters() == [("g1", 1), ("g1", 2)])
    assert await asyncio.to_thread(worker.terminate) == 0, worker.log.read_text()
    assert "Traceback" not in worker.log.read_text()

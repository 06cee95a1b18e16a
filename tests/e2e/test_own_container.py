"""A function app over a team's own container, in the Functions host: ten lines, with its relay and operators' calls."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from devstack.testing import Service as Server
from devstack.testing import running
from tests.support.azure import Topic
from tests.support.own import HIERARCHICAL, World, world_of
from tests.support.paths import ROOT

pytestmark = pytest.mark.own_stack

APP = """
from cosmos_outbox.functions.function_app import app as function_app
from tests.support.own import HIERARCHICAL

app = function_app(HIERARCHICAL)
"""


@contextmanager
def hosted(folder: Path, world: World) -> Iterator[str]:
    """The address of the app's calls."""
    app = folder / "app"
    app.mkdir()
    (app / "function_app.py").write_text(APP)
    shutil.copy(ROOT / "host.json", app)
    settings = folder / "no.settings.json"
    settings.write_text('{"IsEncrypted": false, "Values": {}}')
    environment = {**world.environment, "PYTHONPATH": str(ROOT), "RELAY_POLL_DELAY_MS": "50"}
    host = Server(
        "functions", folder / "functions", f"--app={app}", f"--settings={settings}", environment=environment
    )
    with running(host) as started:
        yield started.address.rstrip("/") + "/api"


async def test_the_host_relays_and_tells_the_history(
    tmp_path: Path, cosmos_server: Server, servicebus_server: Server
) -> None:
    topic = Topic(servicebus_server)
    await topic.create()
    connection = servicebus_server.connection_string
    async with world_of(HIERARCHICAL, cosmos_server, connection, topic.name) as world:
        with hosted(tmp_path, world) as url:
            await world.book(tenant=17)
            async with world.transaction(17) as tx:
                item = await world.read("b-1", 17)
                tx.replace(item, if_match=item["_etag"])
                at = "2024-05-01T10:00:00.000+02:00"  # which the host writes anew
                tx.event("BookingMoved", of=("booking", "b-1"), data={"at": at})
            messages = await topic.receive("b-1", 2, of="booking")
            assert [str(message.subject) for message in messages] == ["BookingMade", "BookingMoved"]
            assert f'"at":"{at}"' in str(messages[1])
            async with (
                aiohttp.ClientSession() as http,
                http.get(f"{url}/history/bookings/b-1") as answer,
                http.get(f"{url}/nothing") as missing,
            ):
                assert (answer.status, missing.status) == (200, 404)
                past: dict[str, Any] = await answer.json()
            assert past["lastSequence"] == 2
            assert [event["action"] for event in past["events"]] == ["BookingMoved", "BookingMade"]
    await topic.delete()

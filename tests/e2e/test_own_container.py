"""A function app over a team's own container, in the Functions host: ten lines, with its relay and operators' calls."""

from pathlib import Path
from typing import Any

import aiohttp
import pytest

from devstack.testing import Service as Server
from tests.e2e.conftest import hosted
from tests.support.azure import Topic
from tests.support.own import HIERARCHICAL, world_of

pytestmark = pytest.mark.own_stack


async def test_the_host_relays_and_lists_the_events(
    tmp_path: Path, cosmos_server: Server, servicebus_server: Server
) -> None:
    topic = Topic(servicebus_server)
    await topic.create()
    connection = servicebus_server.connection_string
    async with world_of(HIERARCHICAL, cosmos_server, connection, topic.name) as world:
        with hosted(tmp_path, "tests.support.own", "HIERARCHICAL", world.environment) as url:
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
                http.get(f"{url}/events/booking/b-1") as answer,
                http.get(f"{url}/nothing") as missing,
            ):
                assert (answer.status, missing.status) == (200, 404)
                past: dict[str, Any] = await answer.json()
            assert [event["action"] for event in past["items"]] == ["BookingMoved", "BookingMade"]
    await topic.delete()

"""What is parked for a partner is operated there, over HTTP and by commands; the topic is not touched."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from devstack.testing import Service as Server
from devstack.testing import eventually
from tests.e2e.conftest import hosted
from tests.support.command import Ended, run_command
from tests.support.partner import World, added, declared, renamed, world_of

pytestmark = pytest.mark.own_stack


class Calls:
    """What an operator asks for."""

    def __init__(self, http: aiohttp.ClientSession, url: str, settings: Mapping[str, str]) -> None:
        self.http, self.url = http, url
        self.environment = {**settings, "PATH": "/usr/bin:/bin", "OUTBOX_SERVICE": "tests.support.partner"}

    async def get(self, path: str, status: int = 200) -> dict[str, Any]:
        return await self._call("GET", path, status, None)

    async def post(self, path: str, status: int, body: Mapping[str, str] | None = None) -> dict[str, Any]:
        return await self._call("POST", path, status, body)

    async def _call(self, method: str, path: str, status: int, body: Any) -> dict[str, Any]:
        async with self.http.request(method, f"{self.url}/{path}", json=body) as answer:
            assert answer.status == status, await answer.text()
            told: dict[str, Any] = {} if status == 204 else await answer.json()
            return told

    async def run(self, *arguments: str) -> Ended:
        return await asyncio.to_thread(run_command, *arguments, environment=self.environment)

    async def states(self, person: str) -> list[tuple[int, str, str]]:
        """Of each event, the newest first: its sequence, where it is for the topic, and for the partner."""
        past = await self.get(f"history/people/{person}")
        assert [each["name"] for each in past["destinations"]] == ["partner"]
        return [
            (each["sequence"], each["state"], of["state"])
            for each in past["events"]
            for of in each["destinations"]
        ]


@dataclass
class Scene:
    """Two people whose events the partner refuses: the first one's from the second on, the other's second."""

    world: World
    calls: Calls
    person: str
    other: str
    parking_id: str
    """Of the first one's event that is in the way."""


@pytest.fixture
async def scene(tmp_path: Path, cosmos_server: Server, servicebus_server: Server) -> AsyncIterator[Scene]:
    async with world_of(cosmos_server, servicebus_server) as world:
        await world.comes()
        wired = declared().wire(world.settings)
        async with wired.resources, aiohttp.ClientSession() as http:
            with hosted(tmp_path, "tests.support.partner", "service", world.settings) as url:
                calls = Calls(http, url, world.settings)
                person, other = await added(wired), await added(wired)
                world.refused |= {(person, 2), (person, 3), (other, 2)}
                for name in ("Ada", "Augusta", "Byron"):
                    await renamed(wired, person, name)
                await renamed(wired, other, "Ada")
                assert await world.on_topic(person, 4) == [1, 2, 3, 4]
                assert await world.on_topic(other, 2) == [1, 2]

                async def settled() -> dict[str, Any]:
                    parked, relay = await calls.get("partner/parked"), await calls.get("relay")
                    assert [each for each in relay["leases"] if each["lag"]] == []
                    found = [each for each in parked["items"] if each["personId"] == person]
                    assert (len(found), len(parked["items"])) == (3, 4)
                    return next(each for each in found if each["state"] == "inTheWay")

                blocker = await eventually(settled, within=60)
                yield Scene(world, calls, person, other, blocker["id"])
    assert world.taken_of(other) == [1]


async def test_what_is_parked_for_a_partner_is_told_of_it_and_of_no_other(scene: Scene) -> None:
    calls, person, name = scene.calls, scene.person, scene.parking_id
    assert await calls.states(person) == [
        (4, "forwarded", "parked"),
        (3, "forwarded", "parked"),
        (2, "forwarded", "parked"),
        (1, "forwarded", "forwarded"),
    ]
    [partner] = (await calls.get("relay"))["destinations"]
    told = ("name", "parkedEvents", "parkedPeople", "late")
    assert [partner[each] for each in told] == ["partner", 4, 2, False]
    assert (await calls.get("parked"))["items"] == []
    assert (await calls.run("parked")).code == 0
    listed = await calls.run("parked", "--destination", "partner")
    assert (listed.code, len(listed.out.splitlines())) == (1, 5)
    assert "or those of partner with --destination partner" in (await calls.run("status")).out
    await calls.get(f"parked/{name}", 404)
    await calls.post(f"parked/people/{person}/replay", 404)

    mistyped = await calls.post(f"partner/parked/persons/{person}/replay", 404)
    assert mistyped["detail"].endswith("call partner/parked/people/{id}/replay")
    for path in ("other/parked", f"other/parked/{name}"):
        assert "no destination 'other'; it has: partner" in (await calls.get(path, 404))["detail"]
    await calls.post(f"other/parked/{name}/discard", 404, {"reason": "a test"})
    span = ["--since", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z"]
    for code, command in (
        (1, ["parked"]),
        (1, ["replay", "person", person]),
        (1, ["discard", "parked", name, "--reason", "a test"]),
        (2, ["publish-again", *span]),
    ):
        ended = await calls.run(*command, "--destination", "other")
        [line] = ended.err.splitlines()
        assert (ended.code, line) == (
            code,
            f"{command[0]}: the service has no destination 'other'; it has: partner",
        )


async def test_what_is_parked_for_a_partner_is_given_up_or_sent_there_and_nowhere_else(scene: Scene) -> None:
    world, calls, person = scene.world, scene.calls, scene.person
    refused = await calls.post(f"partner/parked/people/{person}/replay", 409)
    assert "replay again" in refused["detail"]
    discarding = ("discard", "parked", scene.parking_id, "--reason", "a test")
    assert "no event is parked under" in (await calls.run(*discarding)).err
    given_up = await calls.run(*discarding, "--destination", "partner")
    assert (given_up.code, given_up.err) == (0, "")
    world.refused.discard((person, 3))
    world.refused.discard((person, 2))  # where the notice is
    sent = await calls.run("replay", "person", person, "--destination", "partner")
    assert (sent.code, sent.err) == (0, "")
    assert world.taken_of(person) == [1, 2, 3, 4]
    assert await calls.states(person) == [
        (4, "forwarded", "forwarded"),
        (3, "forwarded", "forwarded"),
        (2, "forwarded", "discarded"),
        (1, "forwarded", "forwarded"),
    ]
    assert ": forwarded; partner: discarded" in (await calls.run("history", "person", person)).out
    discarded = await calls.get("partner/parked?state=discarded")
    assert [each["sequence"] for each in discarded["items"]] == [2]
    assert (await calls.get("parked?state=discarded"))["items"] == []
    assert (await calls.get("relay"))["destinations"][0]["parkedPeople"] == 1
    assert await world.topic.receive_all(person, 0, of="person") == []

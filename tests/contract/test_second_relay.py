"""Two relays send the events of one service to a topic and to a partner: neither holds up the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.errors import NotParked
from cosmos_outbox.service import Wired
from cosmos_outbox.worker import relay as relay_worker
from cosmos_outbox.worker.running import running
from devstack.testing import Service as Server
from devstack.testing import eventually
from tests.support.command import run_command
from tests.support.partner import World, added, declared, renamed, world_of

pytestmark = pytest.mark.needs_a_socket("the receiver of a webhook has one")


@dataclass
class Two:
    """Two workers, as two processes wire them."""

    world: World
    wired: Wired
    """Of the worker whose relay sends to the topic."""
    partner: Wired
    """Of the other one."""

    async def parked(self, wired: Wired) -> list[int | None]:
        return [each.sequence for each in (await wired.operator.parking.page(10, None)).items]


@asynccontextmanager
async def two(world: World) -> AsyncIterator[Two]:
    async with (
        running(declared(), environment=world.settings, subscribers=False) as topic,
        running(declared(), environment=world.partner, subscribers=False) as partner,
    ):
        yield Two(world, topic.wired, partner.wired)


@pytest.fixture
async def world(cosmos_server: Server, servicebus_server: Server) -> AsyncIterator[World]:
    async with world_of(cosmos_server, servicebus_server) as made:
        yield made


async def test_what_one_relay_parks_is_parked_and_operated_there_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_worker, "UPKEEP_PAUSE_SECONDS", 3_600.0)  # an operator sends it, and no timer
    await world.comes()
    async with two(world) as at_work:
        own, partner = at_work.wired, at_work.partner
        sick = await added(at_work.wired)
        world.refused.add((sick, 2))
        for name in ("Ada", "Augusta"):
            await renamed(at_work.wired, sick, name)
        well = await added(at_work.wired)
        await eventually(lambda: world.taken_of(well) == [1])
        assert await world.on_topic(sick, 3) == [1, 2, 3]

        async def both_parked() -> bool:
            return await at_work.parked(partner) == [2, 3]

        await eventually(both_parked)
        assert await at_work.parked(own) == []
        [first, _] = (await partner.operator.parking.page(10, None)).items
        assert first.reason == "the receiver answers 422"
        with pytest.raises(NotParked):
            await own.operator.parking.show(first.id)
        with pytest.raises(NotParked):
            await own.operator.parking.replay(AggregateKey("person", sick))
        assert (await own.operator.observer.status()).parked_events == 0
        assert (await partner.operator.observer.status()).parked == {"person": 1}

        def command(*arguments: str, of: dict[str, str]) -> int:
            environment = {**of, "PATH": "/usr/bin:/bin", "OUTBOX_SERVICE": "tests.support.partner"}
            return run_command(*arguments, environment=environment).code

        assert await asyncio.to_thread(command, "stuck", of=world.settings) == 0
        assert await asyncio.to_thread(command, "stuck", of=world.partner) == 1
        world.refused.clear()
        assert await asyncio.to_thread(command, "retry", first.id, of=world.partner) == 0
        assert list(dict.fromkeys(world.taken_of(sick))) == [1, 2, 3], "in order; a copy may come"
        assert await at_work.parked(partner) == []

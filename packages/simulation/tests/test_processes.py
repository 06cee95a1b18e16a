"""What a simulated process is, as far as a run relies on it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from outbox_simulation.engine.instance import SimulatedInstance
from outbox_simulation.engine.loop import Loop
from outbox_simulation.engine.processes import serve_requests


def test_a_server_that_is_told_to_stop_ends_the_requests_in_hand_before_it_closes_its_clients() -> None:
    """Seed 2084: a deployment took the store's client from a request that was being tried again; it answered 500."""
    loop, happened = Loop(), list[str]()

    @asynccontextmanager
    async def resources() -> AsyncIterator[None]:
        yield
        happened.append(f"closed at {loop.time():g}")

    async def request() -> None:
        await asyncio.sleep(6)
        happened.append(f"answered at {loop.time():g}")

    async def story() -> None:
        instance, stop = SimulatedInstance("api-1", loop.outside()), asyncio.Event()
        wired: Any = SimpleNamespace(resources=resources())
        serving = loop.begin(instance, serve_requests(wired, stop))
        await asyncio.sleep(1)
        loop.begin(instance, request())
        await asyncio.sleep(1)
        stop.set()
        await serving

    loop.run(story())
    assert happened == ["answered at 7", "closed at 7"]

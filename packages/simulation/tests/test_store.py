"""The real SDK over a store in memory: what it sends is served, and a request's fault is what the SDK raises."""

import asyncio
import random
import sys
import threading
import time
import types
import uuid
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import fields
from email.utils import formatdate
from typing import Any, TypeVar

from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy

from cosmos_outbox.kernel import clock
from cosmos_outbox.settings.connections import Connection
from devstack.cosmos.in_memory import in_memory
from infra.bootstrap import service
from outbox_simulation.engine import sdk_clock
from outbox_simulation.engine.bus import Bus
from outbox_simulation.engine.loop import Loop
from outbox_simulation.engine.processes import EPOCH, Ground, Version
from outbox_simulation.engine.store import SimulatedStore, StoreFaults
from outbox_simulation.engine.trace import RunTrace
from outbox_simulation.invariants.history import History

T = TypeVar("T")


def _connection(ground: Ground) -> Connection:
    return Connection(connection_string=ground.environment(ground.version)["COSMOS"])


def in_world(story: Callable[[Ground, ContainerProxy], Awaitable[T]], seed: int = 1) -> tuple[T, RunTrace]:
    """Run a story with a container of one store."""

    def run() -> tuple[T, RunTrace]:
        sdk_clock.install()
        loop = Loop(random.Random(seed))
        trace = RunTrace(loop.time)
        with in_memory(clock=lambda: EPOCH.timestamp() + loop.time(), chance=random.Random(seed)) as account:
            store = SimulatedStore(loop, account, chance=random.Random(seed), trace=trace)
            ground = Ground(loop, trace, History(), store, Bus(), service, Version(service, {}))

            async def main() -> T:
                clock.use(ground.sources(random.Random(seed), lambda: 0.0, "world"))
                loop.root_is_now()
                client = ground.clients().cosmos(_connection(ground), None)
                database = await client.create_database("shop")
                container = await database.create_container("things", PartitionKey(path="/pk"))
                try:
                    return await story(ground, container)
                finally:
                    trace.end()
                    await client.close()

            return loop.run(main()), trace

    return copy_context().run(run)


async def _write(container: ContainerProxy, name: str) -> Any:
    return await container.create_item({"id": name, "pk": "a"})


async def _ids(container: ContainerProxy) -> list[str]:
    return sorted(
        [item["id"] async for item in container.query_items("SELECT c.id FROM c", partition_key="a")]
    )


def test_the_same_seed_is_the_same_run_to_the_byte() -> None:
    async def story(ground: Ground, container: ContainerProxy) -> list[str]:
        ground.store.faults = StoreFaults(slow=0.3, throttled=0.2, lag=0.5)
        await asyncio.gather(
            *(_write(container, str(number)) for number in range(10)), return_exceptions=True
        )
        return await _ids(container)

    (one, first), (two, again), (_, other) = in_world(story), in_world(story), in_world(story, seed=2)
    assert (one, first.digest()) == (two, again.digest())
    assert first.digest() != other.digest()


def test_every_kind_that_a_plan_draws_is_one_of_the_store() -> None:
    kinds = {"longest_seconds", "lag_seconds", "near"} ^ {field.name for field in fields(StoreFaults)}
    assert {name for name, _ in StoreFaults(**dict.fromkeys(kinds, 0.01)).kinds()} == kinds - {"slow", "lag"}


KNOWN_STATE = {
    "azure.cosmos._routing.routing_map_provider": 5,
    "azure.cosmos._routing.aio.routing_map_provider": 5,
}
"""How many names of a module hold what all clients of a process share; each was looked at."""


def _is_state(name: str, value: Any) -> bool:
    locks = (asyncio.Lock, type(threading.Lock()), type(threading.RLock()))
    return isinstance(value, locks) or (name.startswith("_shared") and isinstance(value, dict))


def test_the_sdk_shares_no_more_state_than_is_known() -> None:
    sdk_clock.install()  # it imports them all
    found = {
        name: count
        for name, module in sorted(sys.modules.items())
        if name.startswith("azure.cosmos")
        and (count := sum(_is_state(attribute, value) for attribute, value in vars(module).items()))
    }
    assert found == KNOWN_STATE, (
        "a new lock or cache of the process: keep it apart for each instance, or say why not"
    )


def test_no_module_of_the_sdks_asks_the_system_for_time_or_ids() -> None:
    sdk_clock.install()
    real = {id(each) for each in (time, uuid, random, time.time, time.monotonic, uuid.uuid4, formatdate)}
    found = [
        f"{name}.{attribute}"
        for name, module in sorted(sys.modules.items())
        if name.startswith(sdk_clock.PACKAGES) and isinstance(module, types.ModuleType)
        for attribute, value in vars(module).items()
        if id(value) in real
    ]
    assert found == []

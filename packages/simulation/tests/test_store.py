"""The real SDK over a store in memory: what it sends is served, and what befalls a request is what the SDK raises."""

import asyncio
import gc
import random
import sys
import threading
import time
import types
import uuid
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import fields
from email.utils import formatdate, parsedate_to_datetime
from typing import Any, TypeVar

import pytest
from azure.core.exceptions import AzureError, ServiceRequestError, ServiceResponseError
from azure.cosmos import PartitionKey
from azure.cosmos._routing.aio import routing_map_provider
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosHttpResponseError

from cosmos_outbox.kernel import clock
from cosmos_outbox.settings.connections import Connection
from devstack.cosmos.in_memory import in_memory
from infra.bootstrap import service
from outbox_simulation.engine import sdk_clock
from outbox_simulation.engine.bus import Bus
from outbox_simulation.engine.instance import SimulatedInstance
from outbox_simulation.engine.loop import Loop
from outbox_simulation.engine.processes import EPOCH, Ground, Version
from outbox_simulation.engine.store import CALM, SimulatedStore, StoreFaults
from outbox_simulation.engine.trace import RunTrace
from outbox_simulation.judging.history import History

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


def test_the_sdk_writes_reads_and_queries_and_time_is_virtual() -> None:
    began = time.monotonic()

    async def story(ground: Ground, container: ContainerProxy) -> tuple[list[str], float]:
        first = await _write(container, "1")
        await asyncio.sleep(86_400)
        second = await _write(container, "2")
        return await _ids(container), second["_ts"] - first["_ts"]

    (found, age), _ = in_world(story)
    assert found == ["1", "2"]
    assert 86_400 <= age <= 86_402
    assert time.monotonic() - began < 30


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


@pytest.mark.parametrize(
    ("fault", "raised", "done"),
    [
        ("no_connection", ServiceRequestError, False),
        ("lost_before", AzureError, False),
        ("lost_after", AzureError, True),
        ("silent", ServiceResponseError, True),
        ("throttled", CosmosHttpResponseError, False),
        ("unavailable", CosmosHttpResponseError, False),
        ("retry_with", CosmosHttpResponseError, False),
        ("write_forbidden", AzureError, False),
    ],
)
def test_what_befalls_each_request_is_raised_by_the_sdk(
    fault: str, raised: type[Exception], done: bool
) -> None:
    async def story(ground: Ground, container: ContainerProxy) -> tuple[BaseException | None, list[str]]:
        await _write(container, "0")
        ground.store.faults = StoreFaults(**{fault: 1.0})
        error: BaseException | None = None
        try:
            async with asyncio.timeout(600):
                await _write(container, "1")
        except Exception as caught:  # noqa: BLE001 - it is looked at below
            error = caught
        ground.store.faults = CALM
        return error, await _ids(container)

    (error, found), _ = in_world(story)
    assert isinstance(error, (raised, TimeoutError) if fault == "write_forbidden" else raised), repr(error)
    assert found == (["0", "1"] if done else ["0"])


def test_every_kind_that_a_plan_draws_is_one_of_the_store() -> None:
    kinds = {"longest_seconds", "lag_seconds", "near"} ^ {field.name for field in fields(StoreFaults)}
    assert {name for name, _ in StoreFaults(**dict.fromkeys(kinds, 0.01)).kinds()} == kinds - {"slow", "lag"}


def test_what_has_left_is_carried_out_although_its_sender_died() -> None:
    async def story(ground: Ground, container: ContainerProxy) -> list[str]:
        await _write(container, "0")
        instance = SimulatedInstance("api-1", ground.loop.outside())
        ground.store.faults = StoreFaults(slow=1.0, longest_seconds=6.0)
        ground.loop.begin(instance, _write(container, "1"))
        await asyncio.sleep(0.0001)
        ground.loop.crash(instance)
        ground.store.faults = CALM
        await asyncio.sleep(20)
        return await _ids(container)

    found, _ = in_world(story)
    assert found == ["0", "1"]


def test_a_replica_that_lags_is_read_but_never_behind_a_token() -> None:
    async def story(ground: Ground, container: ContainerProxy) -> tuple[int, int]:
        await _write(container, "0")
        await asyncio.sleep(60)
        token = (await _write(container, "1")).get_response_headers()["x-ms-session-token"]
        stranger = ground.clients().cosmos(_connection(ground), None)
        await stranger.__aenter__()  # only then does the SDK send tokens
        theirs = stranger.get_database_client("shop").get_container_client("things")
        ground.store.faults = StoreFaults(lag=1.0, lag_seconds=30.0)
        await asyncio.sleep(1)
        strange = [len(await _ids(theirs)) for _ in range(20)]
        own = [(await theirs.read_item("1", "a", session_token=token))["id"] for _ in range(20)]
        await stranger.close()
        return min(strange), len(own)

    (strange, own), _ = in_world(story)
    assert strange == 1, "who knows nothing may see an old state"
    assert own == 20, "the token is the least that is seen"


def test_a_process_that_dies_with_the_sdks_lock_stops_no_other() -> None:
    """The SDK shares partition ranges and their locks among all clients of one address in a process."""

    async def story(ground: Ground, container: ContainerProxy) -> list[str]:
        await _write(container, "0")
        victim = SimulatedInstance("api-1", ground.loop.outside())

        async def begin() -> None:
            client = ground.clients().cosmos(_connection(ground), None)
            await _ids(client.get_database_client("shop").get_container_client("things"))

        ground.store.faults = StoreFaults(slow=1.0, longest_seconds=6.0)
        ground.loop.begin(victim, begin())
        await asyncio.sleep(3)
        ground.loop.crash(victim)
        ground.store.faults = CALM
        other = ground.clients().cosmos(_connection(ground), None)
        async with asyncio.timeout(60):
            found = await _ids(other.get_database_client("shop").get_container_client("things"))
        await other.close()
        return found

    found, _ = in_world(story)
    assert found == ["0"]
    gc.collect()  # the dead one's client, which nobody closed
    assert not [each for each in routing_map_provider._shared_cache_refcounts if "cosmos.invalid" in each]


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


def test_outside_a_simulation_the_sdks_have_the_systems_clock() -> None:
    sdk_clock.install()
    base: Any = sys.modules["azure.cosmos._base"]
    assert abs(base.time.time() - time.time()) < 5
    assert (
        abs(
            parsedate_to_datetime(base.formatdate(None, localtime=False, usegmt=True)).timestamp()
            - time.time()
        )
        < 5
    )
    assert base.uuid.uuid4() != base.uuid.uuid4()

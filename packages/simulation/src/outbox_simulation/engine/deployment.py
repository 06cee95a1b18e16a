"""Holds what is deployed in a run: the containers, and the processes that use them.

It begins with the processes of its size; code that strikes a process, or replaces one, gets the processes from it.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_outbox.cosmos.store.client import cosmos_client
from cosmos_outbox.preflight.plan import Needed, needed
from cosmos_outbox.service import Wired
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.environment import Settings
from outbox_simulation.engine.host import RelayHost
from outbox_simulation.engine.plan import SimulationPlan
from outbox_simulation.engine.processes import (
    KEY,
    Ground,
    SimulatedProcess,
    Work,
    relay,
    serve_requests,
    subscriber,
)
from outbox_simulation.engine.session_host import SessionHost
from outbox_simulation.engine.storage_queues import StorageQueues
from outbox_simulation.engine.subscriber_host import SubscriberHost

_BEGINS_AGAIN_SECONDS = 5.0
"""The host's delay before it begins another process after one was ended."""


@dataclass(frozen=True)
class Size:
    """The number of processes of each kind; ``slots``: sessions that a subscriber holds at once."""

    hosts: bool = True
    """Whether the Functions host may run in place of a relay worker."""

    apis: int = 2
    relays: int = 2
    subscribers: int = 2
    clients: int = 3
    slots: int = 3
    idle_seconds: float = 5.0
    """A client's longest pause before it asks again."""
    operator_seconds: tuple[float, float] = (0.1, 30.0)
    """The pause between two looks of an operator."""
    strike_seconds: tuple[float, ...] = (5.0, 15.0, 40.0)
    """The mean pauses between two strikes of a kind: one of these is drawn, and no pause is longer than the last."""


class Deployment:
    """The processes, by kind."""

    def __init__(self, plan: SimulationPlan, ground: Ground, settings: Settings) -> None:
        self.settings = settings
        self.ground = ground
        self._plan = plan
        self.apis: list[SimulatedProcess] = []
        self.relays: list[SimulatedProcess] = []
        self.subscribers: list[SimulatedProcess] = []
        self.desks: list[SimulatedProcess] = []
        """The operators' processes; nothing strikes them."""
        self.operators_rest = False
        """Whether they leave parked events alone."""

    def begin(self, size: Size, *, desks: int) -> None:
        """Begins all processes, and this many operators' desks."""
        self.apis = [self._process(f"api-{n}", serve_requests) for n in range(size.apis)]
        hosts = self._plan.hosts if size.hosts else 0
        self.relays = [self._host(f"host-{n}", RelayHost) for n in range(hosts)]
        self.relays += [self._process(f"relay-{n}", relay) for n in range(hosts, size.relays)]
        subscribers = size.subscribers if self.ground.service.subscribers else 0
        hosts = min(self._plan.subscriber_hosts, subscribers)
        self.subscribers = [self._host(f"trigger-{n}", self._receives()) for n in range(hosts)]
        self.subscribers += [
            self._process(f"subscriber-{n}", subscriber(size.slots)) for n in range(hosts, subscribers)
        ]
        names = ["operator", *(f"operator-{n}" for n in range(2, desks + 1))]
        self.desks = [self._process(name, serve_requests) for name in names]

    @property
    def processes(self) -> list[SimulatedProcess]:
        """Returns all processes that can crash."""
        return [*self.apis, *self.relays, *self.subscribers]

    def any_api(self, chance: random.Random) -> SimulatedProcess | None:
        """Returns one that takes requests; None: none does."""
        there = [each for each in self.apis if each.lives]
        return chance.choice(there) if there else None

    def replace_dead(self) -> None:
        """Replaces each process that has crashed."""
        for each in self.processes:
            if not each.instance.alive:
                each.begin()

    async def make_containers(self, anew: Mapping[str, Sequence[Mapping[str, Any]]] | None = None) -> None:
        """Creates containers as a deployment does. ``anew``: only these, replacing the old ones, with items."""
        client = self.world_client()
        database = await client.create_database_if_not_exists(self.settings.cosmos_database)
        for need in needed(self.settings, self.ground.service):
            if anew is not None:
                if need.name not in anew:
                    continue
                await database.delete_container(need.name)
            key = need.partition_key
            made = await database.create_container(
                need.name,
                PartitionKey(path=key) if isinstance(key, str) else PartitionKey(path=key, kind="MultiHash"),
                default_ttl=-1 if need.ttl_needed else None,
                indexing_policy=_indexing(need),
            )
            for item in anew[need.name] if anew else ():
                await made.create_item(dict(item))
        await client.close()

    def world_client(self) -> CosmosClient:
        """Returns a client that belongs to no deployed process."""
        connection = Connection(
            connection_string=f"AccountEndpoint=https://cosmos.invalid:443/;AccountKey={KEY};"
        )
        return cosmos_client(connection, None, session=self.ground.store.session())

    @asynccontextmanager
    async def container(self, name: str) -> AsyncIterator[ContainerProxy]:
        """Yields a container for access past the service."""
        client = self.world_client()
        try:
            yield client.get_database_client(self.settings.cosmos_database).get_container_client(name)
        finally:
            await client.close()

    def _receives(self) -> Callable[..., SubscriberHost]:
        """The Functions host with the transport's trigger."""
        bus, environment = self.ground.bus, self._plan.settings
        if not isinstance(bus, StorageQueues):
            return partial(SessionHost, environment=environment)
        from outbox_simulation.engine.queue_host import HOST_JSON, QueueHost  # noqa: PLC0415 - of an extra

        options = self._plan.chance("host.json").choice(HOST_JSON)
        return partial(QueueHost, environment=environment, http=bus.http, options=options)

    def _host(self, name: str, kind: Callable[..., RelayHost | SubscriberHost]) -> SimulatedProcess:
        chance, loop = self._plan.chance(f"{name} host"), self.ground.loop

        async def work(wired: Wired, stop: asyncio.Event) -> None:
            await kind(wired, stop, chance, self.ground.trace, timed_out).run()

        def timed_out() -> None:
            process.crash()
            loop.call_later(_BEGINS_AGAIN_SECONDS, self.replace_dead, context=loop.outside())

        process = self._process(name, work)
        return process

    def _process(self, name: str, work: Work) -> SimulatedProcess:
        return SimulatedProcess(self.ground, name, work, self._plan.chance(name))


def import_host() -> None:
    """Imports the host's modules before a run, since imports open files. Raises ModuleNotFoundError."""
    from cosmos_outbox.functions import relay, subscription  # noqa: F401, PLC0415 - of an extra
    from devstack.functions import retry, rewriting  # noqa: F401, PLC0415
    from outbox_simulation.engine import queue_host  # noqa: F401, PLC0415


def _indexing(need: Needed) -> Any:
    composite = [[{"path": f"/{part}", "order": "ascending"} for part in index] for index in need.composite]
    return {"includedPaths": [{"path": "/*"}], "compositeIndexes": composite}

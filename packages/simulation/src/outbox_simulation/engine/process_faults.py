"""Injects faults into a deployment from outside: its processes, partitions and leases, servers, clocks.

Each kind comes at its own times, which the plan draws for that kind alone.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from azure.core.exceptions import AzureError

from devstack.cosmos.in_memory import CosmosInMemory
from outbox_simulation.engine.deployment import Deployment
from outbox_simulation.engine.processes import SimulatedProcess
from outbox_simulation.invariants.records import Struck

Strike = Callable[[random.Random], Awaitable[None]]

_LONGEST_PAUSE_SECONDS = 40.0
"""Longer than a lease and a session's lock live."""

_LONGEST_AWAY_SECONDS = (30.0, 30.0, 90.0)
"""The longest outages of the store. The last is longer than a call of a subscriber waits for it."""

_MOST_PARTITIONS = 6

_MOST_SKEW_SECONDS = 300.0


class Strikes:
    """All possible strikes, by kind."""

    def __init__(self, deployment: Deployment, account: CosmosInMemory, others: Mapping[str, Strike]) -> None:
        """``others``: those that are made elsewhere."""
        self._deployment = deployment
        self._ground = deployment.ground
        self._account = account
        self.kinds: Mapping[str, Strike] = {
            "crash": self.crash,
            "pause": self.pause,
            "deploy": self.deploy,
            "split": self.split,
            "lost lease": self.lose_lease,
            "store away": self.store_away,
            "bus away": self.bus_away,
            "skew": self.skew,
            **others,
        }

    async def go_on(
        self, kind: str, chance: random.Random, means: tuple[float, ...], over: Callable[[], bool]
    ) -> None:
        """Strikes now and then until the run is over. ``means``: one is drawn; no wait is longer than the last."""
        strike, mean = self.kinds[kind], chance.choice(means)
        while not over():
            await asyncio.sleep(min(chance.expovariate(1 / mean), means[-1]))
            if not over():
                await strike(chance)
                now = self._ground.loop.time()
                self._ground.history.add([Struck(at=now, fault=kind, target="", seconds=0.0, done=True)])

    async def crash(self, chance: random.Random) -> None:
        """Crashes one process, and replaces it."""
        self.kill(chance.choice(self._deployment.processes), chance.uniform(0.0, 20.0))

    def kill(self, victim: SimulatedProcess, seconds: float) -> None:
        """Crashes it, if it lives, and replaces it after this time."""
        if victim.instance.alive:
            victim.crash()
            self._ground.loop.call_later(seconds, _begin_if_dead, victim)

    async def strike_one(
        self,
        chance: random.Random,
        name: str,
        ways: Sequence[str] = ("crash", "deploy", "deploy", "pause", "lose"),
    ) -> None:
        """Strikes the process of the instance with this name, or the lease that it reads."""
        victim = next((each for each in self._deployment.processes if each.instance.name == name), None)
        way = chance.choice(ways)
        if way == "lose":
            await self.lose_lease(chance)
        elif victim is None or not victim.lives:
            return
        elif way == "crash":
            self.kill(victim, chance.uniform(0.0, 40.0))
        elif way == "pause":
            victim.pause(chance.uniform(1.0, _LONGEST_PAUSE_SECONDS))
        else:
            await victim.deploy()

    async def pause(self, chance: random.Random) -> None:
        """Pauses one process."""
        victim = chance.choice(self._deployment.processes)
        if victim.lives:
            victim.pause(chance.uniform(1.0, _LONGEST_PAUSE_SECONDS))

    async def deploy(self, chance: random.Random) -> None:
        """Stops one process, and replaces it."""
        victim = chance.choice(self._deployment.processes)
        if victim.lives:
            await victim.deploy()

    async def split(self, chance: random.Random) -> None:
        """Splits one physical partition into two."""
        settings = self._deployment.settings
        database, container = settings.cosmos_database, settings.cosmos_container
        parts = self._account.partitions(database, container)
        if len(parts) < _MOST_PARTITIONS:
            part = chance.choice(parts)
            self._account.split(database, container, part)
            self._ground.trace.note("split", container, str(part))

    async def lose_lease(self, chance: random.Random, *, every: bool = False) -> None:
        """Deletes one lease by hand, or every one."""
        with suppress(AzureError):
            async with self._deployment.container(self._deployment.settings.cosmos_lease_container) as leases:
                items = [each async for each in leases.read_all_items()]
                found = [each["id"] for each in items if "Owner" in each or "owner" in each]
                for victim in sorted(found) if every or not found else [chance.choice(sorted(found))]:
                    await leases.delete_item(victim, partition_key=victim)
                    self._ground.trace.note("lost lease", victim)

    async def store_away(self, chance: random.Random) -> None:
        """Makes the store unavailable."""
        self._ground.store.go_away(chance.uniform(0.5, chance.choice(_LONGEST_AWAY_SECONDS)))

    async def bus_away(self, chance: random.Random) -> None:
        """Makes the broker unavailable."""
        self._ground.bus.go_away(chance.uniform(0.5, 60.0))

    async def skew(self, chance: random.Random) -> None:
        """Sets a process's clock, forward or back."""
        victim = chance.choice(self._deployment.processes)
        victim.skew = chance.uniform(-_MOST_SKEW_SECONDS, _MOST_SKEW_SECONDS)
        self._ground.trace.note("clock set", detail=f"{victim.skew:+.1f} s", instance=victim.instance.name)


def _begin_if_dead(process: SimulatedProcess) -> None:
    if not process.instance.alive:
        process.begin()

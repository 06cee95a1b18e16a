"""A service that died is started again on its own port and data: to its clients it was only away for a while.

Only a service that says why it cannot start is given up, since starting it again would not mend that.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from devstack.child import Child, EndedEarly
from devstack.console import Console

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 5.0
STEADY_AFTER_SECONDS = 30.0
"""Who ran for so long is no longer counted as failing in a row."""


@dataclass(frozen=True)
class Recipe:
    """How a service is started: ``ports`` are flags in the order of the addresses on its READY line."""

    name: str
    command: Sequence[str]
    ports: Mapping[str, int]
    environment: Mapping[str, str]


class KeptService:
    """The processes of one service, one after the other."""

    def __init__(self, recipe: Recipe, console: Console) -> None:
        self.name = recipe.name
        self.addresses: list[str] = []
        self._recipe = recipe
        self._console = console
        self._ports = dict(recipe.ports)
        self._child: Child | None = None

    @property
    def ports(self) -> list[int]:
        """The ports it really listens on, in the order of the recipe's."""
        return list(self._ports.values())

    async def start(self) -> None:
        """Start it and wait until it can be used. Raises :class:`CannotStart`."""
        flags = [f"{flag}={port}" for flag, port in self._ports.items()]
        command = [*self._recipe.command, *flags]
        self._child = Child(self.name, command, self._recipe.environment, self._console)
        self.addresses = await self._child.start()
        taken = [int(address.rstrip("/").rpartition(":")[2]) for address in self.addresses]
        self._ports = dict(zip(self._ports, taken, strict=True))

    async def keep(self) -> None:
        """Start it again, with growing pauses, each time it ends. Raises :class:`CannotStart`."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            if await self._run_seconds() > STEADY_AFTER_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            pause = await self._start_again(pause)

    async def stop(self, grace: float) -> None:
        """Let it end by itself for ``grace`` seconds, then end it. Cancel :meth:`keep` before."""
        if self._child is not None:
            await self._child.stop(grace)

    def kill(self) -> None:
        """SIGKILL, without waiting."""
        if self._child is not None:
            self._child.kill()

    async def _run_seconds(self) -> float:
        assert self._child is not None, "the service was never started"
        clock = asyncio.get_running_loop().time
        started = clock()
        how = await self._child.ended()
        await self._child.stop(0)
        self._console.line("devstack", f"{self.name} {how}; it is started again")
        return clock() - started

    async def _start_again(self, pause: float) -> float:
        while True:
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
            try:
                await self.start()
            except EndedEarly as crash:
                self._console.line("devstack", f"{crash}; next try in {pause:g} s")
            else:
                self._console.line("devstack", f"{self.name} is back on {' '.join(self.addresses)}")
                return pause

"""Both workers tell how they are, and stop, in one way: a stop lets what is in hand end, for some seconds."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cosmos_outbox.worker.probes import Vitals

HEALTH_SECONDS = 60.0
"""How often the health line is logged; a failure that goes on is logged with it, not at each attempt."""

DRAIN_SECONDS = 20.0
"""How long a stop waits for what is in hand. Kubernetes kills 30 s after SIGTERM by default."""

_log = logging.getLogger(__name__)


class Health(Vitals, Protocol):
    """How a worker is, for probes and for the log."""

    def line(self) -> str:
        """What was done, and what is in the way."""


@dataclass(frozen=True)
class Several:
    """How several workers of one process are: as the one that is worst."""

    each: Sequence[Vitals]

    @property
    def silent_seconds(self) -> float:
        """Of the slowest."""
        return max((one.silent_seconds for one in self.each), default=0.0)

    @property
    def longest_round_seconds(self) -> float:
        """Of the one that may take longest."""
        return max((one.longest_round_seconds for one in self.each), default=0.0)

    async def trouble(self) -> str | None:
        """Of the first that has any."""
        for one in self.each:
            if reason := await one.trouble():
                return reason
        return None


async def tell_health(health: Health, stop: asyncio.Event) -> None:
    """Log the health line every minute until ``stop`` is set."""
    while not await wait(stop, HEALTH_SECONDS):
        _log.info("health: %s", health.line())


async def wait(stop: asyncio.Event, seconds: float) -> bool:
    """Wait so long, or until ``stop`` is set. Returns whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
    return stop.is_set()

"""Both workers tell how they are, and stop, in one way: a stop lets what is in hand end, for some seconds."""

import asyncio
import contextlib
import logging
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

"""Throttles the log lines of loops, and cuts long work into slices."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from cosmos_outbox.kernel.clock import monotonic

T = TypeVar("T")

REPEAT_SECONDS = 60.0
SLICE = 50
"""About a millisecond's work, for items of some ten microseconds each."""


@dataclass
class LogThrottle:
    """Decides when a condition that goes on is logged again: once a minute, not at each attempt."""

    _said_at: float = field(default=float("-inf"), repr=False)

    def due(self) -> bool:
        """Returns True at the first call, then at the first one a minute or more later."""
        now = monotonic()
        if now - self._said_at < REPEAT_SECONDS:
            return False
        self._said_at = now
        return True

    def reset(self) -> None:
        """Note that the condition is over: the next one is logged at once."""
        self._said_at = float("-inf")


async def pace(items: Iterable[T]) -> AsyncIterator[list[T]]:
    """Yield the items in slices; between two, other tasks send a page or renew a lease."""
    rest = iter(items)
    while some := list(islice(rest, SLICE)):
        yield some
        await asyncio.sleep(0)

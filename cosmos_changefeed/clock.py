"""The clock of a processor, its only source of time: a test replaces it.

Waits use the event loop's time: if the two clocks run differently, leases expire too early or too late.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


def _system_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Clock:
    """Returns the time; by default the system's."""

    now: Callable[[], datetime] = _system_now
    """The wall clock (UTC, with its zone), for times that other instances read."""
    monotonic: Callable[[], float] = time.monotonic
    """Seconds from an arbitrary start; never goes back."""


SYSTEM = Clock()

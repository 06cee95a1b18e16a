"""A processor gets the time from the clock that it was given, and from nothing else: a test gives it another.

Waits are the event loop's: a clock that does not run as the loop's does lets leases expire too early or too late.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


def _system_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Clock:
    """Tells the time; by default the system's."""

    now: Callable[[], datetime] = _system_now
    """The wall clock (UTC, with its zone), for what other instances read."""
    monotonic: Callable[[], float] = time.monotonic
    """Seconds from some beginning; never goes back."""


SYSTEM = Clock()

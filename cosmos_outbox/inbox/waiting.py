"""How many effects wait is one number, whatever keeps them: entries that are open, and messages that are set aside."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Waiting:
    """Effects that were begun and not ended, or wait for something, as a store tells them."""

    number: int = 0
    since: datetime | None = None
    """The oldest; None: there is none."""


Open = Callable[[], Awaitable[Waiting]]
"""What of a subscriber's effects is open beside the messages that are set aside. Raises StoreAway."""

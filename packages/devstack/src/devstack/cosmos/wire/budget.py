"""A budget of RU a second: a client that has spent more than came in is answered when to come back.

As in the service, a request is let in while anything is left and charged afterwards: the budget may go below zero.
"""

import math
import time
from collections.abc import Callable

from devstack.cosmos.protocol.errors import TOO_MANY_REQUESTS, CosmosError


class Budget:
    """``rate`` RU come in each second, and at most one second's worth is kept."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._left = rate
        self._seen = clock()

    def admit(self) -> None:
        """Raises 429 with the time to wait."""
        now = self._clock()
        self._left = min(self._rate, self._left + (now - self._seen) * self._rate)
        self._seen = now
        if self._left <= 0:
            wait = math.ceil(-self._left / self._rate * 1000) + 1
            raise CosmosError(
                TOO_MANY_REQUESTS, "The request rate is large.", {"x-ms-retry-after-ms": str(wait)}
            )

    def charge(self, units: float) -> None:
        self._left -= units

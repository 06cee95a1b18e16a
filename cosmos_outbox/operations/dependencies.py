"""Whether the store and the broker can be used now, as this process sees them; many who ask cost one look each.

A look changes nothing: the store's container is read, and a sender is opened at the topic, as the relay opens one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from cosmos_outbox.outbox.errors import OutboxError
from cosmos_outbox.settings.errors import InfraError

LOOK_SECONDS = 6.0
"""The longest that one look may take."""

AGE_SECONDS = 5.0
"""How old an answer may be: a page asks every few seconds, and each look opens a connection to the broker."""


@dataclass(frozen=True)
class DependencyHealth:
    """What one look found."""

    name: str
    ok: bool
    milliseconds: int
    """How long the look took."""
    detail: str | None
    """Why the service cannot be used, in words for an operator; None: it can."""


@dataclass
class Dependency:
    """One service that this process needs."""

    name: str
    check: Callable[[], Awaitable[None]]
    """Returns if the service can be used. Raises an OutboxError or an InfraError."""
    age_seconds: float = AGE_SECONDS
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    _last: tuple[float, DependencyHealth] | None = field(default=None, repr=False)

    async def health(self) -> DependencyHealth:
        """The newest look, which ended at most ``age_seconds`` ago. Raises nothing: an outage is an answer."""
        async with self._looking:
            clock = asyncio.get_running_loop().time
            if self._last is None or clock() - self._last[0] >= self.age_seconds:
                found = await self._look(clock())
                self._last = clock(), found  # a look may take longer than its answer is good for
            return self._last[1]

    async def _look(self, began: float) -> DependencyHealth:
        detail = None
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self.check()
        except TimeoutError:
            detail = f"does not answer within {LOOK_SECONDS:g} s"
        except (OutboxError, InfraError) as error:
            detail = str(error)
        took = asyncio.get_running_loop().time() - began
        return DependencyHealth(self.name, detail is None, round(1000 * took), detail)

"""Whether the store and the broker can be used now, as this process sees them; many who ask cost one look each.

A look changes nothing: the store's container is read, and a sender is opened at the topic, as the relay opens one. What
is told of the broker is one round trip over the open connection: a relay does not open one for each send.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from cosmos_outbox.kernel.clock import monotonic
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
    """How long one round trip took; or the whole look, where that is all that is known."""
    detail: str | None
    """Why the service cannot be used, in words for an operator; None: it can."""


@dataclass
class Dependency:
    """One service that this process needs."""

    name: str
    check: Callable[[], Awaitable[float | None]]
    """Returns if the service can be used: the seconds of one round trip, None for those of the whole look. Raises an
    OutboxError or an InfraError."""
    age_seconds: float = AGE_SECONDS
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)
    _last: tuple[float, DependencyHealth] | None = field(default=None, repr=False)

    async def health(self) -> DependencyHealth:
        """The newest look, which ended at most ``age_seconds`` ago. Raises nothing: an outage is an answer."""
        async with self._looking:
            if self._last is None or monotonic() - self._last[0] >= self.age_seconds:
                found = await self._look(monotonic())
                self._last = monotonic(), found  # a look may take longer than its answer is good for
            return self._last[1]

    async def _look(self, began: float) -> DependencyHealth:
        detail, took = None, None
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                took = await self.check()
        except TimeoutError:
            detail = f"does not answer within {LOOK_SECONDS:g} s"
        except (OutboxError, InfraError) as error:
            detail = str(error)
        if took is None:
            took = monotonic() - began
        return DependencyHealth(self.name, detail is None, round(1000 * took), detail)

"""Checks whether the store and the broker can be used now from this process; concurrent callers share a check.

A look changes nothing: the store's container is read, and a sender is opened at the topic, as the relay opens one. What
is known of the broker is one round trip over the open connection: a relay does not open one for each send.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from cosmos_outbox.inbox.errors import InboxError
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.errors import OutboxError
from cosmos_outbox.settings.errors import InfraError

LOOK_SECONDS = 6.0
"""The maximum time of one check of a dependency."""

AGE_SECONDS = 5.0
"""How old its answer may be: a page asks every few seconds, and each look opens a connection to the broker."""

HEALTH_SECONDS = 2.0
"""How old the answer of the health function may be: the function is open, and each look at the store costs."""

T = TypeVar("T")


class RecentCheck(Generic[T]):
    """Caches for some seconds the result of a check, or its error, and lets no two run at once.

    So callers who ask often do not make an expensive check run often.
    """

    def __init__(self, check: Callable[[], Awaitable[T]], *, seconds: float) -> None:
        self._check, self._seconds = check, seconds
        self._checking = asyncio.Lock()
        self._last: tuple[float, T | Exception] | None = None

    async def __call__(self) -> T:
        """Returns what the newest check returned. Raises what it raised."""
        async with self._checking:
            if self._last is None or monotonic() - self._last[0] >= self._seconds:
                try:
                    found: T | Exception = await self._check()
                except (OutboxError, InboxError, InfraError) as error:
                    found = error
                self._last = monotonic(), found  # a check may take longer than its answer is good for
            found = self._last[1]
        if isinstance(found, Exception):
            raise found.with_traceback(None)  # else it would collect the tracebacks of all who get it
        return found


@dataclass(frozen=True)
class DependencyHealth:
    """The result of one check."""

    name: str
    ok: bool
    milliseconds: int
    """The time of one round trip; or of the whole check, where only that is known."""
    detail: str | None
    """The reason why the service cannot be used, for an operator; None: it can."""


class Dependency:
    """One service that this process needs."""

    def __init__(self, name: str, check: Callable[[], Awaitable[float | None]]) -> None:
        """``check`` returns the seconds of one round trip, None: those of the whole look. Raises an
        OutboxError or an InfraError."""
        self.name, self._check = name, check
        self._recent = RecentCheck(self._look, seconds=AGE_SECONDS)

    async def health(self) -> DependencyHealth:
        """The newest look, which ended at most ``AGE_SECONDS`` ago. Raises nothing: an outage is an answer."""
        return await self._recent()

    async def _look(self) -> DependencyHealth:
        began, detail, took = monotonic(), None, None
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                took = await self._check()
        except TimeoutError:
            detail = f"does not answer within {LOOK_SECONDS:g} s"
        except (OutboxError, InfraError) as error:
            detail = str(error)
        if took is None:
            took = monotonic() - began
        return DependencyHealth(self.name, detail is None, round(1000 * took), detail)

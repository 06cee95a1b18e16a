"""An answer that many ask for is had once: a call that costs something cannot be made dear by who asks often."""

import asyncio
from collections.abc import Awaitable, Callable

from cosmos_outbox.inbox.errors import InboxError
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.errors import OutboxError
from cosmos_outbox.settings.errors import InfraError


class Recent:
    """Remembers for some seconds whether ``check`` succeeded, and with which error it failed."""

    def __init__(self, check: Callable[[], Awaitable[None]], *, seconds: float) -> None:
        self._check = check
        self._seconds = seconds
        self._looking = asyncio.Lock()
        self._looked_at = float("-inf")
        self._failure: Exception | None = None

    async def __call__(self) -> None:
        """Return if the newest check succeeded. Raises what it raised."""
        async with self._looking:
            if monotonic() - self._looked_at >= self._seconds:
                self._failure = await self._look()
                self._looked_at = monotonic()  # a look may take longer than its answer is good for
        if self._failure is not None:
            raise _again(self._failure) from self._failure

    async def _look(self) -> Exception | None:
        try:
            await self._check()
        except (OutboxError, InboxError, InfraError) as error:
            return error
        return None


def _again(error: Exception) -> Exception:
    """An error that says the same: one that is raised often collects the tracebacks of all who got it.

    Made without its constructor, which may need more than ``args``; so ``copy`` cannot do it.
    """
    again: Exception = type(error).__new__(type(error), *error.args)
    vars(again).update(vars(error))
    return again

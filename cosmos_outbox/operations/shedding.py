"""Refuses changes while the relay is far behind, so that no event expires and no subscriber is overloaded; reads go on.

The age of the oldest waiting event is read in the background, by one task of a process at a time and only while
requests come: no request waits for it, and many requests cost one look. An age that is not known, because nobody has
looked yet, the look fails, or is too long ago, refuses nobody (rule ``unknown-lets-through``): a store that cannot be
read says nothing about the relay, and refuses writers by itself.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from cosmos_outbox.kernel.clock import monotonic, randomness
from cosmos_outbox.kernel.loops import LogThrottle
from cosmos_outbox.outbox.errors import OutboxError
from cosmos_outbox.settings.errors import InfraError, Overloaded
from cosmos_outbox.telemetry.tracing import of_no_request

LOOK_SECONDS = 5.0
"""The shortest pause between checks of a process; each costs a query of the leases, and one small read for each."""

TRUST_SECONDS = 30.0
"""How long the last result counts if the checks after it fail."""

RESUME_SHARE = 0.8
"""Refused writers are let in again below this share of the limit, so that it does not change with each look."""

RETRY_SECONDS = 10, 30
"""Each refused caller gets another time, so that not all come back at once."""

_log = logging.getLogger(__name__)


class LoadShedder:
    """Decides whether a change is accepted."""

    def __init__(
        self, oldest_waiting_seconds: Callable[[], Awaitable[float]], after_seconds: int | None
    ) -> None:
        """``after_seconds``: from which age of the oldest waiting event on; None: every change is let in."""
        self._oldest_waiting_seconds = oldest_waiting_seconds
        self._after = after_seconds
        self._refusing = False
        self._looked_at = self._known_at = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self._throttle = LogThrottle()

    def check(self) -> None:
        """Return if a change is accepted; call it before anything is stored. Never waits. Raises Overloaded."""
        if self._after is None:
            return
        now = monotonic()
        if now - self._looked_at >= LOOK_SECONDS and (self._looking is None or self._looking.done()):
            self._looked_at = now
            # What the look logs belongs to no request.
            self._looking = asyncio.get_running_loop().create_task(
                self._look(self._after), context=of_no_request()
            )
        if self._refusing and now - self._known_at <= TRUST_SECONDS:
            raise Overloaded(
                "the service is behind with its events and takes no changes for now. Nothing was stored: send the "
                "same request again after Retry-After",
                retry_after_seconds=randomness().uniform(*RETRY_SECONDS),
            )

    async def close(self) -> None:
        """End a running check of the age."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    async def _look(self, after: int) -> None:
        try:
            age = await self._oldest_waiting_seconds()
        except (OutboxError, InfraError) as error:
            if self._throttle.due():
                _log.warning("how long events wait is not known, so no change is refused for it: %s", error)
            return
        self._throttle.reset()
        self._known_at = monotonic()
        refusing = age >= after * (RESUME_SHARE if self._refusing else 1)
        if refusing and not self._refusing:
            _log.error(
                "the oldest event has waited %.0f s: changes are answered 503 until it is less than %.0f s "
                "(SHED_LOAD_AFTER_SECONDS). See GET /api/relay for what is in the way",
                age,
                after * RESUME_SHARE,
            )
        elif self._refusing and not refusing:
            _log.warning("the oldest event has waited %.0f s: changes are taken again", age)
        self._refusing = refusing

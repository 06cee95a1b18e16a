"""Time in a test: it goes on by itself, and passes at once where the test, or the library, waits."""

import asyncio
from datetime import datetime, timedelta

from cosmos_outbox.kernel.clock import utc_now


class Clock:
    """Tells the time in UTC, from ``now`` on."""

    def __init__(self, now: datetime | None = None) -> None:
        self._ahead = timedelta() if now is None else now - utc_now()
        self._passed = 0.0

    def __call__(self) -> datetime:
        """The time now."""
        return utc_now() + self._ahead + timedelta(seconds=self._passed)

    def pass_by(self, **time: float) -> None:
        """Let time pass at once: ``pass_by(minutes=5)``, with the words of :class:`datetime.timedelta`."""
        self._passed += timedelta(**time).total_seconds()

    async def sleep(self, seconds: float) -> None:
        """For the library: as :func:`asyncio.sleep`, without waiting."""
        self._passed += seconds
        await asyncio.sleep(0)

    def monotonic(self) -> float:
        """For the library: the time of the running loop's clock."""
        return asyncio.get_running_loop().time() + self._passed

"""Time in a test: it goes on by itself, and passes at once where the test, or the library, waits."""

import asyncio
import random
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from cosmos_outbox.kernel.clock import Sources, sources


class Clock:
    """Tells the time in UTC, from ``now`` on."""

    def __init__(self, now: datetime | None = None) -> None:
        self._real = sources()
        self._ahead = timedelta() if now is None else now - self._real.now()
        self._passed = 0.0

    def __call__(self) -> datetime:
        """The time now."""
        return self._real.now() + self._ahead + timedelta(seconds=self._passed)

    def pass_by(self, **time: float) -> None:
        """Let time pass at once: ``pass_by(minutes=5)``, with the words of :class:`datetime.timedelta`."""
        self._passed += timedelta(**time).total_seconds()

    async def sleep(self, seconds: float) -> None:
        """For the library: as :func:`asyncio.sleep`, without waiting."""
        self._passed += seconds
        await asyncio.sleep(0)

    def monotonic(self) -> float:
        """For the library: seconds that pass as this clock's do."""
        return self._real.monotonic() + self._passed

    def seeded(self, seed: int) -> Sources:
        """For :func:`cosmos_outbox.kernel.clock.using`: this time, and the same ids and luck for the same seed."""
        ids, luck = random.Random(f"ids {seed}"), random.Random(f"luck {seed}")  # noqa: S311 - to be foreseen
        return Sources(
            self, self.monotonic, lambda: UUID(int=ids.getrandbits(128), version=4), luck, lambda: "test",
            sleep=self.sleep,
        )  # fmt: skip

    def sources(self) -> Sources:
        """For the same: this time, with the ids and the luck of the system."""
        return replace(self._real, now=self, monotonic=self.monotonic, sleep=self.sleep)

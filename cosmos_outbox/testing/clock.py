"""A test's clock: it runs as real time does, and jumps ahead if the test, or the library, waits."""

import asyncio
import random
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from cosmos_outbox.kernel.clock import Sources, sources


class Clock:
    """Returns the time in UTC, starting at ``now``."""

    def __init__(self, now: datetime | None = None) -> None:
        self._real = sources()
        self._ahead = timedelta() if now is None else now - self._real.now()
        self._passed = 0.0

    def __call__(self) -> datetime:
        """Returns the time now."""
        return self._real.now() + self._ahead + timedelta(seconds=self._passed)

    def pass_by(self, **time: float) -> None:
        """Move the clock ahead: ``pass_by(minutes=5)``, with the arguments of :class:`datetime.timedelta`."""
        self._passed += timedelta(**time).total_seconds()

    async def sleep(self, seconds: float) -> None:
        """For the library: like :func:`asyncio.sleep`, but the clock jumps ahead instead of waiting."""
        self._passed += seconds
        await asyncio.sleep(0)

    def monotonic(self) -> float:
        """For the library: returns the seconds of this clock since an arbitrary start."""
        return self._real.monotonic() + self._passed

    def seeded(self, seed: int) -> Sources:
        """For :func:`cosmos_outbox.kernel.clock.using`: this clock, with ids and random numbers drawn from the seed."""
        ids, luck = random.Random(f"ids {seed}"), random.Random(f"luck {seed}")  # noqa: S311 - reproducible
        return Sources(
            self, self.monotonic, lambda: UUID(int=ids.getrandbits(128), version=4), luck, lambda: "test",
            sleep=self.sleep,
        )  # fmt: skip

    def sources(self) -> Sources:
        """For the same: this clock, with the system's ids and random numbers."""
        return replace(self._real, now=self, monotonic=self.monotonic, sleep=self.sleep)

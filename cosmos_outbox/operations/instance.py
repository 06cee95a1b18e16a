"""What one process has done: other instances have done more, and only the leases tell what all did together.

The rate is counted here, over the last seconds, because two answers to one caller may come from two instances.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from cosmos_outbox.kernel.clock import monotonic, new_id, utc_now

WINDOW_SECONDS = 10
"""Over how many whole seconds a rate is taken."""

Setting = str | int | bool | None


@dataclass
class Tally:
    """Counts events, and how many came a second."""

    total: int = 0
    _seconds: deque[tuple[int, int]] = field(default_factory=deque, repr=False)
    """Each second in which something came, with the number; no older than the window."""

    def add(self, count: int) -> None:
        """So many more."""
        self.total += count
        now = int(monotonic())
        if self._seconds and self._seconds[-1][0] == now:
            count += self._seconds.pop()[1]
        self._seconds.append((now, count))
        self._forget(now)

    @property
    def per_second(self) -> float:
        """The mean over the last whole seconds; the second that is under way does not count."""
        now = int(monotonic())
        self._forget(now)
        return sum(count for second, count in self._seconds if second < now) / WINDOW_SECONDS

    def _forget(self, now: int) -> None:
        while self._seconds and self._seconds[0][0] < now - WINDOW_SECONDS:
            self._seconds.popleft()


@dataclass(frozen=True)
class Instance:
    """This process."""

    settings: Mapping[str, Setting]
    """The settings that matter, without secrets: see :func:`cosmos_outbox.settings.environment.shown`."""
    id: str = field(default_factory=lambda: new_id().hex[:8])
    """Another one after each start."""
    started_at: datetime = field(default_factory=utc_now)
    forwarded: Tally = field(default_factory=Tally)
    """Events that the broker has accepted from this process."""

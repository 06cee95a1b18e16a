"""Counts the work and the failures of a subscription's slots, and measures how long each has been silent."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.kernel.loops import LogThrottle

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0

_log = logging.getLogger(__name__)


async def wait(stop: asyncio.Event, seconds: float) -> bool:
    """Waits for this time, or until ``stop`` is set. Returns whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
    return stop.is_set()


@dataclass
class SlotHealth:
    """The health of one subscription's slots: its work and its failures, for probes and a health line."""

    received: int = 0
    sessions: int = 0
    """The number of sessions that are held now."""
    waiting_for: str | None = None
    """The reason why no message is received."""
    beats: dict[object, float] = field(default_factory=dict)
    """The time when each slot last asked for messages or handled one: a loop that fails each time still beats, one that
    hangs does not."""
    _failing_since: float | None = None
    _logged: bool = False
    _throttle: LogThrottle = field(default_factory=LogThrottle)

    @contextmanager
    def slot(self) -> Iterator[Callable[[], None]]:
        """Watch one slot during the block; the block calls the function that it is given at each round."""
        slot = object()

        def beat() -> None:
            self.beats[slot] = monotonic()

        beat()
        try:
            yield beat
        finally:
            del self.beats[slot]

    @property
    def silent_seconds(self) -> float:
        """The seconds since the last beat of the slowest slot."""
        return monotonic() - min(self.beats.values()) if self.beats else 0.0

    def failed(self, reason: str, *, opening: bool) -> float:
        """Note a failure; returns the seconds to wait: as long as the failures have lasted, within bounds.

        A failing session affects that session alone. A continuing failure is logged once, and in the health line.
        """
        again, now = self._failing_since is not None, monotonic()
        if self._failing_since is None:
            self._failing_since, self._logged = now, self._throttle.due()
            if self._logged:
                _log.warning("messages wait: %s", reason)
        if opening or again:
            self.waiting_for = reason
        return min(max(_FIRST_PAUSE_SECONDS, now - self._failing_since), _LONGEST_PAUSE_SECONDS)

    def came_through(self) -> None:
        """Note that the broker answered: with a message, or with none."""
        if self._logged:
            _log.info("messages are received again")
        self.waiting_for, self._failing_since, self._logged = None, None, False

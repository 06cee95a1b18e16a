"""No request leaves before its turn: the target's rate is kept, and the pauses that it asks for."""

import asyncio
from dataclasses import dataclass, field

from cosmos_outbox.kernel.clock import monotonic, randomness

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 300.0
_DOUBLINGS = 16


def growing(failures: int, longest: float = LONGEST_PAUSE_SECONDS) -> float:
    """The pause after so many failures in a row (seconds): twice as long each time, and no two senders' alike."""
    pause = FIRST_PAUSE_SECONDS * 2.0 ** min(max(0, failures - 1), _DOUBLINGS)
    return min(pause, longest) * randomness().uniform(0.75, 1.25)


@dataclass
class Pace:
    """When the next request of a target may leave; shared by all who send there."""

    rate: int
    """Requests a second; 0: no limit."""
    _held_until: float = 0.0
    _next: float = 0.0
    _busy: int = field(default=0, repr=False)
    """How many times in a row the target said that there are too many requests."""

    async def turn(self, until: float) -> bool:
        """Wait for the turn of one request. False: it would come after ``until``, by the monotonic clock."""
        while True:
            at = max(now := monotonic(), self._held_until, self._next)
            if at > until:
                return False
            if self.rate:
                self._next = at + 1.0 / self.rate
            await asyncio.sleep(at - now)
            if self._held_until <= monotonic():  # else a pause was asked for meanwhile
                return True

    def busy(self, seconds: float | None) -> None:
        """The target asks for a pause; None: it does not say how long."""
        self._busy += 1
        pause = growing(self._busy)
        if seconds is not None:
            pause = seconds + min(1.0, pause) * randomness().random()
        self._held_until = max(self._held_until, monotonic() + pause)

    def accepted(self) -> None:
        """The target takes requests."""
        self._busy = 0

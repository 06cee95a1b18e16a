"""A peer that has gone silent is noticed, and one that listens hears from us in time: by times that the caller gives.

Source: OASIS AMQP 1.0 part 2, 2.4.5.
"""

import math

HEARTBEAT_SECONDS = 4.0
"""A client hears from us at least so often: the sync SDK's keep-alive thread waits for a frame with its lock held."""

HANDSHAKE_SECONDS = 30.0


class Liveness:
    """Times of one connection, in seconds of any clock that does not go back."""

    def __init__(self, idle_seconds: float, now: float) -> None:
        self._idle_seconds = idle_seconds
        self._last_heard = now
        self._open_until = now + HANDSHAKE_SECONDS
        self._beat_seconds = math.inf
        self._beat_at = math.inf

    @property
    def announced_ms(self) -> int:
        """The idle time-out that is sent to the client: half of the real one, as AMQP advises."""
        return int(self._idle_seconds * 500)

    @property
    def deadline(self) -> float:
        """When something is due next."""
        return min(self._last_heard + self._idle_seconds, self._open_until, self._beat_at)

    def heard(self, now: float) -> None:
        """The client sent something."""
        self._last_heard = now

    def opened(self, wanted_ms: int | None, now: float) -> None:
        """Heartbeats begin, twice in the time that the client gives us to be silent, or more often."""
        self._open_until = math.inf
        seconds = HEARTBEAT_SECONDS if wanted_ms is None else min(HEARTBEAT_SECONDS, wanted_ms / 2000)
        self._beat_seconds = max(0.01, seconds)
        self._beat_at = now

    def is_late_to_open(self, now: float) -> bool:
        return now >= self._open_until

    def is_silent(self, now: float) -> bool:
        """Whether the client was inactive for longer than its idle time-out."""
        return now >= self._last_heard + self._idle_seconds

    def must_beat(self, now: float) -> bool:
        """Whether a heartbeat is due; the next one is reckoned from now."""
        if now < self._beat_at:
            return False
        self._beat_at = now + self._beat_seconds
        return True

"""Measures the time since a loop's last round, which distinguishes a loop that hangs from one that fails each time."""

from cosmos_changefeed.clock import SYSTEM, Clock


class Heartbeat:
    """The time of a loop's last round, and whether that round failed."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self.failed = False
        """Whether the last round failed."""
        self._at = self._clock.monotonic()

    @property
    def silent_seconds(self) -> float:
        """The seconds since the end of the last round, or since the loop began."""
        return self._clock.monotonic() - self._at

    def beat(self, *, failed: bool = False) -> None:
        """Note the end of a round."""
        self.failed = failed
        self._at = self._clock.monotonic()

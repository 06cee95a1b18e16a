"""A loop that goes round, even one that fails each time, differs from a loop that hangs: the time of a round tells."""

import logging
from dataclasses import dataclass, field

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.once_a_minute import OnceAMinute

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0

_log = logging.getLogger(__name__)


class Pulse:
    """When a loop last came round, and whether that round failed."""

    def __init__(self) -> None:
        self.failed = False
        """Whether the last round failed."""
        self._at = monotonic()

    @property
    def silent_seconds(self) -> float:
        """Since the end of the last round, or since the loop began."""
        return monotonic() - self._at

    def beat(self, *, failed: bool = False) -> None:
        """Note the end of a round."""
        self.failed = failed
        self._at = monotonic()


@dataclass
class Work:
    """What the slots of one subscription have done and met, for probes and a health line."""

    received: int = 0
    sessions: int = 0
    """How many are held at this moment."""
    waiting_for: str | None = None
    """Why no message is received."""
    pulses: list[Pulse] = field(default_factory=list)
    """One for each slot: it beats whenever messages were asked for, and with each message."""
    _failing_since: float | None = None
    _told: bool = False
    _saying: OnceAMinute = field(default_factory=OnceAMinute)

    def failed(self, reason: str, *, opening: bool) -> float:
        """Note a failure; how long to wait after it, in seconds: as long as nothing but failures was met before it.

        One session that fails hits that session alone. What goes on is told once, and by the health line.
        """
        again, now = self._failing_since is not None, monotonic()
        if self._failing_since is None:
            self._failing_since, self._told = now, self._saying.due()
            if self._told:
                _log.warning("messages wait: %s", reason)
        if opening or again:
            self.waiting_for = reason
        return min(max(_FIRST_PAUSE_SECONDS, now - self._failing_since), _LONGEST_PAUSE_SECONDS)

    def came_through(self) -> None:
        """Note that the broker did as it was asked: it gave a message, or had none."""
        if self._told:
            _log.info("messages are received again")
        self.waiting_for, self._failing_since, self._told = None, None, False

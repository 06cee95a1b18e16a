"""A condition that goes on is logged once a minute, not at each attempt."""

from dataclasses import dataclass, field

from cosmos_outbox.kernel.clock import monotonic

REPEAT_SECONDS = 60.0


@dataclass
class OnceAMinute:
    """Tells when a condition that goes on is to be logged again."""

    _said_at: float = field(default=float("-inf"), repr=False)

    def due(self) -> bool:
        """True at the first call, then at the first one a minute or more later."""
        now = monotonic()
        if now - self._said_at < REPEAT_SECONDS:
            return False
        self._said_at = now
        return True

    def reset(self) -> None:
        """The condition is over: the next one is logged at once."""
        self._said_at = float("-inf")

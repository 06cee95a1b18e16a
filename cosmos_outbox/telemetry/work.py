"""Counts what the slots of a subscription do, and since when each of them is silent."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.kernel.loops import OnceAMinute

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0

_log = logging.getLogger(__name__)


@dataclass
class Work:
    """What the slots of one subscription have done and met, for probes and a health line."""

    received: int = 0
    sessions: int = 0
    """How many are held at this moment."""
    waiting_for: str | None = None
    """Why no message is received."""
    beats: dict[object, float] = field(default_factory=dict)
    """When each slot last asked for messages or handled one: a loop that fails each time goes on, one that hangs is
    silent."""
    _failing_since: float | None = None
    _told: bool = False
    _saying: OnceAMinute = field(default_factory=OnceAMinute)

    @contextmanager
    def slot(self) -> Iterator[Callable[[], None]]:
        """Watch one slot during the block, which calls what it is given whenever it comes round."""
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
        """Since the slowest slot came round."""
        return monotonic() - min(self.beats.values()) if self.beats else 0.0

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

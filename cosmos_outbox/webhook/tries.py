"""An event that fails where others are taken is told as failing, however few tries one page of the feed has room for.

A receiver that hangs, or asks for a long pause, at one event leaves no time for several tries in a page. A firewall
before it may refuse one event for its words, with an answer that otherwise speaks of the whole target; a limit may be
one tenant's alone. So what became of an event's tries is remembered from page to page, in this process.
"""

from dataclasses import dataclass, field

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.webhook.answers import Meaning

ATTEMPTS = 3
"""So many times an event is tried before it is told as failing."""

ALONE_SECONDS = 3_600.0
"""After so long an event that nobody takes is told as failing though nothing else was taken: it may be all there is."""

BUSY_SECONDS = 600.0
"""After so long an event for which the target is too busy is told as failing, if others were taken between its tries:
a limit of the whole target lets each one through sooner."""

_MOST_REMEMBERED = 10_000
"""So many events are known to have failed; with more, counting begins anew."""


@dataclass
class _Tried:
    since: float
    taken_at_first: int
    """How many events the target had taken when it was first asked to take this one."""
    failed: int = 0
    refused: int = 0
    """How often it was refused as if the target were wrong or too busy, each time after others were taken."""
    taken_before: int = -1
    """How many events the target had taken when it refused this one last."""


@dataclass
class Tries:
    """Of the events of one target, by their ids."""

    _taken: int = 0
    _tried: dict[str, _Tried] = field(default_factory=dict, repr=False)

    def begins(self, event_id: str) -> None:
        """The target is asked to take it."""
        self._of(event_id)

    def taken(self, event_id: str) -> None:
        """The target has it."""
        self._taken += 1
        self._tried.pop(event_id, None)

    def refused_for_good(self, event_id: str) -> None:
        """It is not tried again."""
        self._tried.pop(event_id, None)

    def failed(self, event_id: str) -> int:
        """Count a failure that says nothing of the target. Returns how many there were; after ``ATTEMPTS`` anew."""
        tried = self._of(event_id)
        tried.failed += 1
        if tried.failed >= ATTEMPTS:
            del self._tried[event_id]
        return tried.failed

    def is_alone(self, event_id: str, told: Meaning) -> bool:
        """Count an answer that speaks of the target. Whether it rather speaks of the event: others are taken."""
        tried = self._of(event_id)
        if tried.taken_before < self._taken:
            tried.refused, tried.taken_before = tried.refused + 1, self._taken
        often, seconds = tried.refused >= ATTEMPTS, monotonic() - tried.since
        return (
            often and seconds >= BUSY_SECONDS if told is Meaning.BUSY else often or seconds >= ALONE_SECONDS
        )

    def others_taken(self, event_id: str) -> bool:
        """Whether the target took others since it was first asked to take this one."""
        tried = self._tried.get(event_id)
        return tried is not None and tried.taken_at_first < self._taken

    def in_vain(self, event_id: str) -> int:
        """How often the event was tried. One that was not, shows best whether the target works."""
        tried = self._tried.get(event_id)
        return tried.failed + tried.refused if tried else 0

    def _of(self, event_id: str) -> _Tried:
        if event_id not in self._tried and len(self._tried) >= _MOST_REMEMBERED:
            self._tried.clear()
        return self._tried.setdefault(event_id, _Tried(monotonic(), self._taken))

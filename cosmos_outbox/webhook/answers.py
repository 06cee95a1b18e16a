"""Classifies a receiver's response as about one event, about the whole target, or temporary.

A response about the event parks it. One about the target stops all sends to it, and parks nothing. All others are
temporary: the send is retried without limit.

An event that fails while others are accepted is reported as failing, even if a page of the feed has time for few tries:
a receiver that hangs at one event, or requests a long pause, leaves no time for several tries in a page. A firewall may
refuse one event for its content with a status that otherwise concerns the whole target; a limit may concern one tenant
only. So the tries of an event are counted across pages, in this process.
"""

from dataclasses import field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.kernel.dataclass import dataclass

LONGEST_WAIT_SECONDS = 3_600.0
"""The longest pause that is honoured: a wrong date from the receiver must not stop its events for a year."""


class Meaning(Enum):
    """The meaning of a response for the event that was sent."""

    ACCEPTED = "the receiver has it"
    EVENT = "the receiver will never take this event"
    TARGET = "the receiver refuses whatever is sent, until somebody corrects it or the settings"
    BUSY = "there were too many requests"
    LATER = "it failed, and may work later"


_OF_THE_EVENT = {400, 413, 422, 431}
"""431: the headers are too large because of the event's attributes."""
_PASSING = {408, 409, 423, 424, 425}
"""Timeout, conflict, locked, failed dependency, too early: temporary states."""
_BUSY = {429}


def meaning(status: int) -> Meaning:
    """Returns the meaning of a status. Every other 4xx, and any 3xx (no redirect is followed), concerns the target."""
    if 200 <= status < 300:
        return Meaning.ACCEPTED
    if status in _OF_THE_EVENT:
        return Meaning.EVENT
    if status in _BUSY:
        return Meaning.BUSY
    if status in _PASSING or not 300 <= status < 500:
        return Meaning.LATER
    return Meaning.TARGET


def retry_after(text: str | None, now: datetime) -> float | None:
    """Returns the seconds that a receiver requests as a number or a date; None: it requests none, or is malformed."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), LONGEST_WAIT_SECONDS)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    seconds = (at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds()
    return min(max(0.0, seconds), LONGEST_WAIT_SECONDS)


ATTEMPTS = 3
"""The number of tries after which an event is reported as failing."""

ALONE_SECONDS = 3_600.0
"""The time after which a refused event is reported as failing even if no other was accepted: it may be the only one."""

BUSY_SECONDS = 600.0
"""The time after which an event answered "too busy" is reported as failing, if others were accepted between its tries:
a limit of the whole target would let each one through sooner."""

_MOST_REMEMBERED = 10_000
"""The maximum number of failed events in memory; beyond it all counts are reset."""


@dataclass
class _Tried:
    since: float
    taken_at_first: int
    """The number of events that the target had accepted when this one was first tried."""
    failed: int = 0
    refused: int = 0
    """The number of refusals about the target (wrong or too busy), each counted only after others were accepted."""
    taken_before: int = -1
    """The number of events that the target had accepted at the last such refusal."""


@dataclass
class Tries:
    """Counts the tries of one target's events, by event id."""

    _taken: int = 0
    _tried: dict[str, _Tried] = field(default_factory=dict, repr=False)

    def begins(self, event_id: str) -> None:
        """Records the start of a try."""
        self._of(event_id)

    def taken(self, event_id: str) -> None:
        """Records that the target accepted the event."""
        self._taken += 1
        self._tried.pop(event_id, None)

    def refused_for_good(self, event_id: str) -> None:
        """Forgets an event that is not tried again."""
        self._tried.pop(event_id, None)

    def failed(self, event_id: str) -> int:
        """Counts a failure that does not concern the target. Returns the count; resets it at ``ATTEMPTS``."""
        tried = self._of(event_id)
        tried.failed += 1
        if tried.failed >= ATTEMPTS:
            del self._tried[event_id]
        return tried.failed

    def is_alone(self, event_id: str, of: Meaning) -> bool:
        """Counts a response about the target. Returns whether it probably concerns the event: others are accepted."""
        tried = self._of(event_id)
        if tried.taken_before < self._taken:
            tried.refused, tried.taken_before = tried.refused + 1, self._taken
        often, seconds = tried.refused >= ATTEMPTS, monotonic() - tried.since
        return often and seconds >= BUSY_SECONDS if of is Meaning.BUSY else often or seconds >= ALONE_SECONDS

    def others_taken(self, event_id: str) -> bool:
        """Whether the target has accepted others since the first try of this event."""
        tried = self._tried.get(event_id)
        return tried is not None and tried.taken_at_first < self._taken

    def in_vain(self, event_id: str) -> int:
        """Returns the number of failed tries. An event with none is the best probe of whether the target works."""
        tried = self._tried.get(event_id)
        return tried.failed + tried.refused if tried else 0

    def _of(self, event_id: str) -> _Tried:
        if event_id not in self._tried and len(self._tried) >= _MOST_REMEMBERED:
            self._tried.clear()
        return self._tried.setdefault(event_id, _Tried(monotonic(), self._taken))

"""An answer speaks of one event, of the whole target, or of a moment that passes; nothing else is made of it.

What speaks of the event parks it. What speaks of the target stops all that goes there, and parks nothing. Everything
else may pass, and is tried again for ever.

An event that fails where others are taken is told as failing, however few tries one page of the feed has room for.

A receiver that hangs, or asks for a long pause, at one event leaves no time for several tries in a page. A firewall
before it may refuse one event for its words, with an answer that otherwise speaks of the whole target; a limit may be
one tenant's alone. So what became of an event's tries is remembered from page to page, in this process.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Any

from cosmos_outbox.kernel.clock import monotonic

LONGEST_WAIT_SECONDS = 3_600.0
"""A receiver that asks for a longer pause is asked again then: a wrong date must not stop it for a year."""

PIECE = 200
"""So many characters of an answer an operator gets to see."""

LONGEST_BODY = 1_024
"""So many bytes of an answer are read."""

LONGEST_COMPARED = 65_536
"""Of an event with more text nothing of the answer is shown: to compare them would hold up the event loop."""

_LONGEST_WORD = 40
_COMPARED = 2 * PIECE
"""So many characters of an answer are looked at: what is left out makes room for what comes after it."""

_WORD, _LETTERS = re.compile(r"\w[\w@.+'-]*"), re.compile(r"\w+")
_LEAST_OF_A_NAME = 3


class Meaning(Enum):
    """What an answer means for the event that was sent."""

    ACCEPTED = "the receiver has it"
    EVENT = "the receiver will never take this event"
    TARGET = "the receiver refuses whatever is sent, until somebody corrects it or the settings"
    BUSY = "there were too many requests"
    LATER = "it failed, and may work later"


_OF_THE_EVENT = {400, 413, 422, 431}
"""431: the attributes in the headers are too large, which are the event's."""
_PASSING = {408, 409, 423, 424, 425}
"""Time-out, conflict, locked, failed dependency, too early: each speaks of a state that changes."""
_BUSY = {429}


def meaning(status: int) -> Meaning:
    """What a status means. Every other 4xx, and each 3xx, since no redirect is followed, speaks of the target."""
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
    """For how many seconds a receiver asks to be left alone: a number or a date; None: it does not say, or garbage."""
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


def piece(body: bytes, data: Mapping[str, Any]) -> str:
    """What an operator sees of an answer: its first words, without those that may be of a person.

    Left out is each word that holds a digit or an @, that is very long, and that the event's data hold, whole or in
    part. The work is bounded, whatever the receiver answers and however large the event is.
    """
    held = " ".join(_texts(data)).lower()
    if len(held) > LONGEST_COMPARED:
        return ""
    names = set(_LETTERS.findall(held))

    def shown(found: re.Match[str]) -> str:
        word = found[0].lower()
        if "@" in word or len(word) > _LONGEST_WORD or any(map(str.isdigit, word)):
            return "…"
        for part in _LETTERS.findall(word):
            if part in names or (len(part) >= _LEAST_OF_A_NAME and part in held):
                return "…"
            if any(inner in names for inner in _inner(part)):
                return "…"
        return found[0]

    words = body.decode("utf-8", errors="replace").split()
    if len(body) >= LONGEST_BODY:
        del words[-1:]  # cut off, perhaps in the middle of a name
    text = "".join(each if each.isprintable() else " " for each in " ".join(words))
    if len(text) > _COMPARED:
        text = text[:_COMPARED].rpartition(" ")[0]
    return _WORD.sub(shown, text)[:PIECE]


def _inner(part: str) -> Iterator[str]:
    """Each run of letters in it that is long enough to be a name."""
    for begin in range(len(part) - _LEAST_OF_A_NAME + 1):
        for end in range(begin + _LEAST_OF_A_NAME, len(part) + 1):
            yield part[begin:end]


def _texts(value: Any) -> Iterator[str]:
    """Each text in a value, at whatever depth."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, Mapping):
            left.extend(each.values())
        elif isinstance(each, list | tuple):
            left.extend(each)


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

"""An answer speaks of one event, of the whole target, or of a moment that passes; nothing else is made of it.

What speaks of the event parks it. What speaks of the target stops all that goes there, and parks nothing. Everything
else may pass, and is tried again for ever.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Any

LONGEST_WAIT_SECONDS = 3_600.0
"""A receiver that asks for a longer pause is asked again then: a wrong date must not stop it for a year."""

PIECE = 200
"""So many characters of an answer an operator gets to see."""

LONGEST_BODY = 1_024
"""So many bytes of an answer are read."""

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

    Left out is each word that holds a digit or an @, and each that the event's data hold, whole or in part.
    """
    held = " ".join(_texts(data)).lower()
    names = set(_LETTERS.findall(held))
    long_names = [name for name in names if len(name) >= _LEAST_OF_A_NAME]

    def shown(found: re.Match[str]) -> str:
        word = found[0].lower()
        if "@" in word or any(map(str.isdigit, word)):
            return "…"
        for part in _LETTERS.findall(word):
            if part in names or (len(part) >= _LEAST_OF_A_NAME and part in held):
                return "…"
            if any(name in part for name in long_names):
                return "…"
        return found[0]

    words = body.decode("utf-8", errors="replace").split()
    if len(body) >= LONGEST_BODY:
        del words[-1:]  # cut off, perhaps in the middle of a name
    text = "".join(each if each.isprintable() else " " for each in " ".join(words))
    return _WORD.sub(shown, text)[:PIECE]


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

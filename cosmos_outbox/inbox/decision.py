"""An entry follows from the events 1 to ``last_sequence``, each applied once and in order, or from the source itself.

What is decided here is decided over an entry that may be an old read: every write names the version that it was decided
over (``at-its-version``), and what needs no write is true of every newer version too.

=====================  ==============================================================================================
``applied-before``     A sequence that the entry has reached is done.
``next-only``          Only the next sequence is applied; a higher one shows a gap, and the entry is healed.
``notice-healed``      A notice is never applied: the source knows what the discarded event changed.
``unknown-healed``     So is an action that the subscriber cannot apply.
``other-form``         So is an entry of another form; at its own sequence it keeps its event, and no event was missing.
``unsequenced``        So is an event without a sequence; only a read behind a fence surely has its change.
``made-from-source``   The first entry is made from a source read behind a fence: an event may be late.
``create-first``       But where the first event tells all, it makes the entry by one write that only creates.
``create-young``       Not of an event older than half of a tombstone's life: of a deletion before it nothing may be
                       left. Nor of one that is published again.
``fenced-absence``     A source that is not found is gone only if that read was behind a fence.
``source-at-least``    Healing needs a source that has reached the event; else it reads behind a fence, or waits.
``only-newer``         Healing writes only what is newer than the entry; a walk also another state of its sequence.
``gone-is-deleted``    A living entry whose source is gone becomes a deleted one.
``gone-is-noted``      A source that shows nothing of what was deleted leaves a deleted entry, also where there was
                       none: else ``create-first`` would revive it.
``keep-the-deleted``   A source that is deleted makes a deleted entry, also where there was none.
``deleted-is-final``   A deleted entry takes no event and is not healed.
``healed-has-no-id``   A healed entry names no event.
``same-place``         Another event with the entry's sequence is an alarm, unless the entry names no event.
``notice-no-alarm``    A notice of an event that arrived all the same is no alarm.
``made-from-first``    Where there is no source to read, an entry is made from event 1 and from no other, and so is one
                       of another form; a notice goes to the projection: nothing else could tell what it stands for.
=====================  ==============================================================================================
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Generic, TypeVar

from cosmos_outbox.inbox.entry import After, Entry, Found
from cosmos_outbox.inbox.event import Event

S = TypeVar("S")

Projection = Callable[[S, Event], After[S] | None]
"""The state after an event; None: this subscriber cannot apply the event, and the source is read."""


First = Callable[[Event], S | None]
"""The state of which an aggregate's first event tells; None: it tells of none."""


class Done(Enum):
    """Why nothing is to be written."""

    APPLIED_BEFORE = "is in its entry already"
    DELETED = "is of a deleted aggregate"
    GONE = "is of an aggregate that is gone"
    NOT_NEWER = "the source has nothing newer"
    CONFLICT = "has the sequence of another event"


class Because(Enum):
    """Why the source is read."""

    NEW = "there is no entry"
    GAP = "events are missing"
    NOTICE = "an event was discarded"
    UNKNOWN = "the subscriber cannot apply the event"
    UNSEQUENCED = "the event has no sequence"
    WALK = "a walk found that the entry is not as its source"
    FORM = "the entry was made in another form"


@dataclass(frozen=True)
class Complete:
    """The message is done, and nothing is written."""

    why: Done


@dataclass(frozen=True)
class Put(Generic[S]):
    """Write this entry over the version that was read; ``because`` None: the event led here."""

    entry: Entry[S]
    because: Because | None = None


@dataclass(frozen=True)
class Heal:
    """Read the source. ``at_least``: the sequence that it must have reached; None: only the newest will do."""

    because: Because
    at_least: int | None


class Look(Enum):
    """What a read of the source was good for."""

    BEHIND_A_FENCE = "the read proves too little: read again, behind a fence"
    LATER = "the source itself is behind: wait"


def make(event: Event, first: First[S], now: datetime, tombstones: timedelta | None) -> Put[S] | None:
    """The entry to create without a read; None: read first. ``tombstones``: how long they live; None: for good."""
    if event.sequence != 1 or event.is_notice or event.republished:
        return None  # create-first
    if tombstones is not None and event.age(now) >= tombstones / 2:
        return None  # create-young
    made = first(event)
    return None if made is None else Put(Entry(1, event.id, made), Because.NEW)


def decide(
    entry: Entry[S] | None, event: Event, project: Projection[S], first: First[S] | None = None
) -> Complete | Put[S] | Heal:
    """What an event means for an entry (None: there is none). ``first``: given where there is no source to read."""
    if first is not None and (entry is None or entry.other_form):
        return _first(entry, event, first(event) if event.sequence == 1 and not event.is_notice else None)
    if entry is None:
        return Heal(Because.NEW, event.sequence)  # made-from-source
    if entry.deleted:
        return Complete(Done.DELETED)  # deleted-is-final
    if event.sequence is None:
        return Heal(Because.UNSEQUENCED, None)  # unsequenced
    return _place(entry, event, event.sequence, project, tells_notices=first is not None)


def _first(entry: Entry[S] | None, event: Event, made: S | None) -> Put[S] | Heal:
    """``made-from-first``: the events behind it come again, so whatever was in the entry is told again."""
    because = Because.NEW if entry is None else Because.FORM
    if made is None:
        return Heal(because, event.sequence)
    return Put(Entry(1, event.id, made, entry.healed if entry else 0), because)


def _place(
    entry: Entry[S], event: Event, sequence: int, project: Projection[S], *, tells_notices: bool
) -> Complete | Put[S] | Heal:
    if sequence <= entry.last_sequence:
        return Complete(Done.CONFLICT if _conflict(entry, event) else Done.APPLIED_BEFORE)  # applied-before
    if sequence > entry.last_sequence + 1:
        return Heal(Because.GAP, sequence)  # next-only
    if entry.state is None:
        return Heal(Because.FORM, sequence)  # other-form
    after = None if event.is_notice and not tells_notices else project(entry.state, event)
    if after is None:  # notice-healed, unknown-healed
        return Heal(Because.NOTICE if event.is_notice else Because.UNKNOWN, sequence)
    named = None if event.is_notice else event.id
    return Put(Entry(sequence, named, after.state, entry.healed))


def mend(
    entry: Entry[S] | None, heal: Heal, found: Found[S] | None, *, fenced: bool, notes_gone: bool = False
) -> Complete | Put[S] | Look:
    """What the source means for an entry. ``fenced``: the read misses nothing that was committed before the entry's.

    ``notes_gone``: the source shows nothing of what was deleted.
    """
    if entry is not None and entry.deleted:
        return Complete(Done.DELETED)  # deleted-is-final
    behind = found is None or (heal.at_least is not None and found.sequence < heal.at_least)
    if not fenced and (behind or entry is None or heal.at_least is None):
        return Look.BEHIND_A_FENCE  # made-from-source, fenced-absence, source-at-least, unsequenced
    if found is None:
        return _gone(entry, heal, noted=notes_gone)
    if behind:
        return Look.LATER  # source-at-least
    return _from_source(entry, heal, found)


def _from_source(entry: Entry[S] | None, heal: Heal, found: Found[S]) -> Complete | Put[S]:
    if entry is not None and not _newer(entry, heal, found):
        if entry.other_form and found.sequence == entry.last_sequence:  # other-form
            return Put(replace(entry, state=found.state, other_form=False), Because.FORM)
        return Complete(Done.NOT_NEWER)  # only-newer
    healed = (entry.healed if entry else 0) + (heal.because not in (Because.NEW, Because.FORM))
    return Put(
        Entry(found.sequence, None, found.state, healed), heal.because
    )  # healed-has-no-id, keep-the-deleted


def hides(entry: Entry[S], newest: Found[S] | None) -> bool:
    """Whether a deleted entry keeps an aggregate out of every list that lives (``deleted-is-final``).

    Its id was used again, or its source was put back. ``newest``: read behind a fence, after the entry.
    """
    return entry.deleted and newest is not None and newest.state is not None


def _gone(entry: Entry[S] | None, heal: Heal, *, noted: bool) -> Complete | Put[S]:
    if entry is None and noted:
        return Put(Entry(heal.at_least or 0, None, None), heal.because)  # gone-is-noted
    if entry is None:
        return Complete(Done.GONE)
    return Put(Entry(entry.last_sequence, None, None, entry.healed), heal.because)  # gone-is-deleted


def _conflict(entry: Entry[S], event: Event) -> bool:
    """``same-place``: two events claim one sequence. An entry that names no event was healed past it."""
    return (
        event.sequence == entry.last_sequence
        and entry.last_event_id not in (None, event.id)
        and not event.is_notice  # notice-no-alarm; an entry never names a notice
    )


def _newer(entry: Entry[S], heal: Heal, found: Found[S]) -> bool:
    """A change without a sequence leaves the source's sequence as it is; its newest state was read after the entry."""
    compared = heal.because is Because.UNSEQUENCED or (heal.because is Because.WALK and not entry.other_form)
    if compared and found.sequence == entry.last_sequence:
        return found.state != entry.state
    return found.sequence > entry.last_sequence

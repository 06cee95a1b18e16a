"""Decides what an event means for an entry: apply it, skip it, or read the source and heal the entry.

An entry is the result of events 1 to ``last_sequence``, each once and in order, or of the source. Each write names the
version that was read (``at-its-version``). So only the write of the next event may be decided on an entry that may be
old; for anything else the entry is read consistently (``newest-entry``), and after it the source (``newest-source``).

=====================  ==============================================================================================
``applied-before``     An event whose sequence the entry has reached is done.
``next-only``          Only the next sequence is applied; a higher one shows a gap, and the entry is healed.
``notice-healed``      A notice is never applied: the entry is healed, since the source has the discarded change.
``unknown-healed``     An action that the subscriber cannot apply heals the entry.
``other-form``         An entry of another form is healed; at the same sequence it keeps its event: none was lost.
``unsequenced``        An event without a sequence heals the entry.
``made-from-source``   The first entry is made from the source: an event may be late.
``create-first``       If the first event holds the whole state, one create-only write makes the entry from it.
``create-young``       But not if the event is older than half of a tombstone's life, since no trace of an earlier
                       deletion may be left; nor if it was published again.
``source-at-least``    Healing needs a source that has reached the event; else it waits.
``only-newer``         Healing writes only a newer state; a walk also a different state of the same sequence.
``gone-is-deleted``    A living entry whose source is gone becomes a deleted one.
``gone-is-noted``      If the source keeps no tombstones, the deletion leaves a deleted entry, even if there was no
                       entry: else ``create-first`` would revive it.
``keep-the-deleted``   A deleted source makes a deleted entry, even if there was no entry.
``deleted-is-final``   A deleted entry takes no event and is not healed.
``healed-has-no-id``   A healed entry names no event.
``same-place``         Another event with the entry's sequence is logged as an error, unless the entry names no event.
``notice-no-alarm``    A notice of an event that was applied all the same is no error.
``made-from-first``    Without a source to read, an entry is made only from event 1, as is one of another form; the
                       projection is given notices, since nothing else knows the discarded change.
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
"""Returns the state after an event; None: this subscriber cannot apply the event, and the source is read."""


First = Callable[[Event], S | None]
"""Returns the state that an aggregate's first event holds; None: it holds none."""


class SkipReason(Enum):
    """The reason to write nothing."""

    APPLIED_BEFORE = "is in its entry already"
    DELETED = "is of a deleted aggregate"
    GONE = "is of an aggregate that is gone"
    NOT_NEWER = "the source has nothing newer"
    CONFLICT = "has the sequence of another event"


class HealReason(Enum):
    """The reason to read the source."""

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

    why: SkipReason


@dataclass(frozen=True)
class Put(Generic[S]):
    """Write this entry over the version that was read; ``because`` None: an event was applied."""

    entry: Entry[S]
    because: HealReason | None = None


@dataclass(frozen=True)
class Heal:
    """Read the source. ``at_least``: the sequence that it must have reached; None: any."""

    because: HealReason
    at_least: int | None


def make(event: Event, first: First[S], now: datetime, tombstones: timedelta | None) -> Put[S] | None:
    """Returns the entry to create without a read; None: read first. ``tombstones``: their lifetime; None: for ever."""
    if event.sequence != 1 or event.is_notice or event.republished:
        return None  # create-first
    if tombstones is not None and event.age(now) >= tombstones / 2:
        return None  # create-young
    made = first(event)
    return None if made is None else Put(Entry(1, event.id, made), HealReason.NEW)


def decide(
    entry: Entry[S] | None, event: Event, project: Projection[S], first: First[S] | None = None
) -> Complete | Put[S] | Heal:
    """Decides what an event does to an entry (None: there is none). ``first``: given if there is no source to read."""
    if first is not None and (entry is None or entry.other_form):
        return _first(entry, event, first(event) if event.sequence == 1 and not event.is_notice else None)
    if entry is None:
        return Heal(HealReason.NEW, event.sequence)  # made-from-source
    if entry.deleted:
        return Complete(SkipReason.DELETED)  # deleted-is-final
    if event.sequence is None:
        return Heal(HealReason.UNSEQUENCED, None)  # unsequenced
    return _place(entry, event, event.sequence, project, tells_notices=first is not None)


def _first(entry: Entry[S] | None, event: Event, made: S | None) -> Put[S] | Heal:
    """``made-from-first``: the later events are replayed, so the entry's former content comes again."""
    because = HealReason.NEW if entry is None else HealReason.FORM
    if made is None:
        return Heal(because, event.sequence)
    return Put(Entry(1, event.id, made, entry.healed if entry else 0), because)


def _place(
    entry: Entry[S], event: Event, sequence: int, project: Projection[S], *, tells_notices: bool
) -> Complete | Put[S] | Heal:
    if sequence <= entry.last_sequence:  # applied-before
        return Complete(SkipReason.CONFLICT if _conflict(entry, event) else SkipReason.APPLIED_BEFORE)
    if sequence > entry.last_sequence + 1:
        return Heal(HealReason.GAP, sequence)  # next-only
    if entry.state is None:
        return Heal(HealReason.FORM, sequence)  # other-form
    after = None if event.is_notice and not tells_notices else project(entry.state, event)
    if after is None:  # notice-healed, unknown-healed
        return Heal(HealReason.NOTICE if event.is_notice else HealReason.UNKNOWN, sequence)
    named = None if event.is_notice else event.id
    return Put(Entry(sequence, named, after.state, entry.healed))


def mend(
    entry: Entry[S] | None, heal: Heal, found: Found[S] | None, *, notes_gone: bool = False
) -> Complete | Put[S] | None:
    """Decides what the source does to an entry; None: the source has not reached the event, which waits.

    Both were read consistently, the entry first. ``notes_gone``: the source keeps no tombstones, so the entry has to.
    """
    if entry is not None and entry.deleted:
        return Complete(SkipReason.DELETED)  # deleted-is-final
    if found is None:
        return _gone(entry, heal, noted=notes_gone)
    if heal.at_least is not None and found.sequence < heal.at_least:
        return None  # source-at-least
    return _from_source(entry, heal, found)


def _from_source(entry: Entry[S] | None, heal: Heal, found: Found[S]) -> Complete | Put[S]:
    if entry is not None and not _newer(entry, heal, found):
        if entry.other_form and found.sequence == entry.last_sequence:  # other-form
            return Put(replace(entry, state=found.state, other_form=False), HealReason.FORM)
        return Complete(SkipReason.NOT_NEWER)  # only-newer
    healed = (entry.healed if entry else 0) + (heal.because not in (HealReason.NEW, HealReason.FORM))
    return Put(
        Entry(found.sequence, None, found.state, healed), heal.because
    )  # healed-has-no-id, keep-the-deleted


def hides(entry: Entry[S], newest: Found[S] | None) -> bool:
    """Whether a deleted entry hides an existing aggregate from every list (``deleted-is-final``).

    Its id was used again, or its source was restored. ``newest``: read consistently, after the entry.
    """
    return entry.deleted and newest is not None and newest.state is not None


def _gone(entry: Entry[S] | None, heal: Heal, *, noted: bool) -> Complete | Put[S]:
    if entry is None and noted:
        return Put(Entry(heal.at_least or 0, None, None), heal.because)  # gone-is-noted
    if entry is None:
        return Complete(SkipReason.GONE)
    return Put(Entry(entry.last_sequence, None, None, entry.healed), heal.because)  # gone-is-deleted


def _conflict(entry: Entry[S], event: Event) -> bool:
    """``same-place``: whether two events have one sequence. An entry that names no event was healed past it."""
    return (
        event.sequence == entry.last_sequence
        and entry.last_event_id not in (None, event.id)
        and not event.is_notice  # notice-no-alarm; an entry never names a notice
    )


def _newer(entry: Entry[S], heal: Heal, found: Found[S]) -> bool:
    """Whether the source is newer. Equal sequences compare states: a change without a sequence leaves it unchanged."""
    compared = heal.because is HealReason.UNSEQUENCED or (
        heal.because is HealReason.WALK and not entry.other_form
    )
    if compared and found.sequence == entry.last_sequence:
        return found.state != entry.state
    return found.sequence > entry.last_sequence

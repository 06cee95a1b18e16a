"""Applies events to a state per aggregate, such as a read model: once or not at all, whenever the process dies.

The decision and the new state are one conditional write (``one-write``, ``at-its-version``), and a message is done only
after it (``complete-last``). So redeliveries and concurrent processes do no harm. Anything that a read which may be old
decides, but for the next event's write and for what the entry has reached, is decided again on a consistent read
(``newest-entry``), as is an entry that changed after the read (``decide-again``). A source may be deleted after a call
has read it: so the tombstones of source and entry live longer than the longest call (``tombstones-outlive-calls``).
From an event that is younger than that an entry may be created without a read (``create-first``): if its aggregate had
been deleted, the deleted entry would refuse the create.

An entry is the result of events 1 to ``last_sequence``, each once and in order, or of the source. Only the write of the
next event, or that it was applied before, may be decided on an entry that may be old; for anything else the entry is
read consistently, and after it the source (``newest-source``).

=====================  ==============================================================================================
``applied-before``     An event whose sequence the entry has reached is done.
``next-only``          Only the next sequence is applied; a higher one shows a gap, and the entry is healed.
``skip-healed``        A skip marker is never applied: the entry is healed, since the source has the discarded change.
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
``skip-no-alarm``      A skip marker of an event that was applied all the same is no error.
``made-from-first``    Without a source to read, an entry is made only from event 1, as is one of another form; the
                       projection is given skip markers, since nothing else knows the discarded change.
=====================  ==============================================================================================
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import field, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Generic, TypeVar

from cosmos_outbox.inbox import telemetry
from cosmos_outbox.inbox.entry import After, Entry, Found, Stamp, VersionedEntry
from cosmos_outbox.inbox.errors import ConcurrentUpdate, EntryChanged, SourceBehind
from cosmos_outbox.inbox.message import Event
from cosmos_outbox.inbox.ports import Entries, Source
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.kernel.dataclass import dataclass

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
    SKIP_MARKER = "an event was discarded"
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
    if event.sequence != 1 or event.is_skip or event.republished:
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
        return _first(entry, event, first(event) if event.sequence == 1 and not event.is_skip else None)
    if entry is None:
        return Heal(HealReason.NEW, event.sequence)  # made-from-source
    if entry.deleted:
        return Complete(SkipReason.DELETED)  # deleted-is-final
    if event.sequence is None:
        return Heal(HealReason.UNSEQUENCED, None)  # unsequenced
    return _place(entry, event, event.sequence, project, projects_skips=first is not None)


def _first(entry: Entry[S] | None, event: Event, made: S | None) -> Put[S] | Heal:
    """``made-from-first``: the later events are replayed, so the entry's former content comes again."""
    because = HealReason.NEW if entry is None else HealReason.FORM
    if made is None:
        return Heal(because, event.sequence)
    return Put(Entry(1, event.id, made, entry.healed if entry else 0), because)


def _place(
    entry: Entry[S], event: Event, sequence: int, project: Projection[S], *, projects_skips: bool
) -> Complete | Put[S] | Heal:
    if sequence <= entry.last_sequence:  # applied-before
        return Complete(SkipReason.CONFLICT if _conflict(entry, event) else SkipReason.APPLIED_BEFORE)
    if sequence > entry.last_sequence + 1:
        return Heal(HealReason.GAP, sequence)  # next-only
    if entry.state is None:
        return Heal(HealReason.FORM, sequence)  # other-form
    after = None if event.is_skip and not projects_skips else project(entry.state, event)
    if after is None:  # skip-healed, unknown-healed
        return Heal(HealReason.SKIP_MARKER if event.is_skip else HealReason.UNKNOWN, sequence)
    named = None if event.is_skip else event.id
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
        and not event.is_skip  # skip-no-alarm; an entry never names a skip marker
    )


def _newer(entry: Entry[S], heal: Heal, found: Found[S]) -> bool:
    """Whether the source is newer. Equal sequences compare states: a change without a sequence leaves it unchanged."""
    compared = heal.because is HealReason.UNSEQUENCED or (
        heal.because is HealReason.WALK and not entry.other_form
    )
    if compared and found.sequence == entry.last_sequence:
        return found.state != entry.state
    return found.sequence > entry.last_sequence


NOBODY = AggregateKey("nobody", "nobody")

ATTEMPTS = 5
"""The number of attempts on an entry that keeps changing, before ConcurrentUpdate is raised."""

Decide = Callable[[Entry[S] | None], Complete | Put[S] | Heal]

_log = logging.getLogger(__name__)


MOST = 1_000
"""The most entries that are remembered."""


@dataclass
class LastWriteCache(Generic[S]):
    """Remembers the entries that this process wrote last, so that the next event is applied without a read.

    A remembered entry may be old, as a read may be.
    """

    _entries: dict[AggregateKey, VersionedEntry[S]] = field(default_factory=dict, repr=False)

    def note(self, key: AggregateKey, entry: Entry[S], version: str) -> None:
        """Remember an entry that was just written, and its version."""
        self._entries[key] = VersionedEntry(entry, version)
        if len(self._entries) > MOST:
            del self._entries[next(iter(self._entries))]

    def take(self, key: AggregateKey) -> VersionedEntry[S] | None:
        """Returns and forgets the last written entry."""
        return self._entries.pop(key, None)


@dataclass(frozen=True)
class StateInbox(Generic[S]):
    """Handles the events of one subscriber. Any number of calls may run side by side, in any number of processes."""

    entries: Entries[S]
    source: Source[S]
    project: Projection[S]
    clock: Callable[[], datetime] = utc_now
    counts: Counter[HealReason | SkipReason | None] = field(default_factory=Counter)
    """The outcomes since the process began; None: applied."""
    first: First[S] | None = None
    """Makes an entry from an aggregate's first event; None: it is made from the source."""
    tombstones: timedelta | None = None
    """The lifetime of tombstones, of source or entry; None: there is no source to read."""
    forgetful: bool = False
    """Whether the source keeps no tombstones; then the entry does (``gone-is-noted``)."""
    _remembered: LastWriteCache[S] = field(default_factory=LastWriteCache)

    async def handle(self, event: Event) -> Complete | Put[S]:
        """Apply an event, unless it is applied already. After a return the message is done.

        Raises:
            StoreUnavailable: the store or the source did not answer.
            SourceBehind: the source does not show the event.
            ConcurrentUpdate: the entry changed at each attempt.
            Unstorable: the store will never take the entry.
        """
        late = event.age(self.clock()).total_seconds() if event.created_at.tzinfo else None
        result = await self._create(event, late) or await self._settle(
            event.aggregate, lambda entry: decide(entry, event, self.project, self._only), late
        )
        self._log_result(event, result)
        return result

    @property
    def _only(self) -> First[S] | None:
        """Returns ``first`` if there is no source to read."""
        return self.first if self.tombstones is None else None

    async def _create(self, event: Event, late: float | None) -> Put[S] | None:
        """Rule ``create-first``. None: there is an entry, perhaps by an attempt of this call; or read first."""
        made = None if self.first is None else make(event, self.first, self.clock(), self.tombstones)
        if made is None:
            return None
        try:
            await self._write(event.aggregate, made, late, None)
        except EntryChanged:
            return None
        return made

    async def _write(
        self, key: AggregateKey, put: Put[S], late: float | None, read: VersionedEntry[S] | None
    ) -> None:
        """Write an entry over the version that was read, and remember it. Raises EntryChanged."""
        stamp, over = Stamp(self.clock(), late), None if read is None else read.version
        self._remembered.note(key, put.entry, await self.entries.put(key, put.entry, stamp, over=over))

    async def check(self) -> None:
        """Return if store and source answer a read of a nonexistent aggregate. Raises StoreUnavailable."""
        await self.entries.read(NOBODY)
        await self.source.read(NOBODY)

    async def heal(self, key: AggregateKey) -> Complete | Put[S]:
        """Repair an entry from a consistent read of its source. Raises as :meth:`handle` does.

        A walk calls this for entries and for sources: a lost only event has no entry (``walk-both-ways``).
        """
        result = await self._settle(key, lambda _: Heal(HealReason.WALK, None), None)
        if isinstance(result, Put):
            self.counts[result.because] += 1
            if result.because is HealReason.FORM:
                _log.debug("wrote the entry of %s again: %s", key, HealReason.FORM.value)
                return result
            telemetry.gap_healed()
            _log.warning("healed %s: %s", key, HealReason.WALK.value)
        return result

    async def _settle(self, key: AggregateKey, decide_on: Decide[S], late: float | None) -> Complete | Put[S]:
        if remembered := self._remembered.take(key):  # perhaps from before a restore
            decision = decide_on(remembered.entry)
            if isinstance(decision, Put) and await self._is_written(key, decision, late, remembered):
                return decision
        read = await self.entries.read(key)
        decision = decide_on(None if read is None else read.entry)
        if decision == Complete(SkipReason.APPLIED_BEFORE):  # entries only grow
            return decision
        if isinstance(decision, Put) and await self._is_written(key, decision, late, read):
            return decision
        for _ in range(ATTEMPTS):
            read = await self.entries.newest(key)  # newest-entry, decide-again
            decision = decide_on(None if read is None else read.entry)
            if isinstance(decision, Heal):
                decision = await self._heal(key, read, decision)
            if isinstance(decision, Complete) or await self._is_written(key, decision, late, read):
                return decision
        raise ConcurrentUpdate(f"{key} changed at each of {ATTEMPTS} attempts: it is tried again later")

    async def _heal(self, key: AggregateKey, read: VersionedEntry[S] | None, heal: Heal) -> Complete | Put[S]:
        found = await self.source.newest(key)  # newest-source
        healed = mend(None if read is None else read.entry, heal, found, notes_gone=self.forgetful)
        if healed is None:
            raise SourceBehind(
                f"the source does not show event {heal.at_least} of {key}: {heal.because.value}"
            )
        return healed

    async def _is_written(
        self, key: AggregateKey, put: Put[S], late: float | None, read: VersionedEntry[S] | None
    ) -> bool:
        try:
            await self._write(key, put, late if put.because is None else None, read)
        except EntryChanged:
            return False
        return True

    def _log_result(self, event: Event, result: Complete | Put[S]) -> None:
        self.counts[result.why if isinstance(result, Complete) else result.because] += 1
        logged = event.action, event.id, event.aggregate, event.sequence or "none"
        match result:
            case Complete(SkipReason.CONFLICT):
                telemetry.decided(telemetry.Outcome.REFUSED)
                _log.error(
                    "%s %s of %s, sequence %s, is not applied: another event has this sequence. Two publishers write "
                    "this aggregate, or its store was restored: find out which state is right, then rebuild the entry",
                    *logged,
                )
                return
            case Complete(why):
                telemetry.decided(telemetry.Outcome.DUPLICATE)
                _log.info("%s %s of %s, sequence %s, %s", *logged, why.value)
                return
            case Put(_, None):
                _log.debug("applied %s %s of %s, sequence %s", *logged)
            case Put(_, HealReason.NEW | HealReason.FORM as because):
                _log.debug("made the entry: %s %s of %s, sequence %s: %s", *logged, because.value)
            case Put(_, HealReason() as because):
                _log.warning("healed at %s %s of %s, sequence %s: %s", *logged, because.value)
        telemetry.decided(telemetry.Outcome.APPLIED)
        if result.because in (None, HealReason.NEW, HealReason.FORM):
            telemetry.applied(event.created_at, self.clock())
        elif result.because is HealReason.GAP:
            telemetry.gap_healed()

"""Applies events to a state per aggregate, such as a read model: once or not at all, whenever the process dies.

The decision and the new state are one conditional write (``one-write``, ``at-its-version``), and a message is done only
after it (``complete-last``). So redeliveries and concurrent processes do no harm. What an entry that may be old does
not lead to a write of the next event is decided again on a consistent read (``newest-entry``), as is an entry that
changed after the read (``decide-again``). A source may be deleted after a call has read it: so the tombstones of source
and entry live longer than the longest call (``tombstones-outlive-calls``). From an event that is younger than that an
entry may be created without a read (``create-first``): if its aggregate had been deleted, the deleted entry would
refuse the create.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from cosmos_outbox.inbox import telemetry
from cosmos_outbox.inbox.decision import (
    Complete,
    First,
    Heal,
    HealReason,
    Projection,
    Put,
    SkipReason,
    decide,
    make,
    mend,
)
from cosmos_outbox.inbox.entry import Entry, Stamp, VersionedEntry
from cosmos_outbox.inbox.errors import ConcurrentUpdate, EntryChanged, SourceBehind
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.ports import Entries, Source
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now

S = TypeVar("S")

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
        self._tell(event, result)
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
        read = self._remembered.take(key) or await self.entries.read(key)
        decision = decide_on(None if read is None else read.entry)
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

    def _tell(self, event: Event, result: Complete | Put[S]) -> None:
        self.counts[result.why if isinstance(result, Complete) else result.because] += 1
        self._count(event, result)
        logged = event.action, event.id, event.aggregate, event.sequence or "none"
        match result:
            case Complete(SkipReason.CONFLICT):
                _log.error(
                    "%s %s of %s, sequence %s, is not applied: another event has this sequence. Two publishers write "
                    "this aggregate, or its store was restored: find out which state is right, then rebuild the entry",
                    *logged,
                )
            case Complete(why):
                _log.info("%s %s of %s, sequence %s, %s", *logged, why.value)
            case Put(_, None):
                _log.debug("applied %s %s of %s, sequence %s", *logged)
            case Put(_, HealReason.NEW | HealReason.FORM as because):
                _log.debug("made the entry: %s %s of %s, sequence %s: %s", *logged, because.value)
            case Put(_, HealReason() as because):
                _log.warning("healed at %s %s of %s, sequence %s: %s", *logged, because.value)

    def _count(self, event: Event, result: Complete | Put[S]) -> None:
        match result:
            case Complete(SkipReason.CONFLICT):
                telemetry.decided(telemetry.Outcome.REFUSED)
            case Complete():
                telemetry.decided(telemetry.Outcome.DUPLICATE)
            case Put(_, because):
                telemetry.decided(telemetry.Outcome.APPLIED)
                if because in (None, HealReason.NEW, HealReason.FORM):
                    telemetry.applied(event.created_at, self.clock())
                elif because is HealReason.GAP:
                    telemetry.gap_healed()

"""A state per aggregate, such as a read model: whenever the process dies, an event is applied once or not at all.

The decision and the new state are one conditional write (``one-write``, ``at-its-version``), and a message is done only
after it (``complete-last``). So it does not matter how often a message comes, or who handles it beside this process. An
entry that changed meanwhile is read again, behind a fence, and decided anew (``decide-again``). Where the source is
gone, an entry that was not found is looked for behind a fence too (``no-entry-fenced``): the read may be older than the
entry. A call may go by a living source that was deleted meanwhile: so the tombstones of source and entry live longer
than the longest call (``tombstones-outlive-calls``). Of an event that is younger than that an entry may be created
unread (``create-first``): had its aggregate been deleted, a deleted entry would be in the way.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from cosmos_outbox.inbox import telemetry
from cosmos_outbox.inbox.decision import (
    Because,
    Complete,
    Done,
    First,
    Heal,
    Look,
    Projection,
    Put,
    decide,
    make,
    mend,
)
from cosmos_outbox.inbox.entry import Entry, Stamp, VersionedEntry
from cosmos_outbox.inbox.errors import Contended, EntryChanged, SourceBehind
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.ports import Entries, Source
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now

S = TypeVar("S")

NOBODY = AggregateKey("nobody", "nobody")

ATTEMPTS = 5
"""How often an entry that changed is decided upon again before Contended is raised."""

Decide = Callable[[Entry[S] | None], Complete | Put[S] | Heal]

_log = logging.getLogger(__name__)


MOST = 1_000
"""So many entries, those that were written last."""


@dataclass
class Remembered(Generic[S]):
    """Remembers the entries that this process wrote last, so that the next event is written over that very version.

    What is remembered may be old, as a read may be. So it leads to a write, which its version guards, or to a read, and
    to nothing else (``remembered-for-a-write``): a gap that it shows may be closed by now.
    """

    _entries: dict[AggregateKey, VersionedEntry[S]] = field(default_factory=dict, repr=False)

    def note(self, key: AggregateKey, entry: Entry[S], version: str) -> None:
        """It was written, and is at this version now."""
        self._entries[key] = VersionedEntry(entry, version)
        if len(self._entries) > MOST:
            del self._entries[next(iter(self._entries))]

    def take(self, key: AggregateKey) -> VersionedEntry[S] | None:
        """What was written last; it is forgotten with that."""
        return self._entries.pop(key, None)


@dataclass(frozen=True)
class StateInbox(Generic[S]):
    """Handles the events of one subscriber. Any number of calls may run side by side, in any number of processes."""

    entries: Entries[S]
    source: Source[S]
    project: Projection[S]
    clock: Callable[[], datetime] = utc_now
    counts: Counter[Because | Done | None] = field(default_factory=Counter)
    """What became of the events since the process began; None: applied."""
    first: First[S] | None = None
    """Makes an entry from an aggregate's first event; None: it is made from the source."""
    tombstones: timedelta | None = None
    """How long source or entry show what was deleted; None: there is no source to read."""
    forgetful: bool = False
    """The source shows nothing of what was deleted: then the entry does (``gone-is-noted``)."""
    _remembered: Remembered[S] = field(default_factory=Remembered)

    async def handle(self, event: Event) -> Complete | Put[S]:
        """Apply an event, or find that it is applied. When this returns, the message is done.

        Raises:
            StoreAway: the store or the source did not answer.
            SourceBehind: the source does not show the event.
            Contended: the entry changed each time.
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
        """What makes entries where no source does."""
        return self.first if self.tombstones is None else None

    async def _create(self, event: Event, late: float | None) -> Put[S] | None:
        """Rule ``create-first``. None: there is an entry, perhaps one of a lost answer; or read first."""
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
        """Raises EntryChanged."""
        stamp, over = Stamp(self.clock(), late), None if read is None else read.version
        self._remembered.note(key, put.entry, await self.entries.put(key, put.entry, stamp, over=over))

    async def _go_on(self, key: AggregateKey, decide_on: Decide[S], late: float | None) -> Put[S] | None:
        """Rule ``remembered-for-a-write``. None: nothing is remembered, or it is not enough."""
        known = self._remembered.take(key)
        decision = None if known is None else decide_on(known.entry)
        if not isinstance(decision, Put):
            return None
        try:
            await self._write(key, decision, late, known)
        except EntryChanged:
            return None
        return decision

    async def check(self) -> None:
        """Returns if store and source answer about an aggregate that nobody has. Raises StoreAway."""
        await self.entries.read(NOBODY)
        await self.source.read(NOBODY)

    async def heal(self, key: AggregateKey) -> Complete | Put[S]:
        """Put an entry right from its source, which is read behind a fence. Raises as :meth:`handle` does.

        A walk calls this for entries and for sources: a lost only event has no entry (``walk-both-ways``).
        """
        result = await self._settle(key, lambda _: Heal(Because.WALK, None), None)
        if isinstance(result, Put):
            self.counts[result.because] += 1
            if result.because is Because.FORM:
                _log.debug("wrote the entry of %s again: %s", key, Because.FORM.value)
                return result
            telemetry.gap_healed()
            _log.warning("healed %s: %s", key, Because.WALK.value)
        return result

    async def _settle(self, key: AggregateKey, decide_on: Decide[S], late: float | None) -> Complete | Put[S]:
        if (written := await self._go_on(key, decide_on, late)) is not None:
            return written
        for attempt in range(ATTEMPTS):
            read = await (self.entries.newest(key) if attempt else self.entries.read(key))
            entry = None if read is None else read.entry
            decision = decide_on(entry)
            if isinstance(decision, Heal):
                decision = await self._mend(key, entry, decision)
            if isinstance(decision, Complete):
                if decision.why is Done.GONE and not attempt:
                    continue  # no-entry-fenced
                return decision
            try:
                await self._write(key, decision, late if decision.because is None else None, read)
            except EntryChanged:
                continue
            return decision
        raise Contended(f"{key} changed at each of {ATTEMPTS} attempts: it is tried again later")

    async def _mend(self, key: AggregateKey, entry: Entry[S] | None, heal: Heal) -> Complete | Put[S]:
        result: Complete | Put[S] | Look = Look.BEHIND_A_FENCE
        if entry is not None and heal.at_least is not None:
            result = mend(entry, heal, await self.source.read(key), fenced=False)
        if result is Look.BEHIND_A_FENCE:
            newest = await self.source.newest(key)
            result = mend(entry, heal, newest, fenced=True, notes_gone=self.forgetful)
        if isinstance(result, Look):
            raise SourceBehind(
                f"the source does not show event {heal.at_least} of {key}: {heal.because.value}"
            )
        return result

    def _tell(self, event: Event, result: Complete | Put[S]) -> None:
        self.counts[result.why if isinstance(result, Complete) else result.because] += 1
        self._count(event, result)
        told = event.action, event.id, event.aggregate, event.sequence or "none"
        match result:
            case Complete(Done.CONFLICT):
                _log.error(
                    "%s %s of %s, sequence %s, is not applied: another event has this sequence. Two publishers write "
                    "this aggregate, or its store was restored: find out which state is right, then rebuild the entry",
                    *told,
                )
            case Complete(why):
                _log.info("%s %s of %s, sequence %s, %s", *told, why.value)
            case Put(_, None):
                _log.debug("applied %s %s of %s, sequence %s", *told)
            case Put(_, Because.NEW | Because.FORM as because):
                _log.debug("made the entry: %s %s of %s, sequence %s: %s", *told, because.value)
            case Put(_, Because() as because):
                _log.warning("healed at %s %s of %s, sequence %s: %s", *told, because.value)

    def _count(self, event: Event, result: Complete | Put[S]) -> None:
        match result:
            case Complete(Done.CONFLICT):
                telemetry.decided(telemetry.Outcome.REFUSED)
            case Complete():
                telemetry.decided(telemetry.Outcome.DUPLICATE)
            case Put(_, because):
                telemetry.decided(telemetry.Outcome.APPLIED)
                if because in (None, Because.NEW, Because.FORM):
                    telemetry.applied(event.created_at, self.clock())
                elif because is Because.GAP:
                    telemetry.gap_healed()

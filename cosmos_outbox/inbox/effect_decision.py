"""What comes next on an aggregate's way to a place is decided here alone, from its item and what its source has told.

A step is what is to be asked or written, or the reason why nothing can be done; None: nothing is left to do. What is
written is written at the version that was read, so an old read does no harm; a reason holds of the newest item alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum

from cosmos_outbox.inbox.effect import (
    CLOCKS_DIFFER,
    MOST_OPEN,
    EffectItem,
    EffectRules,
    HeldBack,
    RunningEffect,
    WhyOpen,
)
from cosmos_outbox.inbox.errors import EffectRefused, EffectRunning, InboxError, NotInTurn, Settled
from cosmos_outbox.inbox.event import Event, utc


class By(Enum):
    """Who wants an aggregate to be brought to a place."""

    MESSAGE = "a message has come"
    SWEEP = "the source is there"
    OPERATOR = "an operator wants the event to be run"
    GIVING_UP = "the event of this place is given up"


@dataclass(frozen=True)
class AskSource:
    """The source has to tell its events in these places. What it does not have behind a fence is gone."""

    places: range
    fenced: bool
    since: datetime | None = None
    """Only what was written since then."""


@dataclass(frozen=True)
class EffectChange:
    """Write the item, then run the effect."""

    item: EffectItem
    run: Event | None = None


Step = AskSource | EffectChange | InboxError | None


@dataclass(frozen=True)
class EffectCall:
    """A call that brings an aggregate to a place, and all that its next step depends on."""

    rules: EffectRules
    has_source: bool
    by: By
    name: str
    """New for each call: its starts tell it."""
    place: int
    event: Event | None
    """Of that place; None: the source is asked for it too."""
    now: datetime
    item: EffectItem | None = None
    events: Mapping[int, Event] = field(default_factory=dict)
    """What the source has told since the item was read, or written."""
    held: HeldBack = field(default_factory=HeldBack)
    """What its relay held back then."""
    proven: bool | None = None
    """Whether the source has told behind a fence; None: it was not asked."""

    def over(self, item: EffectItem | None, now: datetime) -> "EffectCall":
        """The same call over the item as it is now: what it needs of the source is asked again."""
        return replace(self, now=now, item=item, events={}, held=HeldBack(), proven=None)

    def step(self) -> Step:
        """What comes next."""
        item, event = self.item, self.event
        if item is not None and self.place <= item.last:
            return None if event is None else self._passed(item, event)
        if event is not None and self.by is By.MESSAGE and self.rules.is_too_old(event, self.now):
            return EffectRefused("it is older than items live, and may have been handled")
        return self._advance(EffectItem(0, 1, self.now) if item is None else self._free(item))

    def _passed(self, item: EffectItem, event: Event) -> Step:
        """The event of a place that is passed: was it dealt with?"""
        is_given_up, why = self.by is By.GIVING_UP, _why_refused(item, event)
        if is_given_up and item.entry(self.place) is None:
            return None if why else Settled("its place is passed: it was handled, or given up before")
        if why is None or not (is_given_up or self.rules.has_effect(event)):
            return None
        if self.by is By.MESSAGE:
            return EffectRefused(why)
        free = self._free(item)
        if isinstance(free, InboxError):
            return free
        return EffectChange(free.after(self.place, self.now)) if is_given_up else self._start(free, event)

    def _free(self, item: EffectItem) -> EffectItem | InboxError:
        """The item without a start whose process is dead (``take-over``); the reason why it may live."""
        running = item.running
        if running is None:
            return item
        if item.is_running(self.now):  # young-runs
            why = "an effect of its aggregate is running, or its process just died: try again in some minutes"
            return NotInTurn(why) if self.by is By.GIVING_UP else EffectRunning(why)
        if running.sequence > item.last and not self.rules.repeatable:
            return item.after(running.sequence, self.now, running.event_id, why=WhyOpen.UNSURE)
        return replace(item, running=None, at=self.now)

    def _advance(self, item: EffectItem | InboxError) -> Step:
        """Pass what has no effect, up to the next that has one."""
        if isinstance(item, InboxError):
            return item
        while item.last < self.place:
            place = item.last + 1
            event = self.event if place == self.place and self.event else self.events.get(place)
            if event is None and self.has_source and not self.proven:  # ask-between, absence-fenced
                fenced = self.item is None or self.proven is not None
                since = None if fenced else item.last_created_at and item.last_created_at - CLOCKS_DIFFER
                return AskSource(range(place, self.place + (self.event is None)), fenced, since)
            is_new = self.item is None and item.last < item.first
            if is_new and self._is_before(event):  # begin-at
                item = EffectItem(place, place + 1, self.now)
            elif event is not None and self._has_none(event):
                event_id = "" if event.is_notice else event.id
                item = item.after(place, self.now, event_id, event.created_at)
            elif why := self._why_waits(item, place, event):  # what was passed on the way is written first
                return NotInTurn(why) if is_new or item is self.item else EffectChange(item)
            elif event is not None:
                return self._start(item, event)
            else:
                item = item.after(place, self.now, why=WhyOpen.MISSING)  # gone-is-told
        return None if self.event is None and item.first > self.place else EffectChange(item)

    def _is_before(self, event: Event | None) -> bool:
        """Whether a place is before the first: it is gone, or from before ``begin``."""
        if event is not None:
            return self.rules.is_before(event)
        return self.has_source or self.rules.begin is not None

    def _has_none(self, event: Event) -> bool:
        """Whether there is nothing to run for the event of the next place (``discards-asked``)."""
        is_given_up = self.by is By.GIVING_UP and event is self.event
        return is_given_up or event.id in self.held.discarded or not self.rules.has_effect(event)

    def _why_waits(self, item: EffectItem, place: int, event: Event | None) -> str | None:
        """Why the next place cannot be run, or told as missing."""
        if len(item.open) >= MOST_OPEN:
            return f"{MOST_OPEN} effects come first: cosmos-outbox effects"
        if event is None:
            if self.event is None:  # sweep-leaves-gone
                return f"the event of place {place} is gone, and has not come"
            by_age = self.by is By.MESSAGE and self.event.age(self.now) >= self.rules.events_live
            if not self.has_source and not by_age:  # age-gives-up
                return f"place {place} comes first, and its event has not come"
        elif event is not self.event:
            if self.held.after is not None and place > self.held.after:  # published-only
                return f"its publisher holds back place {place}"
            if self.by is By.GIVING_UP:  # only-next
                return f"place {place} comes first"
        return None

    def _start(self, item: EffectItem, event: Event) -> EffectChange:
        """``start-first``"""
        running = RunningEffect(event.sequence or 1, event.id, self.name, self.now)
        return EffectChange(replace(item, running=running, at=self.now), event)


def _why_refused(item: EffectItem, event: Event) -> str | None:
    """Why an event in a passed place is not simply one that was dealt with before."""
    place = event.sequence or 1
    if (entry := item.entry(place)) is not None:
        return f"it {entry.why}" if entry.why is WhyOpen.UNSURE else "its place was told as missing"
    if place < item.first:  # first-is-kept
        return f"the subscriber began at place {item.first} of its aggregate"
    if place == item.last and item.last_event_id:
        other = item.last_event_id != event.id
    else:  # its own clock may be ahead, as that of the last event is
        other = utc(event.created_at) > max(item.at, item.last_created_at or item.at) + CLOCKS_DIFFER
    if other and not event.is_notice:  # other-event
        return "another event was in its place (a restored store, or two publishers): see docs/operate/restore.md"
    return None

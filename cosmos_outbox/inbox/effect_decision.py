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
    Open,
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
    RESET = "after a restore, an operator wants to go on behind it"


@dataclass(frozen=True)
class AskEvents:
    """The source has to tell its events in these places. What it does not have behind a fence is gone."""

    places: range
    fenced: bool
    since: datetime | None = None
    """Only what was written since then."""


@dataclass(frozen=True)
class AskHeld:
    """The source has to tell whether the event of this place is held back, or was discarded."""

    place: int


@dataclass(frozen=True)
class EffectChange:
    """Write the item, then run the effect."""

    item: EffectItem
    run: Event | None = None


Step = AskEvents | AskHeld | EffectChange | InboxError | None


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
    item: EffectItem | None
    now: datetime
    events: Mapping[int, Event] = field(default_factory=dict)
    """What the source has told since the item was read."""
    proven: bool | None = None
    """Whether it has told them behind a fence; None: it was not asked."""
    held: HeldBack = field(default_factory=HeldBack)
    held_at: int = 0
    """The place for which that was asked."""

    def step(self) -> Step:
        """What comes next."""
        item, event = self.item, self.event
        if self.by is By.RESET:
            return self._reset(item or EffectItem(0, self.place + 1, self.now))
        if item is not None and self.place <= item.last:
            return None if event is None else self._passed(item, event)
        if event is not None and self.by is By.MESSAGE and self.rules.is_too_old(event, self.now):
            return EffectRefused("it is older than items live, and may have been handled")
        if item is None:
            return self._begin()
        return self._is_running() if item.is_running(self.now) else self._advance(self._taken_over(item))

    def _reset(self, item: EffectItem) -> Step:
        if item.is_running(self.now):
            return self._is_running()
        if item.expires and item.last == self.place and item.version:
            return None
        return EffectChange(EffectItem(self.place, item.first, self.now, version=item.version))

    def _passed(self, item: EffectItem, event: Event) -> Step:
        """The event of a place that is passed: was it dealt with?"""
        by, place = self.by, self.place
        entry = next((each for each in item.open if each.sequence == place), None)
        why = _why_refused(item, event, entry)
        if by is By.GIVING_UP and entry is None:
            return None if why else Settled("its place is passed: it was handled, or given up before")
        if why is None or (by is not By.GIVING_UP and not self.rules.has_effect(event)):
            return None
        if by not in (By.OPERATOR, By.GIVING_UP):
            return EffectRefused(why)
        if item.is_running(self.now):
            return self._is_running()
        free = self._taken_over(item)
        if by is By.GIVING_UP:
            return EffectChange(replace(free.without(place), at=self.now))
        return self._start(free, event, place)

    def _begin(self) -> Step:
        """``begin-at``: without an item, at the first place that is there and not before ``begin``."""
        place, is_sweep = self.place, self.event is None
        if not self.has_source:
            first = 1 if self.rules.begin is None else place
        elif not self.proven and (place > 1 or is_sweep):
            return self._ask(1, fenced=True)
        else:
            there = [each for each, event in self.events.items() if not self.rules.is_before(event)]
            if is_sweep and not there:
                return None
            first = min([*there, place])
        return self._advance(EffectItem(first - 1, first, self.now))

    def _is_running(self) -> Step:
        """``young-runs``"""
        why = "an effect of its aggregate is running, or its process just died: try again in some minutes"
        return NotInTurn(why) if self.by is By.GIVING_UP else EffectRunning(why)

    def _taken_over(self, item: EffectItem) -> EffectItem:
        """``take-over``: who has started it is dead. What an operator had run again has its entry still."""
        running = item.running
        if running is None:
            return item
        asked = self.by in (By.OPERATOR, By.GIVING_UP) and running.sequence == self.place
        if running.sequence > item.last and not self.rules.repeatable and not asked:
            return item.told(running.sequence, running.event_id, WhyOpen.UNSURE, self.now)
        return replace(item, running=None, at=self.now)

    def _advance(self, item: EffectItem) -> Step:
        """Pass what has no effect, up to the next that has one."""
        while item.last < self.place:
            place = item.last + 1
            event = self.event if place == self.place and self.event else self.events.get(place)
            if event is not None and self._has_none(event):
                item = item.passed(event, self.now)
                continue
            first = self._before(item, event, place) if event else self._before_gap(item, place)
            if first is None and len(item.open) >= MOST_OPEN:
                first = self._wait(item, f"{MOST_OPEN} effects come first: cosmos-outbox effects")
            if first is not None:
                return first
            if event is not None:
                return self._start(item, event, place)
            item = item.told(place, "", self._why_gone(place), self.now)  # gone-is-told
        return EffectChange(item)

    def _has_none(self, event: Event) -> bool:
        """Whether there is nothing to run for the event of the next place."""
        is_given_up = self.by is By.GIVING_UP and event is self.event
        return is_given_up or event.id in self.held.discarded or not self.rules.has_effect(event)

    def _before_gap(self, item: EffectItem, place: int) -> Step:
        """What comes before a place is told as missing; None: nothing does."""
        if self.has_source and self.proven is None:  # ask-between
            return self._ask(place, since=item.last_created_at)
        if self.has_source and not self.proven:  # absence-fenced
            return self._ask(place, fenced=True)
        if self.event is None:  # sweep-leaves-gone
            return self._wait(item, f"the event of place {place} is gone, and has not come")
        by_age = self.by is By.MESSAGE and self.event.age(self.now) >= self.rules.events_live
        if not self.has_source and not by_age:  # age-gives-up
            return self._wait(item, f"place {place} comes first, and its event has not come")
        return None

    def _before(self, item: EffectItem, event: Event, place: int) -> Step:
        """What comes before the effect of an event that was not brought, but fetched; None: nothing does."""
        if event is self.event:
            return None
        if self.held_at != place:  # discards-asked
            return AskHeld(place)
        if self.held.after is not None and place > self.held.after:  # published-only
            return self._wait(item, f"its publisher holds back place {place}")
        if self.by is By.GIVING_UP:  # only-next
            return self._wait(item, f"place {place} comes first")
        return None

    def _ask(self, place: int, *, fenced: bool = False, since: datetime | None = None) -> AskEvents:
        end = self.place + (self.event is None)
        return AskEvents(range(place, end), fenced, since and since - CLOCKS_DIFFER)

    def _why_gone(self, place: int) -> WhyOpen:
        running = self.item and self.item.running
        return WhyOpen.UNSURE if running and running.sequence == place else WhyOpen.MISSING

    def _wait(self, item: EffectItem, why: str) -> Step:
        """What was passed on the way is written first."""
        is_new = self.item is None and item.last < item.first
        return NotInTurn(why) if item is self.item or is_new else EffectChange(item)

    def _start(self, item: EffectItem, event: Event, place: int) -> Step:
        """``start-first``"""
        running = RunningEffect(place, event.id, self.name, self.now)
        return EffectChange(replace(item, running=running, at=self.now), event)


def _why_refused(item: EffectItem, event: Event, entry: Open | None) -> str | None:
    """Why an event in a passed place is not simply one that was dealt with before."""
    place = event.sequence or 1
    if entry is not None:
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

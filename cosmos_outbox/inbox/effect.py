"""What a subscriber remembers of an aggregate's effects is one item, and each step is one conditional write of it.

Every place up to ``last`` is dealt with. Nothing waits in the item: what waits is a message, and an event that nobody
brings is fetched from the source. The rules have names, which ``docs/internals/decisions/0018-effects.md`` explains.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from cosmos_outbox.inbox.event import Event, utc
from cosmos_outbox.kernel.aggregate_key import AggregateKey

MOST_OPEN = 20
"""So many places of an aggregate an operator has to look at, at most: then the aggregate is held up."""

EFFECT_SECONDS = 30.0
"""The longest that an effect may take."""

AWAY_SECONDS = 15.0
"""How long a call tries an effect again while its service is away, without a write."""

AROUND = timedelta(seconds=37.5)
"""The longest from the decision to the effect, and from the effect's end to its record."""

CALL = 2 * AROUND + timedelta(seconds=EFFECT_SECONDS + AWAY_SECONDS)
"""The longest from the decision to start an effect to its record (``calls-end``)."""

CLOCKS_DIFFER = timedelta(minutes=1)

MARGIN = timedelta(days=1)
"""For clocks that differ, and for a message that is on its way."""

Effect = Callable[[Event], Awaitable[None]]
"""Runs the effect, with ``event.id`` as its idempotency key. Raises EffectAway where nobody can be served now, and
EffectNotDone where this one surely was not done; after any other error the effect may have taken place."""


class WhyOpen(StrEnum):
    """Why an operator has to look at a place that is passed."""

    UNSURE = "may have been handled"
    MISSING = "missing"


@dataclass(frozen=True)
class RunningEffect:
    """An effect that was started: its process runs it, or has died."""

    sequence: int
    event_id: str
    by: str
    """The call that has started it."""
    at: datetime


@dataclass(frozen=True)
class Open:
    """A place that is passed, of which an operator has to know."""

    sequence: int
    event_id: str
    why: WhyOpen
    at: datetime


@dataclass(frozen=True)
class EffectItem:
    """How far one aggregate's effects have come."""

    last: int
    """Every place up to this one is dealt with."""
    first: int
    """The place at which the subscriber began."""
    at: datetime
    """When it was written."""
    last_event_id: str = ""
    """Empty: of a notice, or not known."""
    last_created_at: datetime | None = None
    running: RunningEffect | None = None
    open: tuple[Open, ...] = ()
    version: str | None = None
    """None: not stored yet."""

    @property
    def expires(self) -> bool:
        """Whether nobody has to know of it any more, after some time (``open-stays``)."""
        return self.running is None and not self.open

    def is_running(self, now: datetime) -> bool:
        """Whether an effect was started, and its process may be alive (``young-runs``)."""
        return self.running is not None and now - self.running.at < CALL

    def entry(self, place: int) -> Open | None:
        """What an operator is told of that place."""
        return next((each for each in self.open if each.sequence == place), None)

    def after(
        self,
        place: int,
        now: datetime,
        event_id: str = "",
        created_at: datetime | None = None,
        why: WhyOpen | None = None,
    ) -> "EffectItem":
        """With that place dealt with, and nothing running; ``why``: an operator is told of it (``gone-is-told``)."""
        others = tuple(each for each in self.open if each.sequence != place)
        told = () if why is None else (Open(place, event_id, why, now),)
        free = replace(self, running=None, open=(*others, *told), at=now)
        if place <= self.last:
            return free
        created_at = utc(created_at) if created_at else self.last_created_at
        return replace(free, last=place, last_event_id=event_id, last_created_at=created_at)


@dataclass(frozen=True)
class EffectRules:
    """What a subscriber chooses, and how long what it needs is kept."""

    events_live: timedelta
    """How long a stored event lives."""
    items_live: timedelta
    """How long an item lives after its last write: longer than a message of its aggregate can still come."""
    kinds: frozenset[str] | None = None
    """The events that have an effect, by name; None: all."""
    repeatable: bool = True
    """Whether an effect that may have taken place is run again by itself; else an operator is told."""
    begin: datetime | None = None
    """Earlier events are not for this subscriber; None: it begins with the first event of each aggregate."""

    def is_before(self, event: Event) -> bool:
        """Whether the event is from before the subscriber's time."""
        return self.begin is not None and utc(event.created_at) < self.begin

    def has_effect(self, event: Event) -> bool:
        """Whether anything is to be done for the event, whenever it comes."""
        ours = self.kinds is None or event.action in self.kinds
        return ours and not event.is_notice and not self.is_before(event)

    def is_too_old(self, event: Event, now: datetime) -> bool:
        """Whether the item may have expired since the effect was run (``too-old``)."""
        return self.has_effect(event) and event.age(now) >= self.items_live - MARGIN


@dataclass(frozen=True)
class HeldBack:
    """What the publisher's relay holds back, or has given up."""

    after: int | None = None
    """Later places wait to be published; None: nothing does."""
    discarded: Collection[str] = field(default_factory=frozenset)
    """The ids of events that an operator of the publisher gave up."""


class EffectItems(Protocol):
    """The items of one subscriber. Every call raises StoreAway when it was not answered."""

    async def read(self, key: AggregateKey, *, fenced: bool) -> EffectItem | None:
        """An aggregate's item. Unless fenced, it may be old, and its absence too."""

    async def write(self, key: AggregateKey, item: EffectItem) -> EffectItem:
        """Store it over its version (None: only if there is none). Returns it with its new version.

        An earlier attempt whose answer was lost may have stored it: that is RecordChanged as well.

        Raises RecordChanged: it is at another version.
        """

    async def page(
        self, size: int, position: str | None, *, unfinished: bool
    ) -> tuple[Sequence[tuple[AggregateKey, EffectItem]], str | None]:
        """A page of the items, or of those with something open or running; where it goes on. It may be old."""


class EffectSource(Protocol):
    """The publisher's stored events. Every call raises StoreAway when it was not answered."""

    async def events(
        self, key: AggregateKey, places: range, since: datetime | None, *, fenced: bool
    ) -> Sequence[Event]:
        """Those of an aggregate in these places, written since then. Only what a fenced read lacks is gone."""

    async def held(self, key: AggregateKey) -> HeldBack:
        """What the relay holds back of an aggregate, behind a fence."""

    async def last(self, key: AggregateKey) -> int | None:
        """The aggregate's last place, behind a fence; None: it is not told."""

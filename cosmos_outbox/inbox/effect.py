"""What a subscriber remembers of an aggregate's effects is one item, and each step is one conditional write of it.

Every place up to ``last`` is dealt with. Nothing waits in the item: what waits is a message, and an event that nobody
brings is fetched from the source. The rules have names, which ``docs/internals/decisions/0018-effects.md`` explains.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from typing import Protocol

from cosmos_outbox.inbox.event import Event, utc
from cosmos_outbox.kernel.aggregate_key import AggregateKey

MOST_OPEN = 20
"""So many places of an aggregate an operator has to look at, at most: then the aggregate is held up."""

AWAY_SECONDS = 15.0
"""How long a call tries an effect again while its service is away, without a write."""

MARGIN = timedelta(days=1)
"""For clocks that differ, and for a message that is on its way."""

Effect = Callable[[Event], Awaitable[None]]
"""Runs the effect, with ``event.id`` as its idempotency key. Raises EffectAway where nobody can be served now, and
EffectNotDone where this one surely was not done; after any other error the effect may have taken place."""


class Unsure(Enum):
    """What is done about an effect that may have taken place: a process died while it ran, or its answer was lost."""

    RUN_AGAIN = "run it again: the service that is called knows the event's id"
    SET_ASIDE = "do not run it again; tell an operator"


class WhyOpen(StrEnum):
    """WhyOpen an operator has to look at a place that is passed."""

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


@dataclass(frozen=True)
class EffectRules:
    """What a subscriber chooses, and how long it takes. ValueError: it does not fit together."""

    events_live: timedelta
    """How long a stored event lives."""
    items_live: timedelta
    """How long an item lives after its last write: longer than a message of its aggregate can still come."""
    kinds: frozenset[str] | None = None
    """The events that have an effect, by name; None: all."""
    unsure: Unsure = Unsure.RUN_AGAIN
    begin: datetime | None = None
    """Earlier events are not for this subscriber; None: it begins with the first event of each aggregate."""
    effect_seconds: float = 30.0
    """The longest that an effect may take."""
    call_seconds: float = 120.0
    """The longest from the decision to start an effect to its record (``calls-end``)."""

    def __post_init__(self) -> None:
        if self.items_live <= self.events_live + 2 * MARGIN:
            raise ValueError(
                f"items live for {self.items_live}, and events for {self.events_live}: let items live longer"
            )
        if self.around_seconds < self.effect_seconds:
            raise ValueError("a call must allow its effect, and the writes before and after it, enough time")

    def has_effect(self, event: Event) -> bool:
        """Whether anything is to be done for the event, whenever it comes."""
        if event.is_notice or (self.begin is not None and utc(event.created_at) < self.begin):
            return False
        return self.kinds is None or event.action in self.kinds

    def is_too_old(self, event: Event, now: datetime) -> bool:
        """Whether the item of an event may have expired since the event was handled (``too-old``)."""
        return event.age(now) >= self.items_live - MARGIN

    @property
    def around_seconds(self) -> float:
        """The longest from the decision to the effect, and from the effect's end to its record."""
        return (self.call_seconds - self.effect_seconds - AWAY_SECONDS) / 2


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

    async def list_unfinished(
        self, size: int, position: str | None
    ) -> tuple[Sequence[tuple[AggregateKey, EffectItem]], str | None]:
        """A page of the items with something open or running, and where it goes on. It may be old."""


class EffectSource(Protocol):
    """The publisher's stored events. Every call raises StoreAway when it was not answered."""

    async def events(
        self, key: AggregateKey, places: range, since: datetime | None, *, fenced: bool
    ) -> Sequence[Event]:
        """Those of an aggregate in these places, written since then. Only what a fenced read lacks is gone."""

    async def first(self, key: AggregateKey, before: int, begin: datetime | None) -> int | None:
        """The first place before this one whose event is there and not before ``begin``, behind a fence."""

    async def held(self, key: AggregateKey) -> HeldBack:
        """What the relay holds back of an aggregate, behind a fence."""

    async def last(self, key: AggregateKey) -> int | None:
        """The aggregate's last place, behind a fence; None: it is not told."""

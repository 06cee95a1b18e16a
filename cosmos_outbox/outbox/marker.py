"""The marker of an aggregate says whether its events are parked, and which events need no second sending.

A marker is a value: its methods give the marker that is to be stored. The parking lot stores a marker only over the
version that was read, in one transaction with the parked events that the change is about, and keeps the count of those
events itself. The rules have names, which ``docs/internals/decisions/0009-parking.md`` explains and
``tests/models/parking.py`` turns off one by one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.feed import FeedEvent, unsequenced_place
from cosmos_outbox.outbox.unit_of_work import ETag

Place = tuple[int, bool, tuple[int, str, str]]
"""Where a parked event has its turn: after which sequence, and for an event without one, its place behind that."""


class Fate(Enum):
    """What is done with an event that the feed delivers."""

    SEND = "nothing is in its way"
    SEND_AGAIN = "the broker has its place in the order: it is sent again under its own id, and may get lost"
    PARK = "it waits behind a parked event"
    DROP = "an operator gave it up"


@dataclass(frozen=True)
class Refusal:
    """The event that the broker refused last."""

    event_id: str
    reason: str
    attempts: int
    at: datetime
    """The time of the last attempt (UTC)."""
    passing: bool = False
    """Whether the broker may take it later: the upkeep tries it again and again, and nobody has to do anything."""


@dataclass(frozen=True)
class Marker:
    """What is known of an aggregate that is, or was lately, parked. An aggregate without a marker is free."""

    aggregate: AggregateKey
    version: ETag = ""
    """As it was read; empty: the marker is not stored."""
    blocked_since: datetime | None = None
    """None: the aggregate is free (UTC)."""
    refusal: Refusal | None = None
    stands: bool = False
    """Whether the refused event is in the way. A replay takes it out of the way before it sends anything."""
    replay: str | None = None
    """The id of the replay that sends; None: none does."""
    replay_until: datetime | None = None
    """From then on the replay is taken for dead, and another one may begin (UTC)."""
    accepted: int = 0
    """The highest sequence that the broker accepted, as far as the marker tells."""
    tail: int = 0
    """The highest sequence that was accepted or parked: an event without a sequence is parked behind it."""
    waiting: int = 0
    """How many events are parked."""
    discarded: Mapping[str, datetime] = field(default_factory=dict)
    """The ids of events that an operator gave up, each with the time."""
    passed: Mapping[str, datetime] = field(default_factory=dict)
    """The ids of events without a sequence that the broker accepted, each with the time."""

    @property
    def blocked(self) -> bool:
        """Whether the aggregate's events are parked."""
        return self.blocked_since is not None

    @property
    def in_the_way(self) -> str | None:
        """The id of the event that has to be mended or discarded before the others can be sent."""
        return self.refusal.event_id if self.blocked and self.refusal and self.stands else None

    def is_replayed(self, now: datetime) -> bool:
        """Whether a replay may be sending events at this moment."""
        return self.replay_until is not None and now < self.replay_until

    def fate(self, event: FeedEvent) -> Fate:
        """Rules ``remember-discarded`` and ``remember-accepted``: a page that comes again undoes nothing."""
        if event.id in self.discarded:
            return Fate.DROP
        if self.has_place_of(event):
            return Fate.SEND_AGAIN
        return Fate.PARK if self.blocked else Fate.SEND

    def has_place_of(self, event: FeedEvent) -> bool:
        """Whether the broker has accepted an event in this one's place."""
        return event.id in self.passed or (event.sequence is not None and event.sequence <= self.accepted)

    def with_accepted(self, events: Iterable[FeedEvent], now: datetime) -> "Marker":
        """The broker has these events."""
        accepted, passed = self.accepted, dict(self.passed)
        for event in events:
            if event.sequence is None:
                passed[event.id] = now
            else:
                accepted = max(accepted, event.sequence)
        return replace(self, accepted=accepted, tail=max(self.tail, accepted), passed=passed)

    def with_parked(self, events: Sequence[FeedEvent]) -> tuple["Marker", list[Place]]:
        """Events, in order, are parked. Returns the place of each, too."""
        places: list[Place] = []
        after = self.tail
        for event in events:
            if event.sequence is None:
                places.append((after, True, unsequenced_place(event)))
            else:
                after = event.sequence
                places.append((after, False, (0, "", "")))
        return replace(self, tail=max(self.tail, after)), places

    def block(
        self,
        event: FeedEvent,
        reason: str,
        sent: Iterable[FeedEvent],
        now: datetime,
        *,
        passing: bool = False,
    ) -> "Marker":
        """The broker refused the event after it had accepted ``sent``. Rule ``ids-survive``: nothing is forgotten."""
        refusal = Refusal(event.id, reason, attempts=1, at=now, passing=passing)
        return replace(self.with_accepted(sent, now), blocked_since=now, refusal=refusal, stands=True)

    def claimed(self, replay: str, until: datetime) -> "Marker":
        """Rules ``one-replay`` and ``replay-clears-name``: nobody else replays, and nobody discards, ``until`` then."""
        return replace(self, stands=False, replay=replay, replay_until=until)

    def given_back(self) -> "Marker":
        """The replay ended before all was sent."""
        return replace(self, replay=None, replay_until=None)

    def in_vain(self, now: datetime) -> "Marker":
        """The replay ended before it had sent anything: an event that is tried by itself has a longer pause now."""
        given_back = self.given_back()
        if self.refusal is None or not self.refusal.passing:
            return given_back
        return replace(given_back, refusal=replace(self.refusal, attempts=self.refusal.attempts + 1, at=now))

    def refused(self, event_id: str, reason: str, now: datetime, *, passing: bool) -> "Marker":
        """The replay ended at an event that the broker refuses."""
        before = self.refusal.attempts if self.refusal and self.refusal.event_id == event_id else 0
        refusal = Refusal(event_id, reason, before + 1, now, passing)
        return replace(self.given_back(), refusal=refusal, stands=True)

    def with_discarded(self, event_id: str, now: datetime) -> "Marker":
        """The event in the way is given up; the notice in its place can be sent."""
        refusal = replace(self.refusal, passing=False) if self.refusal else None
        return replace(self, stands=False, refusal=refusal, discarded={**self.discarded, event_id: now})

    def freed(self) -> "Marker":
        """Rule ``end-at-zero``: nothing waits any more. The marker goes on telling what was accepted and discarded."""
        return replace(self.given_back(), blocked_since=None, refusal=None, stands=False)

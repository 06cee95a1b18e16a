"""Decides, by an aggregate's block, whether its events are sent, sent again, parked or dropped.

A block is an immutable value: its methods return the block to be stored. The parking lot stores a block only over
the version that was read, in one transaction with the parked events that the change concerns, and counts those events
itself. ``docs/internals/decisions/0009-parking.md`` explains the named rules; ``tests/models/parking.py`` turns them
off one by one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from enum import Enum

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate import ETag
from cosmos_outbox.outbox.feed import FeedEvent, unsequenced_place

Place = tuple[int, bool, tuple[int, str, str]]
"""The sort key of a parked event: the sequence it follows, and for an event without one its order behind that."""


class BlockDecision(Enum):
    """The decision on an event that the feed delivers."""

    SEND = "nothing is in its way"
    SEND_AGAIN = "the broker has its place in the order: it is sent again under its own id, and may get lost"
    PARK = "it waits behind a parked event"
    DROP = "an operator gave it up"


@dataclass(frozen=True)
class Refusal:
    """The last refusal of an event by the broker."""

    event_id: str
    reason: str
    attempts: int
    at: datetime
    """The time of the last attempt (UTC)."""
    passing: bool = False
    """Whether the broker may accept it later: the upkeep then retries it without an operator."""


@dataclass(frozen=True)
class AggregateBlock:
    """The state of an aggregate that is, or was lately, parked. An aggregate without a block is not blocked."""

    aggregate: AggregateKey
    version: ETag = ""
    """The version that was read; empty: the block is not stored."""
    blocked_since: datetime | None = None
    """The begin of the block (UTC); None: the aggregate is not blocked."""
    refusal: Refusal | None = None
    stands: bool = False
    """Whether the refused event blocks the aggregate. A replay resets it before it sends anything."""
    replay: str | None = None
    """The id of the running replay; None: none is running."""
    replay_until: datetime | None = None
    """The time (UTC) from which the replay counts as dead, and another one may begin."""
    accepted: int = 0
    """The highest sequence that the broker accepted, as far as the block has recorded."""
    tail: int = 0
    """The highest sequence that was accepted or parked: an event without a sequence is parked behind it."""
    waiting: int = 0
    """The number of parked events."""
    discarded: Mapping[str, datetime] = field(default_factory=dict)
    """The ids of events that were discarded, each with the time."""
    passed: Mapping[str, datetime] = field(default_factory=dict)
    """The ids of events without a sequence that the broker accepted, each with the time."""

    @property
    def blocked(self) -> bool:
        """Whether the aggregate's events are parked."""
        return self.blocked_since is not None

    @property
    def in_the_way(self) -> str | None:
        """The id of the event that must be repaired or discarded before the others can be sent."""
        return self.refusal.event_id if self.blocked and self.refusal and self.stands else None

    def is_replayed(self, now: datetime) -> bool:
        """Whether a replay may be sending events now."""
        return self.replay_until is not None and now < self.replay_until

    def decide(self, event: FeedEvent) -> BlockDecision:
        """Decides an event; a redelivered page undoes nothing (``remember-discarded``, ``remember-accepted``)."""
        if event.id in self.discarded:
            return BlockDecision.DROP
        if self.has_place_of(event):
            return BlockDecision.SEND_AGAIN
        return BlockDecision.PARK if self.blocked else BlockDecision.SEND

    def has_place_of(self, event: FeedEvent) -> bool:
        """Whether the broker has accepted this event, or a later one of its aggregate."""
        return event.id in self.passed or (event.sequence is not None and event.sequence <= self.accepted)

    def with_accepted(self, events: Iterable[FeedEvent], now: datetime) -> "AggregateBlock":
        """Records that the broker has these events."""
        accepted, passed = self.accepted, dict(self.passed)
        for event in events:
            if event.sequence is None:
                passed[event.id] = now
            else:
                accepted = max(accepted, event.sequence)
        return replace(self, accepted=accepted, tail=max(self.tail, accepted), passed=passed)

    def with_parked(self, events: Sequence[FeedEvent]) -> tuple["AggregateBlock", list[Place]]:
        """Records that events, in order, are parked. Also returns the sort key of each."""
        places: list[Place] = []
        after = self.tail
        for event in events:
            if event.sequence is None:
                places.append((after, True, unsequenced_place(event)))
            else:
                after = event.sequence
                places.append((after, False, (0, "", "")))
        return replace(self, tail=max(self.tail, after)), places

    def blocked_by(
        self,
        event: FeedEvent,
        reason: str,
        sent: Iterable[FeedEvent],
        now: datetime,
        *,
        passing: bool = False,
    ) -> "AggregateBlock":
        """Records that the broker accepted ``sent`` and then refused the event. Recorded ids stay (``ids-survive``)."""
        refusal = Refusal(event.id, reason, attempts=1, at=now, passing=passing)
        return replace(self.with_accepted(sent, now), blocked_since=now, refusal=refusal, stands=True)

    def claimed(self, replay: str, until: datetime) -> "AggregateBlock":
        """Claims the block: no other replay or discarding until then (``one-replay``, ``replay-clears-name``)."""
        return replace(self, stands=False, replay=replay, replay_until=until)

    def released(self) -> "AggregateBlock":
        """Records that the replay ended before all events were sent."""
        return replace(self, replay=None, replay_until=None)

    def backed_off(self, now: datetime) -> "AggregateBlock":
        """Records that the replay ended without sending anything; an automatic retry gets a longer pause."""
        released = self.released()
        if self.refusal is None or not self.refusal.passing:
            return released
        return replace(released, refusal=replace(self.refusal, attempts=self.refusal.attempts + 1, at=now))

    def refused(self, event_id: str, reason: str, now: datetime, *, passing: bool) -> "AggregateBlock":
        """Records that the replay ended at an event that the broker refused."""
        before = self.refusal.attempts if self.refusal and self.refusal.event_id == event_id else 0
        refusal = Refusal(event_id, reason, before + 1, now, passing)
        return replace(self.released(), refusal=refusal, stands=True)

    def with_discarded(self, event_id: str, now: datetime) -> "AggregateBlock":
        """Records that the blocking event is discarded; the skip marker in its place can be sent."""
        refusal = replace(self.refusal, passing=False) if self.refusal else None
        return replace(self, stands=False, refusal=refusal, discarded={**self.discarded, event_id: now})

    def unblocked(self) -> "AggregateBlock":
        """Unblocks the aggregate when nothing waits (``end-at-zero``). Accepted and discarded events stay recorded."""
        return replace(self.released(), blocked_since=None, refusal=None, stands=False)

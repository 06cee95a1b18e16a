"""An event document of the feed is ready to be sent, or poison, or waits for its original; no document is skipped.

Poison can never be sent as it is, and is parked.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from outbox.aggregate import AggregateKey

Position = tuple[int, int]
"""An event's place in the change feed: LSN, then sequence. A later event of an aggregate has a greater position."""

Document = Mapping[str, Any]
"""An event as it is stored. A document holds personal data: never log it."""


@dataclass(frozen=True)
class Lifetime:
    """When a stored event expires: ``ttl_seconds`` after ``written_at`` (seconds since 1970)."""

    written_at: int
    ttl_seconds: int


@dataclass(frozen=True)
class OutboxEvent:
    """An event to be sent: the values by which it is ordered and addressed, and its stored document."""

    id: str
    aggregate: AggregateKey
    action: str
    sequence: int
    created_at: datetime
    correlation_id: str | None = None
    traceparent: str | None = None
    lsn: int = 0
    """The log sequence number of the transaction that stored the event."""
    lifetime: Lifetime | None = None
    """None: the event does not expire."""
    data: Document = field(default_factory=dict, repr=False)
    """The part of the document that subscribers get."""
    document: Document = field(default_factory=dict, repr=False)

    @property
    def position(self) -> Position:
        """The event's place among the events of its aggregate."""
        return self.lsn, self.sequence


@dataclass(frozen=True)
class Poison:
    """A document that is marked as an event and is no valid event. ``reason`` carries no personal data."""

    id: str
    aggregate: AggregateKey | None
    """None: the document does not tell its aggregate."""
    reason: str
    lsn: int = 0
    lifetime: Lifetime | None = None
    document: Document = field(default_factory=dict, repr=False)

    @property
    def position(self) -> Position:
        """Before every event of the same transaction: the document's true place in the transaction is not known."""
        return self.lsn, 0


@dataclass(frozen=True)
class Unread:
    """An event whose original could not be read just now: it waits, and so do all behind it."""

    event: OutboxEvent | Poison
    """The event as it was delivered: good enough to tell its place, not to be sent."""
    reason: str

    @property
    def id(self) -> str:
        """The delivered event's id."""
        return self.event.id

    @property
    def aggregate(self) -> AggregateKey | None:
        """The delivered event's aggregate."""
        return self.event.aggregate

    @property
    def position(self) -> Position:
        """The delivered event's place."""
        return self.event.position

    @property
    def lifetime(self) -> Lifetime | None:
        """When the delivered event expires."""
        return self.event.lifetime

    @property
    def document(self) -> Document:
        """What was delivered."""
        return self.event.document


FeedEvent = OutboxEvent | Poison | Unread


def by_aggregate(events: Iterable[FeedEvent]) -> dict[AggregateKey | None, list[FeedEvent]]:
    """Each aggregate's events in the order of its changes; documents that belong to no aggregate under None."""
    groups: defaultdict[AggregateKey | None, list[FeedEvent]] = defaultdict(list)
    for event in events:
        groups[event.aggregate].append(event)
    return {aggregate: in_order(group) for aggregate, group in groups.items()}


def in_order(events: Sequence[FeedEvent]) -> list[FeedEvent]:
    """One aggregate's events by sequence. Poison has no sequence: its LSN decides its place among the others."""
    ordered = sorted((event for event in events if _sequence(event)), key=_sequence)
    others = sorted((event for event in events if not _sequence(event)), key=lambda event: event.position)
    for poison in others:
        lsn = poison.position[0]
        place = next((place for place, event in enumerate(ordered) if event.position[0] >= lsn), len(ordered))
        ordered.insert(place, poison)
    return ordered


def _sequence(event: FeedEvent) -> int:
    delivered = event.event if isinstance(event, Unread) else event
    return delivered.sequence if isinstance(delivered, OutboxEvent) else 0

"""An event as the change feed delivers it: ready to be sent, poison, or waiting for its original to be read.

Poison can never be sent as it is; poison is parked, never skipped.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from outbox.aggregate import AggregateKey

Position = tuple[int, int]
"""Where in the change feed an event is: LSN, then sequence. Later events of an aggregate have greater ones."""

Document = Mapping[str, Any]
"""An event as the store keeps it: personal data, never in a log."""


@dataclass(frozen=True)
class Lifetime:
    """When a stored event expires: ``ttl_seconds`` after ``written_at`` (seconds since 1970)."""

    written_at: int
    ttl_seconds: int


@dataclass(frozen=True)
class OutboxEvent:
    """An event on its way out: what is needed to order and address it, and the document that it came in."""

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
    """What subscribers get."""
    document: Document = field(default_factory=dict, repr=False)

    @property
    def position(self) -> Position:
        """The event's place among the events of its aggregate."""
        return self.lsn, self.sequence


@dataclass(frozen=True)
class Poison:
    """A document that says it is an event and is not a valid one. ``reason`` carries no personal data."""

    id: str
    aggregate: AggregateKey | None
    """None when the document does not tell."""
    reason: str
    lsn: int = 0
    lifetime: Lifetime | None = None
    document: Document = field(default_factory=dict, repr=False)

    @property
    def position(self) -> Position:
        """Before every event of its transaction: whether the document was to come before them cannot be known."""
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
    """Each aggregate's events in the order of its changes; under None what belongs to no aggregate."""
    groups: defaultdict[AggregateKey | None, list[FeedEvent]] = defaultdict(list)
    for event in events:
        groups[event.aggregate].append(event)
    return {aggregate: in_order(group) for aggregate, group in groups.items()}


def in_order(events: Sequence[FeedEvent]) -> list[FeedEvent]:
    """One aggregate's events by sequence; poison, which has none, by the place in the feed where it was written."""
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

"""An event as the change feed delivers it: either all that is needed to order and address it is known, or it is poison.

What is poison can never be sent as it is; it is parked, never skipped.
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


FeedEvent = OutboxEvent | Poison


def by_aggregate(events: Iterable[FeedEvent]) -> dict[AggregateKey | None, list[FeedEvent]]:
    """Each aggregate's events in the order of its changes; under None what belongs to no aggregate."""
    groups: defaultdict[AggregateKey | None, list[FeedEvent]] = defaultdict(list)
    for event in events:
        groups[event.aggregate].append(event)
    return {aggregate: in_order(group) for aggregate, group in groups.items()}


def in_order(events: Sequence[FeedEvent]) -> list[FeedEvent]:
    """One aggregate's events by sequence; poison, which has none, by the place in the feed where it was written."""
    valid = sorted(
        (event for event in events if isinstance(event, OutboxEvent)), key=lambda event: event.sequence
    )
    ordered: list[FeedEvent] = [*valid]
    for poison in sorted(
        (event for event in events if isinstance(event, Poison)), key=lambda event: event.lsn
    ):
        place = next((place for place, event in enumerate(ordered) if event.lsn >= poison.lsn), len(ordered))
        ordered.insert(place, poison)
    return ordered

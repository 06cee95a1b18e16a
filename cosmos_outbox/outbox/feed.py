"""Classifies the feed's event documents: sendable, poison, or waiting for its original; no document is skipped.

Poison can never be sent as it is, and is parked.

A skip marker replaces a discarded event, so that subscribers see no gap, and contains nothing of that event.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields
from datetime import datetime
from typing import Any, ClassVar, Literal
from uuid import UUID, uuid5

from pydantic import Field

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.errors import FailureReason
from cosmos_outbox.outbox.event import Timestamp, WireModel

_MOST_NAMED = 10
"""The maximum number of requests in a log line."""

Document = Mapping[str, Any]
"""An event as it is stored. A document holds personal data: never log it."""


@dataclass(frozen=True)
class StoredEvent:
    """An event document of the feed: its identity, its place in the order, and the document itself."""

    id: str
    aggregate: AggregateKey | None
    """None: the document does not name its aggregate."""
    sequence: int | None = field(default=None, kw_only=True)
    """None: the event is unsequenced, and ordered by ``lsn``, ``created_at`` and ``id``; or it is not valid."""
    lsn: int = field(default=0, kw_only=True)
    """The log sequence number of the transaction that stored the event."""
    partition: str = field(default="", kw_only=True)
    """The name of the partition in which the event is stored; empty: unknown."""
    document: Document = field(default_factory=dict, repr=False, kw_only=True)

    def stored(self) -> dict[str, Any]:
        """Returns the fields that every kind of event has, by name."""
        return {each.name: getattr(self, each.name) for each in fields(StoredEvent)}


@dataclass(frozen=True)
class OutboxEvent(StoredEvent):
    """An event to be sent: the values that order and address it, and its stored document."""

    aggregate: AggregateKey
    action: str
    created_at: datetime
    """The time of the change (UTC)."""
    correlation_id: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    schema_version: int | None = None
    """The version of the schema of ``data``; None: the document does not contain it."""
    message_id: str | None = None
    """The id under which a published event is published again; None: the event's own id."""
    data: Document = field(default_factory=dict, repr=False)
    """The part of the document that subscribers get."""


@dataclass(frozen=True)
class Poison(StoredEvent):
    """A document that is marked as an event but is not valid, or cannot be verified."""

    reason: str
    """It contains no personal data."""


@dataclass(frozen=True)
class Unread(StoredEvent):
    """An event whose original could not be read: it waits, and so do all behind it."""

    event: OutboxEvent | Poison
    """The event as delivered: sufficient for its order, but not to be sent."""
    reason: str
    why: FailureReason = FailureReason.STORE_AWAY

    @classmethod
    def of(
        cls, event: OutboxEvent | Poison, reason: str, why: FailureReason = FailureReason.STORE_AWAY
    ) -> "Unread":
        """Returns a delivered event as one that waits."""
        return cls(**event.stored(), event=event, reason=reason, why=why)


FeedEvent = OutboxEvent | Poison | Unread


def caused_by(*events: FeedEvent) -> str:
    """Returns the end of a log line: the correlation ids of the requests that caused the events."""
    delivered = [event.event if isinstance(event, Unread) else event for event in events[:_MOST_NAMED]]
    ids = [
        event.correlation_id for event in delivered if isinstance(event, OutboxEvent) and event.correlation_id
    ]
    return "".join(f" [{one}]" for one in dict.fromkeys(ids))


def by_aggregate(events: Iterable[FeedEvent]) -> dict[AggregateKey | None, list[FeedEvent]]:
    """Groups events by aggregate, each in the order of its changes; documents without an aggregate under None."""
    groups: defaultdict[AggregateKey | None, list[FeedEvent]] = defaultdict(list)
    for event in events:
        groups[event.aggregate].append(event)
    return {aggregate: in_order(group) for aggregate, group in groups.items()}


def still_of(aggregate: AggregateKey, event: FeedEvent) -> FeedEvent:
    """Returns an event that was read again; poison if its stored document now belongs to another aggregate."""
    if event.aggregate == aggregate:
        return event
    reason = "the stored document belongs to another aggregate now, or to none"
    return Poison(**{**event.stored(), "aggregate": aggregate, "sequence": None}, reason=reason)


def in_order(events: Sequence[FeedEvent]) -> list[FeedEvent]:
    """Orders one aggregate's events by sequence. An event without one is placed among the others by its LSN."""
    unsequenced = deque(sorted((event for event in events if event.sequence is None), key=unsequenced_place))
    ordered = []
    for event in sorted((event for event in events if event.sequence is not None), key=_sequence):
        while unsequenced and unsequenced[0].lsn <= event.lsn:
            ordered.append(unsequenced.popleft())
        ordered.append(event)
    return [*ordered, *unsequenced]


def unsequenced_place(event: FeedEvent) -> tuple[int, str, str]:
    """Returns the sort key of an event without a sequence: LSN, time and id."""
    delivered = event.event if isinstance(event, Unread) else event
    if isinstance(delivered, Poison):  # its place within its transaction is unknown: it goes first
        return event.lsn, "", event.id
    return event.lsn, delivered.created_at.isoformat(), event.id


def _sequence(event: FeedEvent) -> int:
    return event.sequence or 0


_NAMESPACE = UUID("8a3ef6a4-6a4f-4a0c-9c44-0a2c8e1f5d10")


class EventDiscarded(WireModel):
    """An event that could not be sent was given up; its place in the order is taken, and nothing else changed."""

    schema_version: ClassVar[int] = 1

    id: UUID
    action: Literal["EventDiscarded"] = "EventDiscarded"
    sequence: int | None = Field(default=None, ge=1)
    """The sequence of the discarded event; None: it had none."""
    created_at: Timestamp
    aggregate_type: str
    aggregate_id: str
    discarded_event_id: UUID | None = None
    """None: the document was broken, and had no valid id."""


ACTION = EventDiscarded.__name__


@dataclass(frozen=True)
class SkipMarker:
    """Replaces a discarded event for subscribers."""

    aggregate: AggregateKey
    discarded_event_id: str
    sequence: int | None
    """The discarded event's sequence; None: it had none."""
    created_at: datetime
    """The time of the discarding (UTC)."""

    @property
    def id(self) -> str:
        """The skip marker's id, derived from the event: discarding again creates no second one."""
        return str(uuid5(_NAMESPACE, "/".join([*self.aggregate, self.discarded_event_id])))

    @property
    def event(self) -> EventDiscarded:
        """The event that subscribers get."""
        return EventDiscarded(
            id=UUID(self.id),
            sequence=self.sequence,
            created_at=self.created_at,
            aggregate_type=self.aggregate.type,
            aggregate_id=self.aggregate.id,
            discarded_event_id=_event_id(self.discarded_event_id),
        )

    @property
    def data(self) -> Document:
        """The event's JSON as subscribers get it."""
        return self.event.model_dump(mode="json", by_alias=True, exclude_none=True)


def _event_id(text: str) -> UUID | None:
    """Parses an event's id; None: it is no UUID. A broken document's id might be personal data."""
    try:
        found = UUID(text)
    except ValueError:
        return None
    return found if str(found) == text else None

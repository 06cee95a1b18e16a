"""Classifies the feed's event documents: sendable, poison, or waiting for its original; no document is skipped.

Poison can never be sent as it is, and is parked.

A notice replaces a discarded event, so that subscribers see no gap, and contains nothing of that event.

An error is logged once an unforwarded event has used half of its TTL.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal
from uuid import UUID, uuid5

from pydantic import Field

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import Clock, utc_now
from cosmos_outbox.kernel.loops import LogThrottle
from cosmos_outbox.outbox.errors import FailureReason
from cosmos_outbox.outbox.event import Timestamp, WireModel

_MOST_NAMED = 10
"""The maximum number of requests in a log line."""

Document = Mapping[str, Any]
"""An event as it is stored. A document holds personal data: never log it."""


@dataclass(frozen=True)
class Lifetime:
    """The lifetime of a stored event: it expires ``ttl_seconds`` after ``written_at`` (seconds since 1970)."""

    written_at: int
    ttl_seconds: int


@dataclass(frozen=True)
class OutboxEvent:
    """An event to be sent: the values that order and address it, and its stored document."""

    id: str
    aggregate: AggregateKey
    action: str
    sequence: int | None
    """None: the event is unsequenced, and ordered by ``lsn``, ``created_at`` and ``id``."""
    created_at: datetime
    """The time of the change (UTC)."""
    correlation_id: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    schema_version: int | None = None
    """The version of the schema of ``data``; None: the document does not contain it."""
    message_id: str | None = None
    """The id under which a published event is published again; None: the event's own id."""
    lsn: int = 0
    """The log sequence number of the transaction that stored the event."""
    partition: str = ""
    """The name of the partition in which the event is stored; empty: unknown."""
    lifetime: Lifetime | None = None
    """None: the event does not expire."""
    data: Document = field(default_factory=dict, repr=False)
    """The part of the document that subscribers get."""
    document: Document = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Poison:
    """A document that is marked as an event but is not valid. ``reason`` contains no personal data."""

    id: str
    aggregate: AggregateKey | None
    """None: the document does not name its aggregate."""
    reason: str
    lsn: int = 0
    lifetime: Lifetime | None = None
    document: Document = field(default_factory=dict, repr=False)
    sequence: int | None = None
    """The sequence of an event that is valid but cannot be verified. None: the document is no valid event."""
    partition: str = ""
    """The name of the partition in which the document is stored; empty: unknown."""


@dataclass(frozen=True)
class Unread:
    """An event whose original could not be read: it waits, and so do all behind it."""

    event: OutboxEvent | Poison
    """The event as delivered: sufficient for its order, but not to be sent."""
    reason: str
    why: FailureReason = FailureReason.STORE_AWAY

    @property
    def id(self) -> str:
        """The delivered event's id."""
        return self.event.id

    @property
    def aggregate(self) -> AggregateKey | None:
        """The delivered event's aggregate."""
        return self.event.aggregate

    @property
    def sequence(self) -> int | None:
        """The delivered event's sequence."""
        return self.event.sequence

    @property
    def lsn(self) -> int:
        """The delivered event's LSN."""
        return self.event.lsn

    @property
    def partition(self) -> str:
        """The delivered event's partition."""
        return self.event.partition

    @property
    def lifetime(self) -> Lifetime | None:
        """The delivered event's lifetime."""
        return self.event.lifetime

    @property
    def document(self) -> Document:
        """The delivered document."""
        return self.event.document


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
    return Poison(
        event.id, aggregate, reason, event.lsn, event.lifetime, event.document, partition=event.partition
    )


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
        """The notice's id, derived from the event: a repeated discarding creates no second notice."""
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


SHARE = 0.5
"""The share of its TTL after which an unforwarded event needs an operator."""

_log = logging.getLogger(__name__)


@dataclass
class TtlGuard:
    """Watches the age of events that are about to be forwarded; logs at most once a minute."""

    clock: Clock = utc_now
    saying: LogThrottle = field(default_factory=LogThrottle)

    def watch(self, events: Iterable[FeedEvent]) -> None:
        """Logs an error if one of the events has used more than ``SHARE`` of its TTL."""
        now = self.clock().timestamp()
        worst = max(events, key=lambda event: share_used(event, now), default=None)
        if worst is None or (share := share_used(worst, now)) < SHARE or not self.saying.due():
            return
        _log.error(
            "event %s of %s has used %.0f %% of its TTL and is not forwarded yet: at 100 %% the event is lost. "
            "Find out why the relay is late, and raise the TTL of new events to gain time%s",
            worst.id,
            worst.aggregate or "no aggregate",
            100 * share,
            caused_by(worst),
        )


def share_used(event: FeedEvent, now: float) -> float:
    """Returns the used share of an event's TTL: 1 at its expiry, 0 if it never expires."""
    if event.lifetime is None:
        return 0.0
    return (now - event.lifetime.written_at) / event.lifetime.ttl_seconds

"""An event document of the feed is ready to be sent, or poison, or waits for its original; no document is skipped.

Poison can never be sent as it is, and is parked.

A notice stands in the place of a discarded event: subscribers see no gap, and learn nothing of that event.

No event expires unforwarded in silence: when an event has used half of its TTL, the log says so.

The port to the committed documents: what is published is what was committed, whichever host delivers the feed.

A host may hand over a document whose texts the host has written anew, such as texts that look like dates. So a
delivered event is compared with a digest that was committed with the event. Where the digest does not fit, the
committed document is read again.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal, Protocol
from uuid import UUID, uuid5

from pydantic import Field

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import Clock, utc_now
from cosmos_outbox.kernel.loops import OnceAMinute
from cosmos_outbox.outbox.errors import Hindrance
from cosmos_outbox.outbox.event import Timestamp, WireModel

_MOST_NAMED = 10
"""So many requests a log line names."""

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
    sequence: int | None
    """None: the event is unsequenced, and has its place by ``lsn``, ``created_at`` and ``id``."""
    created_at: datetime
    """In UTC."""
    correlation_id: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    schema_version: int | None = None
    """The version of the schema that ``data`` follows; None: the document does not tell."""
    message_id: str | None = None
    """The id under which a published event is published once more; None: the event's own id."""
    lsn: int = 0
    """The log sequence number of the transaction that stored the event."""
    partition: str = ""
    """The name of the partition that the event is stored in; empty: it is not known."""
    lifetime: Lifetime | None = None
    """None: the event does not expire."""
    data: Document = field(default_factory=dict, repr=False)
    """The part of the document that subscribers get."""
    document: Document = field(default_factory=dict, repr=False)


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
    sequence: int | None = None
    """Of an event that is valid in itself, but cannot be verified. None: the document is no valid event."""
    partition: str = ""
    """As of an event."""


@dataclass(frozen=True)
class Unread:
    """An event whose original could not be read just now: it waits, and so do all behind it."""

    event: OutboxEvent | Poison
    """The event as it was delivered: good enough to tell its place, not to be sent."""
    reason: str
    why: Hindrance = Hindrance.STORE_AWAY

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
        """When the delivered event expires."""
        return self.event.lifetime

    @property
    def document(self) -> Document:
        """What was delivered."""
        return self.event.document


FeedEvent = OutboxEvent | Poison | Unread


def caused_by(*events: FeedEvent) -> str:
    """For the end of a log line: the ids of the requests that caused the events, as other lines have them."""
    delivered = [event.event if isinstance(event, Unread) else event for event in events[:_MOST_NAMED]]
    ids = [
        event.correlation_id for event in delivered if isinstance(event, OutboxEvent) and event.correlation_id
    ]
    return "".join(f" [{one}]" for one in dict.fromkeys(ids))


def by_aggregate(events: Iterable[FeedEvent]) -> dict[AggregateKey | None, list[FeedEvent]]:
    """Each aggregate's events in the order of its changes; documents that belong to no aggregate under None."""
    groups: defaultdict[AggregateKey | None, list[FeedEvent]] = defaultdict(list)
    for event in events:
        groups[event.aggregate].append(event)
    return {aggregate: in_order(group) for aggregate, group in groups.items()}


def still_of(aggregate: AggregateKey, event: FeedEvent) -> FeedEvent:
    """An event that was read again: poison where its document, as it is stored now, says that it is another's."""
    if event.aggregate == aggregate:
        return event
    reason = "the stored document belongs to another aggregate now, or to none"
    return Poison(
        event.id, aggregate, reason, event.lsn, event.lifetime, event.document, partition=event.partition
    )


def in_order(events: Sequence[FeedEvent]) -> list[FeedEvent]:
    """One aggregate's events by sequence. An event without one has its place among the others by its LSN."""
    unsequenced = deque(sorted((event for event in events if event.sequence is None), key=unsequenced_place))
    ordered = []
    for event in sorted((event for event in events if event.sequence is not None), key=_sequence):
        while unsequenced and unsequenced[0].lsn <= event.lsn:
            ordered.append(unsequenced.popleft())
        ordered.append(event)
    return [*ordered, *unsequenced]


def unsequenced_place(event: FeedEvent) -> tuple[int, str, str]:
    """The place of an event without a sequence among others of its kind: by LSN, time and id."""
    delivered = event.event if isinstance(event, Unread) else event
    if isinstance(
        delivered, Poison
    ):  # within its transaction the document's place is not known: it goes first
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
    """The place of the discarded event; None: it had none."""
    created_at: Timestamp
    aggregate_type: str
    aggregate_id: str
    discarded_event_id: UUID | None = None
    """None: the document was broken, and had no valid id."""


ACTION = EventDiscarded.__name__


@dataclass(frozen=True)
class Notice:
    """What subscribers get in place of a discarded event."""

    aggregate: AggregateKey
    discarded_event_id: str
    sequence: int | None
    """The discarded event's place; None: it had none."""
    created_at: datetime
    """The time of the discarding (UTC)."""

    @property
    def id(self) -> str:
        """The same for the same event: a discarding that is repeated gives no second notice."""
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
        """The event as subscribers get it."""
        return self.event.model_dump(mode="json", by_alias=True, exclude_none=True)


def _event_id(text: str) -> UUID | None:
    """An event's id. A broken document may have any id, and nothing personal goes out."""
    try:
        found = UUID(text)
    except ValueError:
        return None
    return found if str(found) == text else None


SHARE = 0.5
"""The share of its TTL that an event may use before it is forwarded. After that, an operator has to act."""

_log = logging.getLogger(__name__)


@dataclass
class TtlGuard:
    """Watches the age of events that are about to be forwarded; logs at most once a minute."""

    clock: Clock = utc_now
    saying: OnceAMinute = field(default_factory=OnceAMinute)

    def watch(self, events: Iterable[FeedEvent]) -> None:
        """Log an error when one of the events has used more than half of its TTL."""
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
    """The share of its TTL that a stored event has used: 1 when it expires, 0 for an event that never expires."""
    if event.lifetime is None:
        return 0.0
    return (now - event.lifetime.written_at) / event.lifetime.ttl_seconds


class Originals(Protocol):
    """The events as they were committed."""

    async def verify(self, events: Sequence[FeedEvent]) -> list[FeedEvent]:
        """The same events in the same order, each as it was committed.

        An event comes back as Poison when its original is proven gone or does not fit its digest either, and as Unread
        when its original cannot be read just now. A store that is away is no error here.
        """

    def forget(self, events: Sequence[FeedEvent]) -> None:
        """What was read of these events is not used again: they are done, or are to be read anew."""


class AsDelivered:
    """For a host that hands over what is stored, byte for byte: nothing is compared."""

    async def verify(self, events: Sequence[FeedEvent]) -> list[FeedEvent]:
        """The events as they came."""
        return list(events)

    def forget(self, events: Sequence[FeedEvent]) -> None:
        """Nothing was kept."""

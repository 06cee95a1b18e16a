"""What an operator is told of one event: where it is on its way to each destination, and what it carried by name.

No value of a property leaves the store here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations.relay_status import KeyProgress
from cosmos_outbox.outbox.destination import ALL, Destination
from cosmos_outbox.outbox.event import ENVELOPE
from cosmos_outbox.outbox.feed import FeedEvent, OutboxEvent
from cosmos_outbox.outbox.marker import Marker
from cosmos_outbox.outbox.parking_lot import ParkedEvent

MOST_PARKED = 500
"""Of an aggregate with more parked events, those behind are told by their sequence alone."""

NO_LIMIT = 2**53
"""Above every sequence that a JSON number can have."""


class EventState(StrEnum):
    """Where an event is."""

    WAITING = "waiting"
    """The relay's lease has not passed it. It may have been sent a moment ago."""
    FORWARDED = "forwarded"
    PARKED = "parked"
    DISCARDED = "discarded"
    """An operator gave it up; subscribers get a notice in its place."""
    UNKNOWN = "unknown"
    """No lease tells how far the relay is, or it was measured on a replica that lags."""
    NOT_FOR_IT = "notForIt"
    """The destination does not get such events."""


@dataclass(frozen=True)
class Whereabouts:
    """Where an event is on its way to one destination."""

    state: EventState
    parking_id: str | None = None


@dataclass(frozen=True)
class PastEvent:
    """One event. What a broken document does not tell is None."""

    event_id: str
    sequence: int | None
    action: str | None
    changed: Sequence[str]
    """The names of the properties that the event carries; never their values, which may be personal."""
    created_at: datetime | None
    """When the change was made, by the writer's clock."""
    stored_at: datetime | None
    """When the document was written, by the store's clock, to the second; None: only the parking lot has it."""
    expires_at: datetime | None
    state: EventState
    parking_id: str | None
    correlation_id: str | None
    trace_id: str | None
    beside: Mapping[str, Whereabouts] = field(default_factory=dict)
    """On its way to each other destination, by its name."""


@dataclass(frozen=True)
class Expired:
    """Sequences whose documents are gone: from ``first`` to ``last``."""

    first: int
    last: int


@dataclass(frozen=True)
class Past:
    """A page of an aggregate's events, the newest first; on the first page those without a sequence stand on top."""

    aggregate: AggregateKey
    last_sequence: int | None
    """None: the aggregate's own document is gone."""
    deleted: bool
    events: Sequence[PastEvent]
    expired: Sequence[Expired]
    before: int | None
    """What to ask for next; None: this page is the last."""
    progress: KeyProgress
    beside: Mapping[str, KeyProgress] = field(default_factory=dict)
    """Of the relay to each other destination, by its name."""


@dataclass(frozen=True)
class Parked:
    """What the parking lot of one destination has of an aggregate."""

    marker: Marker
    events: Mapping[str, ParkedEvent]
    """By the event's id."""
    read: Mapping[str, FeedEvent] = field(default_factory=dict)
    """The same events, as the relay reads them."""

    def holds(self, event_id: str, sequence: int | None) -> bool:
        if event_id in self.events:
            return True
        if sequence is None or len(self.events) < MOST_PARKED:
            return False
        first = min((each.sequence for each in self.events.values() if each.sequence), default=sequence)
        return first <= sequence <= self.marker.tail


@dataclass(frozen=True)
class ReadBeside:
    """What was read of one destination beside the events. ``session_token``: how new the store was after these."""

    progress: KeyProgress
    session_token: str | None
    parked: Parked
    of: Destination = ALL

    def place(self, event: FeedEvent, stored_at: datetime | None) -> Whereabouts:
        """Where an event is. ``stored_at``: None: its document is gone."""
        shelf = self.parked.events.get(event.id)
        return Whereabouts(self._state(event, stored_at), shelf.id if shelf else None)

    def _state(self, event: FeedEvent, stored_at: datetime | None) -> EventState:
        if event.id in self.parked.marker.discarded:
            return EventState.DISCARDED
        if self.parked.holds(event.id, event.sequence):
            return EventState.PARKED
        if not self.of.takes(event):
            return EventState.NOT_FOR_IT
        passed = None if stored_at is None else self.progress.has_passed(stored_at, self.session_token)
        if passed is None:
            return EventState.UNKNOWN
        return EventState.FORWARDED if passed else EventState.WAITING


def past_event(event: FeedEvent, own: ReadBeside, beside: Sequence[ReadBeside] = ()) -> PastEvent:
    document = event.document
    stored_at = written_at(document) if "_ts" in document else None
    place = own.place(event, stored_at)
    data = document.get("data")
    known = event if isinstance(event, OutboxEvent) else None
    return PastEvent(
        event_id=event.id,
        sequence=_sequence(event),
        action=known.action if known else None,
        changed=_changed(data, event.aggregate),
        created_at=known.created_at if known else None,
        stored_at=stored_at,
        expires_at=_expiry(event),
        state=place.state,
        parking_id=place.parking_id,
        correlation_id=known.correlation_id if known else None,
        trace_id=_trace_id(known.traceparent) if known else None,
        beside={each.of.name: each.place(event, stored_at) for each in beside},
    )


def only_parked(
    past: Sequence[PastEvent], readings: Sequence[ReadBeside], floor: int, before: int | None
) -> list[PastEvent]:
    """Parked events whose documents have expired, and notices: the parking lots alone have them.

    A notice is for the destination alone for which its event was discarded.
    """
    seen = {event.event_id for event in past}
    own, *beside = readings
    shelves = {name: each for reading in readings for name, each in reading.parked.events.items()}
    read = {name: each for reading in readings for name, each in reading.parked.read.items()}

    def place(shelf: ParkedEvent, reading: ReadBeside) -> Whereabouts:
        if there := reading.parked.events.get(shelf.event_id):
            return Whereabouts(EventState.PARKED, there.id)
        if shelf.is_notice:
            return Whereabouts(EventState.NOT_FOR_IT)
        return reading.place(read[shelf.event_id], None)

    return [
        PastEvent(
            event_id=shelf.event_id,
            sequence=shelf.sequence,
            action=shelf.action,
            changed=_changed(shelf.document.get("data"), shelf.aggregate),
            created_at=None,
            stored_at=None,
            expires_at=None,
            state=place(shelf, own).state,
            parking_id=place(shelf, own).parking_id,
            correlation_id=None,
            trace_id=None,
            beside={each.of.name: place(shelf, each) for each in beside},
        )
        for shelf in shelves.values()
        if shelf.event_id not in seen
        and (before is None if shelf.sequence is None else floor <= shelf.sequence < (before or NO_LIMIT))
    ]


def newest_first(past: Sequence[PastEvent]) -> list[PastEvent]:
    return sorted(past, key=lambda event: (event.sequence is not None, -(event.sequence or 0)))


def expired(past: Sequence[PastEvent], floor: int, top: int) -> list[Expired]:
    """The sequences from ``floor`` to ``top`` that no event has, as ranges, the highest first."""
    found: list[Expired] = []
    upper = top + 1
    for sequence in [*(event.sequence for event in past if event.sequence), floor - 1]:
        if sequence < upper - 1:
            found.append(Expired(sequence + 1, upper - 1))
        upper = min(upper, sequence)
    return found


def _sequence(event: FeedEvent) -> int | None:
    """The event's sequence; of a broken document the number that stands where a sequence belongs."""
    data = event.document.get("data")
    stands = data.get("sequence") if isinstance(data, Mapping) else None
    return event.sequence or (stands if type(stands) is int and stands > 0 else None)


def _changed(data: Any, aggregate: AggregateKey | None) -> list[str]:
    if not isinstance(data, Mapping):
        return []
    owner = f"{aggregate.type}Id" if aggregate else ""
    return sorted(str(name) for name in data if name not in ENVELOPE and name != owner)


def written_at(document: Mapping[str, Any]) -> datetime:
    return datetime.fromtimestamp(document["_ts"], UTC)


def _expiry(event: FeedEvent) -> datetime | None:
    lifetime = event.lifetime
    if lifetime is None:
        return None
    return datetime.fromtimestamp(lifetime.written_at + lifetime.ttl_seconds, UTC)


def _trace_id(traceparent: str | None) -> str | None:
    """The second part of a W3C traceparent; None when there is none."""
    parts = (traceparent or "").split("-")
    return parts[1] if len(parts) >= 4 else None

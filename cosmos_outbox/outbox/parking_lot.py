"""The port of the parking lot: durable storage of events that cannot be sent, and of the events behind them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Protocol

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.feed import Document, FeedEvent, Notice, Poison
from cosmos_outbox.outbox.marker import Marker


class ParkedState(Enum):
    """The state of a parked event."""

    IN_THE_WAY = "inTheWay"
    """The broker refused the event: remove the reason and replay the aggregate, or discard the event."""
    WAITING = "waiting"
    """The event waits behind a blocking event, and is sent after it."""
    ALONE = "alone"
    """The document belongs to no aggregate: nothing waits behind it, and it can only be discarded."""
    DISCARDED = "discarded"
    """The event was discarded. It stays visible for a while."""


@dataclass(frozen=True)
class Discarding:
    """The time and the reason of a discarding."""

    at: datetime
    reason: str


@dataclass(frozen=True)
class ParkedEvent:
    """A parked event document. ``action`` and ``sequence`` are None if the document does not contain them."""

    id: str
    """The id in the parking lot: an event's own id is unique only within its aggregate."""
    event_id: str
    aggregate: AggregateKey | None
    action: str | None
    sequence: int | None
    reason: str
    parked_at: datetime
    state: ParkedState
    attempts: int
    """The number of refusals of the event by the broker, or by the relay before sending."""
    attempted_at: datetime | None
    """The time of the last of these attempts."""
    discarding: Discarding | None
    is_notice: bool
    """Whether it replaces a discarded event."""
    document: Document = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class ParkedPage:
    """A page of parked events, and the token of the next page (None: this page is the last)."""

    items: Sequence[ParkedEvent]
    continuation_token: str | None


Change = Callable[[Marker], Marker]
"""A change that is applied to the newest marker."""


class ParkingLot(Protocol):
    """Stores events that cannot be sent, and the events that wait behind them, durably.

    Rule ``one-transaction``: a marker, its count and the events that it counts change together, at the marker's
    version. Every call raises Throttled or Unavailable if the store could not be used, with the reason. After
    Unavailable a change may or may not be stored: the next call finds out.
    """

    async def markers(self, aggregates: Collection[AggregateKey]) -> Mapping[AggregateKey, Marker]:
        """Returns the markers of these aggregates, with a consistent read (rule ``fence-before-free``)."""

    async def list_blocked(self) -> Sequence[Marker]:
        """Returns the markers of all parked aggregates, possibly stale: for display, not to be stored."""

    async def park(self, marker: Marker, events: Sequence[FeedEvent]) -> Collection[str]:
        """Parks events of a blocked aggregate in order. Already parked ones are not changed.

        Rule ``park-at-version``: only behind the marker that was read, however old that reading is. A crash halfway
        leaves the first events parked. Returns the ids of the events that were certainly not parked before.

        Raises:
            PreconditionFailed: the marker is not, or no longer, at ``marker.version``: read and decide again.
        """

    async def store(self, marker: Marker) -> Marker:
        """Stores a changed marker. Raises PreconditionFailed as :meth:`park` does. Returns the stored marker."""

    async def settle(self, marker: Marker, delivered: Sequence[ParkedEvent], change: Change) -> Marker:
        """Removes parked events that the broker has, and changes the marker of the replay that sent them.

        The relay may have parked more events behind the marker since, so the change is applied to the newest marker.
        Rule ``end-at-zero``: once nothing waits, the aggregate is unblocked.

        Raises:
            PreconditionFailed: the aggregate is being replayed by another replay, or by none.
        """

    async def recount(self, marker: Marker) -> Marker:
        """Recounts the waiting events, as after a manual removal. Raises PreconditionFailed as :meth:`settle` does."""

    async def discard(self, marker: Marker, event: ParkedEvent, notice: Notice, reason: str) -> None:
        """Stores the marker, and the notice in the event's place. Raises PreconditionFailed.

        The event stays visible, with the reason, until it expires.
        """

    async def park_alone(self, poison: Poison) -> bool:
        """Parks a document that belongs to no aggregate. Returns False if it is parked or discarded already."""

    async def discard_alone(self, event: ParkedEvent, reason: str) -> None:
        """Discards a document that belongs to no aggregate."""

    async def alone_since_before(self, at: datetime) -> Sequence[ParkedEvent]:
        """Returns some documents that belong to no aggregate and were parked before this time."""

    async def page(self, size: int, continuation_token: str | None, *, discarded: bool = False) -> ParkedPage:
        """Returns a page of parked, or of discarded events, oldest first, without their documents.

        Raises UnknownContinuation.
        """

    async def get(self, parking_id: str) -> ParkedEvent | None:
        """Returns one parked or discarded event; None: proven that there is none with this id."""

    async def waiting(self, aggregate: AggregateKey, limit: int) -> Sequence[tuple[ParkedEvent, FeedEvent]]:
        """Returns an aggregate's first parked events, in order, with the events to be sent."""

    async def list_waiting(self, aggregate: AggregateKey, limit: int) -> Sequence[ParkedEvent]:
        """As :meth:`waiting`, without documents."""

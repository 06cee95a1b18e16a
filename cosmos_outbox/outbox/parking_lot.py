"""The port of the parking lot: events that cannot be sent are kept durably, and so are the events behind them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Protocol

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.feed import Document, FeedEvent, Notice, Poison
from cosmos_outbox.outbox.marker import Marker


class ParkedState(Enum):
    """What a parked event waits for."""

    IN_THE_WAY = "inTheWay"
    """The broker refused the event: mend the reason and replay the aggregate, or discard the event."""
    WAITING = "waiting"
    """It is sent when the event in the way is out of the way."""
    ALONE = "alone"
    """It belongs to no aggregate, so nothing waits behind it, and it can only be discarded."""
    DISCARDED = "discarded"
    """It was given up. It can still be looked at for a while."""


@dataclass(frozen=True)
class Discarding:
    """When and why an event was given up."""

    at: datetime
    reason: str


@dataclass(frozen=True)
class ParkedEvent:
    """A parked event document. ``action`` and ``sequence`` are None when the document does not tell them."""

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
    """How many times the broker, or the relay in its place, has refused the event."""
    attempted_at: datetime | None
    """The time of the last of these attempts."""
    discarding: Discarding | None
    is_notice: bool
    """Whether it stands in the place of an event that was discarded."""
    document: Document = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class ParkedPage:
    """A page of parked events, and the token of the next page (None: this page is the last)."""

    items: Sequence[ParkedEvent]
    continuation_token: str | None


Change = Callable[[Marker], Marker]
"""A change of a marker as it is then."""


class ParkingLot(Protocol):
    """Keeps, durably, the events that cannot be sent and the events that wait behind them.

    Rule ``one-transaction``: a marker, its count and the events that it counts change together, at the marker's
    version. Every call raises Throttled or Unavailable when the store could not be used; the message says why. Of a
    change whose answer was lost, Unavailable says nothing: the next call finds what was stored.
    """

    async def markers(self, aggregates: Collection[AggregateKey]) -> Mapping[AggregateKey, Marker]:
        """The markers of these aggregates, each as new as this call. Rule ``fence-before-free``."""

    async def list_blocked(self) -> Sequence[Marker]:
        """The markers of all parked aggregates, perhaps as they were some time ago: to be shown, not to be stored."""

    async def park(self, marker: Marker, events: Sequence[FeedEvent]) -> Collection[str]:
        """Park events, in order, of an aggregate that is blocked. Those that are parked already are left alone.

        Rule ``park-at-version``: only behind the marker that was read, however old that reading is. A crash halfway
        leaves the first events parked. Returns the ids of the events that are known not to have been parked before.

        Raises:
            PreconditionFailed: the marker is not, or no longer, at ``marker.version``: read and decide again.
        """

    async def store(self, marker: Marker) -> Marker:
        """Store a changed marker. Raises PreconditionFailed as :meth:`park` does. Returns the marker as stored."""

    async def settle(self, marker: Marker, delivered: Sequence[ParkedEvent], change: Change) -> Marker:
        """Remove parked events that the broker has, and change the marker of the replay that sent them.

        The replay's marker may have changed meanwhile, since the relay parks behind it: the change is made to the
        newest one. Rule ``end-at-zero``: when nothing waits any more, the aggregate is free.

        Raises:
            PreconditionFailed: another replay, or nobody, replays the aggregate now.
        """

    async def recount(self, marker: Marker) -> Marker:
        """Count anew what waits: somebody removed it by hand. Raises PreconditionFailed as :meth:`settle` does."""

    async def discard(self, marker: Marker, event: ParkedEvent, notice: Notice, reason: str) -> None:
        """Store the marker, and put the notice in the event's place. Raises PreconditionFailed.

        The event stays visible, with the reason, until it expires.
        """

    async def park_alone(self, poison: Poison) -> bool:
        """Park a document that belongs to no aggregate. False: it is parked, or was discarded, already."""

    async def discard_alone(self, event: ParkedEvent, reason: str) -> None:
        """Give up a document that belongs to no aggregate."""

    async def alone_since_before(self, at: datetime) -> Sequence[ParkedEvent]:
        """Some documents that belong to no aggregate and were parked before this time."""

    async def page(self, size: int, continuation_token: str | None, *, discarded: bool = False) -> ParkedPage:
        """A page of parked events, or of the discarded ones, oldest first, without their documents.

        Raises UnknownContinuation.
        """

    async def get(self, parking_id: str) -> ParkedEvent | None:
        """One parked or discarded event; None when there is none under the id, which is proven."""

    async def waiting(self, aggregate: AggregateKey, limit: int) -> Sequence[tuple[ParkedEvent, FeedEvent]]:
        """An aggregate's first parked events, in order, as they are sent."""

    async def list_waiting(self, aggregate: AggregateKey, limit: int) -> Sequence[ParkedEvent]:
        """The same, without their documents."""

"""The port of the parking lot: events that cannot be sent are kept durably, and so are the events behind them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from outbox.aggregate import AggregateKey
from outbox.feed import Document, FeedEvent, Poison, Position
from outbox.unit_of_work import ETag


@dataclass(frozen=True)
class ParkedAggregate:
    """An aggregate whose events are parked, from ``position`` on; all events before were delivered."""

    aggregate: AggregateKey
    blocked_by: str
    """The id of the event that cannot be sent."""
    reason: str
    position: Position
    version: ETag


@dataclass(frozen=True)
class ParkedEvent:
    """A parked event document. ``action`` and ``sequence`` are None when the document is too broken to read them."""

    id: str
    """The id in the parking lot: an event's own id is unique only within its aggregate."""
    event_id: str
    aggregate: AggregateKey | None
    action: str | None
    sequence: int | None
    reason: str
    parked_at: datetime
    document: Document = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class ParkedPage:
    """A page of parked events, and the token of the next page (None: this page is the last)."""

    items: Sequence[ParkedEvent]
    continuation_token: str | None


class ParkingLot(Protocol):
    """Keeps, durably, the events that cannot be sent and the events that wait behind them.

    Every call raises Throttled or Unavailable when the store could not answer, and the adapter's own error when the
    store is not set up correctly.
    """

    async def aggregates(self) -> Mapping[AggregateKey, ParkedAggregate]:
        """The parked aggregates. The cost grows only with their number."""

    async def aggregate(self, aggregate: AggregateKey) -> ParkedAggregate | None:
        """One aggregate, if it is parked."""

    async def park(self, parked: ParkedAggregate, events: Sequence[FeedEvent]) -> None:
        """Park events of an aggregate. Parking an event a second time does no harm.

        An aggregate with an empty ``version`` was not parked before. A crash halfway leaves the first events parked.

        Raises:
            PreconditionFailed: the aggregate is not, or no longer, at ``parked.version``: read the aggregate again.
        """

    async def park_alone(self, poison: Poison) -> None:
        """Park a document that belongs to no aggregate."""

    async def page(self, size: int, continuation_token: str | None) -> ParkedPage:
        """A page of parked events, oldest first. Raises UnknownContinuation."""

    async def get(self, parking_id: str) -> ParkedEvent | None:
        """One parked event; None when no event is parked under the id."""

    async def waiting(self, aggregate: AggregateKey, limit: int) -> Sequence[tuple[ParkedEvent, FeedEvent]]:
        """An aggregate's first parked events, in order."""

    async def remove(self, parked: Sequence[ParkedEvent]) -> None:
        """Remove events that were delivered."""

    async def move_block(self, parked: ParkedAggregate) -> None:
        """Store which event cannot be sent now. Raises PreconditionFailed as :meth:`park` does."""

    async def discard(self, parked: ParkedEvent, reason: str) -> None:
        """Give an event up for good. The store keeps the event with the reason until it expires."""

    async def release(self, parked: ParkedAggregate) -> bool:
        """End the block. False: the parked aggregate changed after it was read, for example by new events."""

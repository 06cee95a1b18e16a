"""The port of the parking lot: events that cannot be sent are kept durably, with those that wait behind them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from outbox.aggregate import AggregateKey
from outbox.feed import Document, FeedEvent, Poison, Position
from outbox.unit_of_work import ETag


@dataclass(frozen=True)
class ParkedAggregate:
    """An aggregate whose events are parked, from ``position`` on; all events before have been delivered."""

    aggregate: AggregateKey
    blocked_by: str
    """The id of the event that cannot be sent."""
    reason: str
    position: Position
    version: ETag


@dataclass(frozen=True)
class ParkedEvent:
    """A parked event document. ``action`` and ``sequence`` are None when the document is too broken to tell them."""

    id: str
    """The parked event's own id in the parking lot: event ids are only unique within an aggregate."""
    event_id: str
    aggregate: AggregateKey | None
    action: str | None
    sequence: int | None
    reason: str
    parked_at: datetime
    document: Document = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class ParkedPage:
    """Some parked events, and where the next ones start."""

    items: Sequence[ParkedEvent]
    continuation_token: str | None


class ParkingLot(Protocol):
    """Keeps, durably, the events that cannot be sent and those that wait behind them.

    Every call raises Throttled or Unavailable when the store could not answer. An adapter's own error for a store that
    is not set up as it must be passes through.
    """

    async def aggregates(self) -> Mapping[AggregateKey, ParkedAggregate]:
        """The aggregates that are parked. The cost grows with their number alone."""

    async def aggregate(self, aggregate: AggregateKey) -> ParkedAggregate | None:
        """One aggregate, if it is parked."""

    async def park(self, parked: ParkedAggregate, events: Sequence[FeedEvent]) -> None:
        """Park events of an aggregate. To park again what is parked already does no harm.

        An aggregate with an empty ``version`` was not parked before. Dying halfway leaves the first events parked.

        Raises:
            PreconditionFailed: the aggregate is not, or no longer, at ``parked.version``: look again.
        """

    async def park_alone(self, poison: Poison) -> None:
        """Park a document that belongs to no aggregate."""

    async def page(self, size: int, continuation_token: str | None) -> ParkedPage:
        """Parked events, oldest first. Raises UnknownContinuation for a token that is not of this list."""

    async def get(self, parking_id: str) -> ParkedEvent | None:
        """One parked event."""

    async def waiting(self, aggregate: AggregateKey, limit: int) -> Sequence[tuple[ParkedEvent, FeedEvent]]:
        """An aggregate's first parked events, in order."""

    async def remove(self, parked: Sequence[ParkedEvent]) -> None:
        """Forget events that have been delivered."""

    async def move_block(self, parked: ParkedAggregate) -> None:
        """Say which event is in the way now. Raises PreconditionFailed as :meth:`park` does."""

    async def discard(self, parked: ParkedEvent, reason: str) -> None:
        """Give an event up for good; who asks later finds it with the reason, until it expires."""

    async def release(self, parked: ParkedAggregate) -> bool:
        """End the block; False when the aggregate was changed since it was read, for example by new events."""

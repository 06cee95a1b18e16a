"""The port to the message broker: a page of events goes out, and an outcome for each aggregate comes back.

A publisher never sends an event after one of the same aggregate that it could not hand over. The relay relies on that,
and on what the publisher declares in :class:`Guarantees`; on nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from outbox.aggregate import AggregateKey
from outbox.feed import OutboxEvent


@dataclass(frozen=True)
class Guarantees:
    """What a transport gives."""

    ordered: bool
    """Subscribers get an aggregate's events in the order in which they were accepted."""
    deduplicates: bool
    """An event that is sent again under its id, within some window, reaches subscribers once."""
    mixes_aggregates: bool
    """One send may carry events of several aggregates, so a page costs few round trips however many it concerns."""
    largest_message_bytes: int | None
    """No event whose data alone is larger can be sent; None: the broker tells only when it is asked to take one."""

    def left_to_subscribers(self) -> Sequence[str]:
        """What this transport does not give, so that subscribers have to; for an operator to read."""
        missing = []
        if not self.ordered:
            missing.append("the transport keeps no order: subscribers must order events by their sequence")
        if not self.deduplicates:
            missing.append(
                "the transport drops no duplicates: subscribers must drop events that they have handled"
            )
        return missing


@dataclass(frozen=True)
class AggregateEvents:
    """Events of one aggregate, in the order of its changes; at least one."""

    aggregate: AggregateKey
    events: Sequence[OutboxEvent]


@dataclass(frozen=True)
class Accepted:
    """The broker has all events of the aggregate."""


@dataclass(frozen=True)
class Refused:
    """The broker has the first ``accepted`` events and will never take the next one as it is; none after was sent.

    ``reason`` carries no personal data.
    """

    accepted: int
    reason: str


@dataclass(frozen=True)
class Unknown:
    """The broker has at least the first ``accepted`` events; whether it has more cannot be told. Send all again.

    ``reason`` tells an operator what is in the way.
    """

    accepted: int
    reason: str


Outcome = Accepted | Refused | Unknown


class Publisher(Protocol):
    """Hands events to the message broker."""

    @property
    def guarantees(self) -> Guarantees:
        """What this transport gives."""

    async def publish(self, page: Sequence[AggregateEvents]) -> Sequence[Outcome]:
        """Send the events of a page; the outcomes, one for each aggregate, in the page's order.

        The publisher decides how many sends that takes, and how many are under way at once. A broker that is away is an
        outcome, not an error: only a bug is raised.
        """

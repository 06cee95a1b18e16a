"""The port to the message broker: a page of events goes out, and an outcome for each aggregate comes back.

A publisher hands over an aggregate's events in order: no two sends that carry the same aggregate are under way at once,
and after an event that was refused, or whose outcome is unknown, no later event of its aggregate is sent. A refused
event stops no other aggregate. The relay relies on these rules and on the publisher's :class:`Guarantees`, and on
nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.hindrance import Hindrance


@dataclass(frozen=True)
class Guarantees:
    """The properties that a transport promises."""

    ordered: bool
    """Subscribers get an aggregate's events in the order in which they were accepted."""
    deduplicates: bool
    """An event that is sent again under its id, within some window, reaches subscribers once."""
    mixes_aggregates: bool
    """One send may carry events of several aggregates, so that a page of many aggregates costs few round trips.

    A transport may learn only from a refusal that it cannot, and then no longer promises it.
    """
    largest_message_bytes: int | None
    """An event whose data alone is larger can never be sent. None: the limit shows only when an event is sent."""
    answer_seconds: float = 0.0
    """How long an answer may take. Who gives a single event less time may send it again and again, and never know."""

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
    """The broker has the first ``accepted`` events and will never take the next one as it is; no later one was sent.

    ``reason`` carries no personal data, and has the same words for the same cause.
    """

    accepted: int
    reason: str
    shown_by_event: bool = field(default=False, compare=False)
    """No message can be made of the event, or it was measured to be larger than any may be. False: the broker answered
    so, which a fault of its settings could cause as well."""
    detail: str = field(default="", compare=False)
    """What else the broker said, bounded, for an operator; no personal data either."""


@dataclass(frozen=True)
class Failing:
    """The broker has at least the first ``accepted`` events. The next one fails again and again, and may work later.

    What fails is this event, not the broker: its aggregate is set aside and tried again by itself, so that it holds up
    no other. ``reason``: as of :class:`Refused`.
    """

    accepted: int
    reason: str
    others_taken: bool = field(default=False, compare=False)
    """Whether the broker took other events between its tries. False: it may fail at everything."""


@dataclass(frozen=True)
class Unknown:
    """The broker has at least the first ``accepted`` events, and perhaps more. Send all events again.

    ``reason`` tells an operator what stops the sending, and ``why`` is its kind.
    """

    accepted: int
    reason: str
    why: Hindrance = field(default=Hindrance.BROKER_AWAY, compare=False)


Outcome = Accepted | Refused | Failing | Unknown


class Publisher(Protocol):
    """Hands events to the message broker."""

    @property
    def guarantees(self) -> Guarantees:
        """The promises of this transport."""

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        """Send the events of a page. Returns one outcome for each aggregate, in the page's order.

        Nothing is sent after ``until``, by the monotonic clock: what the broker has not accepted by then is
        unknown, and what the broker has is told all the same. So a page that takes longer gets on with each attempt.

        The publisher decides how many sends a page takes, and how many of them run at once. When a send fails whose
        events may or may not have arrived, the outcome of each aggregate in it is unknown. A broker that is away is an
        outcome, not an error: only a bug is raised.
        """

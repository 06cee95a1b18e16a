"""The port to the message broker: a page of events goes out, and an outcome for each aggregate comes back.

A publisher hands over an aggregate's events in order: no two sends that carry the same aggregate are under way at once,
and after an event that was refused, or whose outcome is unknown, no later event of its aggregate is sent. A refused
event stops no other aggregate. The relay relies on these rules and on the publisher's :class:`Guarantees`, and on
nothing else.

Each aggregate's events are sent in order, up to the first that cannot be sent. Relay and replay both send here.

An event as CloudEvents 1.0 has it: the same attributes over every transport, whatever form the message has.

The names of the extensions are in the form that CloudEvents asks for: lower-case letters and digits. In the structured
mode (https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md) attributes and data are one
JSON document.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox import telemetry
from cosmos_outbox.outbox.canonical import as_sent
from cosmos_outbox.outbox.errors import Hindrance
from cosmos_outbox.outbox.feed import FeedEvent, OutboxEvent, Poison, Unread

STRUCTURED = "application/cloudevents+json"
"""The content type of the structured mode."""


@dataclass(frozen=True)
class CloudEvents:
    """The CloudEvents attributes that are the same for all events of a service."""

    source: str
    """Together with the id it identifies an event everywhere."""
    schemas: str | None = None
    """The URI under which the schemas of the events are published; None: they are not."""

    def dataschema(self, event: OutboxEvent) -> str | None:
        """The URI of the schema that the event's data follows."""
        if self.schemas is None or event.schema_version is None:
            return None
        return f"{self.schemas}/{event.action}.v{event.schema_version}.json"

    def attributes(self, event: OutboxEvent) -> dict[str, Any]:
        """All but the data. Times and numbers are as JSON has them.

        ``messageid`` is there where a published event is published once more: ``id`` is the event's own.
        """
        found = {
            "specversion": "1.0",
            "id": event.id,
            "source": self.source,
            "type": event.action,
            "subject": event.aggregate.id,
            "time": event.created_at.isoformat(),
            "datacontenttype": "application/json",
            "dataschema": self.dataschema(event),
            "aggregatetype": event.aggregate.type,
            "sequence": event.sequence,
            "schemaversion": event.schema_version,
            "messageid": event.message_id,
            "correlationid": event.correlation_id,
            "traceparent": event.traceparent,
            "tracestate": event.tracestate if event.traceparent else None,
        }
        return {name: value for name, value in found.items() if value is not None}

    def structured(self, event: OutboxEvent) -> bytes:
        """Attributes and data as one JSON document, the same bytes on every host."""
        return as_sent(self.attributes(event) | {"data": dict(event.data)})


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


@dataclass(frozen=True)
class Block:
    """An event that cannot be sent as it is, or fails again and again, and the reason."""

    event: FeedEvent
    reason: str
    by_broker: bool = False
    """Whether the broker has answered so; False: the event itself shows it, or the broker takes others."""
    detail: str = ""
    """What else the broker said."""
    passing: bool = False
    """Whether it may be accepted later: then it is tried again by itself."""

    @property
    def told(self) -> str:
        """For an operator: the reason, which is the same for the same cause, and what else was said."""
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


@dataclass(frozen=True)
class Delivered:
    """How many events of one aggregate the broker certainly has, in order, and why the others were not sent."""

    sent: int
    block: Block | None = None
    waits_for: str | None = None
    """Why the other events are not sent yet; a later attempt sends them."""
    why: Hindrance = Hindrance.BROKER_AWAY
    """The kind of ``waits_for``."""


async def deliver(
    publisher: Publisher, groups: Sequence[Sequence[FeedEvent]], until: float
) -> list[Delivered]:
    """Send each aggregate's events up to the first that can never be sent. Returns a delivery for each group.

    ``until``: as :meth:`cosmos_outbox.outbox.publisher.Publisher.publish` has it.
    """
    largest = publisher.guarantees.largest_message_bytes
    sendable = [list(_sendable(group, largest)) for group in groups]
    page = [AggregateEvents(events[0].aggregate, events) for events in sendable if events]
    outcomes = iter(await publisher.publish(page, until) if page else ())
    deliveries = [
        _delivery(group, len(events), next(outcomes) if events else Accepted(), largest)
        for group, events in zip(groups, sendable, strict=True)
    ]
    now = utc_now()
    for group, delivery in zip(groups, deliveries, strict=True):
        telemetry.accepted(group[: delivery.sent], now)
    return deliveries


def _sendable(events: Sequence[FeedEvent], largest: int | None) -> Iterator[OutboxEvent]:
    for event in events:
        if not isinstance(event, OutboxEvent) or _unsendable(event, largest) is not None:
            return
        yield event


def _unsendable(event: OutboxEvent, largest: int | None) -> str | None:
    """Why the event itself can never be sent; None: nothing is known against it."""
    if largest is None:
        return None
    try:
        text = json.dumps(dict(event.data), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError) as error:
        return f"the event's data has no form in JSON ({type(error).__name__})"
    if (size := len(text.encode(errors="replace"))) > largest:
        return f"the event's data has {size} bytes, and a message may have {largest}"
    return None


def _delivery(events: Sequence[FeedEvent], offered: int, outcome: Outcome, largest: int | None) -> Delivered:
    match outcome:
        case Refused(accepted, reason, shown_by_event, detail):
            return Delivered(accepted, Block(events[accepted], reason, not shown_by_event, detail))
        case Failing(accepted, reason, others_taken):
            return Delivered(accepted, Block(events[accepted], reason, not others_taken, passing=True))
        case Unknown(accepted, reason, why):
            return Delivered(accepted, waits_for=reason, why=why)
        case Accepted():
            if offered == len(events):
                return Delivered(offered)
            stopped = events[offered]
            if isinstance(stopped, Unread):
                return Delivered(offered, waits_for=stopped.reason, why=stopped.why)
            told = stopped.reason if isinstance(stopped, Poison) else _unsendable(stopped, largest)
            assert told is not None, "something stopped it"
            return Delivered(offered, Block(stopped, told))

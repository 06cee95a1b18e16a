"""The port to the message broker: sends a page of events and returns an outcome for each aggregate.

A publisher promises:

- order: an aggregate's events are sent as they are given. No two concurrent sends carry the same aggregate, and after
  an event that was not accepted no later one of its aggregate is sent. It stops no other aggregate;
- duplicates: the relay sends an event again, under the same id, when it does not know that the broker has it. The id of
  a message is ``event.message_id`` (of an event that an operator publishes again), else ``event.id``;
- a refusal (:class:`Refused`) is for good, and only the broker's word or the event itself proves it: the event is
  parked. One that is too large, or cannot be encoded, is refused;
- a lost answer, a timeout, a broker that is unavailable or full are :class:`Unknown`, never a refusal: the relay waits,
  and sends all of it again.

The relay relies only on these rules and on the publisher's :class:`Guarantees`.

:func:`deliver`, which relay and replay use, sends each aggregate's events up to the first that cannot be sent.

:class:`CloudEvents` gives an event the same CloudEvents 1.0 attributes over every transport. The names of extensions
have the form that CloudEvents requires: lower-case letters and digits. In the structured mode
(https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/formats/json-format.md) attributes and data are one JSON
document.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any, Protocol

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox import telemetry
from cosmos_outbox.outbox.canonical import as_sent
from cosmos_outbox.outbox.errors import FailureReason
from cosmos_outbox.outbox.feed import FeedEvent, OutboxEvent, Poison, Unread

STRUCTURED = "application/cloudevents+json"
"""The content type of the structured mode."""


@dataclass(frozen=True)
class CloudEvents:
    """Builds the CloudEvents attributes of a service's events."""

    source: str
    """The source: with the id it identifies an event globally."""
    schemas: str | None = None
    """The base URI of the events' published schemas; None: they are not published."""

    def dataschema(self, event: OutboxEvent) -> str | None:
        """Returns the URI of the schema of the event's data."""
        if self.schemas is None or event.schema_version is None:
            return None
        return f"{self.schemas}/{event.action}.v{event.schema_version}.json"

    def attributes(self, event: OutboxEvent) -> dict[str, Any]:
        """Returns the attributes without the data. Times and numbers are as in JSON.

        ``messageid`` exists if a published event is published again; ``id`` is always the event's own.
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
        """Returns attributes and data as one JSON document, the same bytes on every host."""
        return as_sent(self.attributes(event) | {"data": dict(event.data)})


@dataclass(frozen=True)
class Guarantees:
    """The guarantees of a transport."""

    ordered: bool
    """Subscribers get an aggregate's events in the order in which they were accepted."""
    deduplicates: bool
    """An event that is sent again under its id, within some window, reaches subscribers once."""
    mixes_aggregates: bool
    """One send may carry events of several aggregates, so that a page of many aggregates needs few round trips.

    A transport that learns from a refusal that it cannot no longer guarantees it.
    """
    largest_message_bytes: int | None
    """An event whose data alone is larger can never be sent. None: the limit is known only when an event is sent."""
    answer_seconds: float = 0.0
    """The maximum time for an answer. With less time for an event a caller may resend it forever without an outcome."""

    def left_to_subscribers(self) -> Sequence[str]:
        """Returns the missing guarantees, which subscribers must provide, for an operator to read."""
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
    """The broker has the first ``accepted`` events and will never accept the next one; no later one was sent.

    ``reason`` has no personal data, and is equal for equal causes.
    """

    accepted: int
    reason: str
    shown_by_event: bool = field(default=False, compare=False)
    """Whether the event itself is at fault: it cannot be encoded, or exceeds the maximum size. False: the broker
    refused it, which a fault of its settings could cause as well."""


@dataclass(frozen=True)
class Failing:
    """The broker has at least the first ``accepted`` events. The next one fails repeatedly, and may work later.

    The event fails, not the broker: its aggregate is set aside and retried automatically, so that it delays no other.
    ``reason``: as of :class:`Refused`.
    """

    accepted: int
    reason: str
    others_taken: bool = field(default=False, compare=False)
    """Whether the broker accepted other events between the tries. False: it may fail for all events."""


@dataclass(frozen=True)
class Unknown:
    """The broker has at least the first ``accepted`` events, and perhaps more. Send all events again.

    ``reason`` describes to an operator why sending stopped, and ``why`` is its kind.
    """

    accepted: int
    reason: str
    why: FailureReason = field(default=FailureReason.BROKER_AWAY, compare=False)


Outcome = Accepted | Refused | Failing | Unknown


class Publisher(Protocol):
    """Sends events to the message broker."""

    @property
    def guarantees(self) -> Guarantees:
        """The guarantees of this transport."""

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        """Sends the events of a page. Returns one outcome for each aggregate, in the page's order.

        Nothing is sent after ``until``, by the monotonic clock: the outcome of events that the broker has not accepted
        by then is unknown, and accepted ones are still returned. So a page that takes longer progresses with each
        attempt. The publisher decides the number of sends for a page, and their concurrency.

        If a send fails and its events may have arrived, the outcome of each aggregate in it is unknown. An unavailable
        broker is an outcome, not an error: only a bug is raised.
        """


@dataclass(frozen=True)
class SendFailure:
    """An event that cannot be sent, or fails repeatedly, and the reason."""

    event: FeedEvent
    reason: str
    by_broker: bool = False
    """Whether only the broker's answer proves it; False: the event itself does, or the broker accepts others."""
    passing: bool = False
    """Whether it may be accepted later: then it is retried automatically."""


@dataclass(frozen=True)
class Delivered:
    """The number of one aggregate's events that the broker certainly has, and why the others were not sent."""

    sent: int
    failure: SendFailure | None = None
    waits_for: str | None = None
    """The reason why the other events are not sent yet; a later attempt sends them."""
    why: FailureReason = FailureReason.BROKER_AWAY
    """The kind of ``waits_for``."""


async def deliver(
    publisher: Publisher, groups: Sequence[Sequence[FeedEvent]], until: float
) -> list[Delivered]:
    """Sends each aggregate's events up to the first that can never be sent. Returns a delivery for each group.

    ``until``: as in :meth:`cosmos_outbox.outbox.publisher.Publisher.publish`.
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
    """Returns why the event itself can never be sent; None: no reason is known."""
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
        case Refused(accepted, reason, shown_by_event):
            return Delivered(accepted, SendFailure(events[accepted], reason, not shown_by_event))
        case Failing(accepted, reason, others_taken):
            return Delivered(accepted, SendFailure(events[accepted], reason, not others_taken, passing=True))
        case Unknown(accepted, reason, why):
            return Delivered(accepted, waits_for=reason, why=why)
        case Accepted():
            if offered == len(events):
                return Delivered(offered)
            stopped = events[offered]
            if isinstance(stopped, Unread):
                return Delivered(offered, waits_for=stopped.reason, why=stopped.why)
            shown = stopped.reason if isinstance(stopped, Poison) else _unsendable(stopped, largest)
            assert shown is not None, "something stopped it"
            return Delivered(offered, SendFailure(stopped, shown))

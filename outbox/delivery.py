"""Each aggregate's events are sent in order, up to the first that cannot be sent. Relay and replay both send here."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outbox import telemetry
from outbox.feed import FeedEvent, OutboxEvent, Poison, Unread
from outbox.publisher import Accepted, AggregateEvents, Outcome, Publisher, Refused, Unknown
from outbox.unit_of_work import utc_now


@dataclass(frozen=True)
class Block:
    """An event that can never be sent as it is, and the reason."""

    event: FeedEvent
    reason: str


@dataclass(frozen=True)
class Delivery:
    """How many events of one aggregate the broker certainly has, in order, and why the others were not sent."""

    sent: int
    block: Block | None = None
    waits_for: str | None = None
    """Why the other events are not sent yet; a later attempt sends them."""


async def deliver(
    publisher: Publisher, groups: Sequence[Sequence[FeedEvent]], until: float
) -> list[Delivery]:
    """Send each aggregate's events up to the first that can never be sent. Returns a delivery for each group.

    ``until``: as :meth:`outbox.publisher.Publisher.publish` has it.
    """
    sendable = [list(_sendable(group, publisher.guarantees.largest_message_bytes)) for group in groups]
    page = [AggregateEvents(events[0].aggregate, events) for events in sendable if events]
    outcomes = iter(await publisher.publish(page, until) if page else ())
    deliveries = [
        _delivery(group, len(events), next(outcomes) if events else Accepted())
        for group, events in zip(groups, sendable, strict=True)
    ]
    now = utc_now()
    for group, delivery in zip(groups, deliveries, strict=True):
        telemetry.accepted(group[: delivery.sent], now)
    return deliveries


def _sendable(events: Sequence[FeedEvent], largest: int | None) -> Iterator[OutboxEvent]:
    for event in events:
        if not isinstance(event, OutboxEvent) or _too_large(event, largest):
            return
        yield event


def _too_large(event: OutboxEvent, largest: int | None) -> bool:
    if largest is None:
        return False
    text = json.dumps(dict(event.data), ensure_ascii=False, separators=(",", ":"))
    return len(text.encode(errors="replace")) > largest


def _delivery(events: Sequence[FeedEvent], offered: int, outcome: Outcome) -> Delivery:
    match outcome:
        case Refused(accepted, reason):
            return Delivery(accepted, Block(events[accepted], reason))
        case Unknown(accepted, reason):
            return Delivery(accepted, waits_for=reason)
        case Accepted():
            if offered == len(events):
                return Delivery(offered)
            stopped = events[offered]
            if isinstance(stopped, Unread):
                return Delivery(offered, waits_for=stopped.reason)
            reason = (
                stopped.reason
                if isinstance(stopped, Poison)
                else "the event is larger than any message may be"
            )
            return Delivery(offered, Block(stopped, reason))

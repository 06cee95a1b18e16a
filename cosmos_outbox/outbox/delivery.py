"""Each aggregate's events are sent in order, up to the first that cannot be sent. Relay and replay both send here."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox import telemetry
from cosmos_outbox.outbox.feed import FeedEvent, OutboxEvent, Poison, Unread
from cosmos_outbox.outbox.hindrance import Hindrance
from cosmos_outbox.outbox.publisher import (
    Accepted,
    AggregateEvents,
    Failing,
    Outcome,
    Publisher,
    Refused,
    Unknown,
)


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

"""One contact's events go out in order, up to the first that cannot be sent: by the relay, and by a replay."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from application.ports import EventPublisher, FeedEvent, OutboxEvent, Poison


@dataclass(frozen=True)
class Block:
    """The event that cannot be sent, and why."""

    event: FeedEvent
    reason: str


@dataclass(frozen=True)
class Delivery:
    """How many events the broker has accepted, in order, and what ended that early."""

    sent: int
    block: Block | None = None


async def deliver(publisher: EventPublisher, contact_id: str, events: Sequence[FeedEvent]) -> Delivery:
    """Send events up to the first that can never be sent. Raises NotDelivered."""
    valid = itertools.takewhile(lambda event: not isinstance(event, Poison), events)
    outgoing = [event for event in valid if isinstance(event, OutboxEvent)]
    refusal = await publisher.publish(contact_id, outgoing) if outgoing else None
    if refusal is not None:
        return Delivery(outgoing.index(refusal.event), Block(refusal.event, refusal.reason))
    if len(outgoing) == len(events):
        return Delivery(len(events))
    poison = events[len(outgoing)]
    return Delivery(len(outgoing), Block(poison, poison.reason if isinstance(poison, Poison) else ""))

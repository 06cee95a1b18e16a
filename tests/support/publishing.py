"""Events for a publisher, and a page of them."""

import asyncio
from collections.abc import Sequence

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import AggregateEvents, Outcome, Publisher
from tests.support.contacts import NOON


def event(contact: str, sequence: int, text: str = "") -> OutboxEvent:
    return OutboxEvent(
        id=f"{contact}-{sequence}", aggregate=AggregateKey("contact", contact), action="Changed",
        sequence=sequence, created_at=NOON, correlation_id="c", lsn=sequence, data={"sequence": sequence, "text": text},
    )  # fmt: skip


async def publish(
    publisher: Publisher, *groups: Sequence[OutboxEvent], within: float = 60.0
) -> Sequence[Outcome]:
    page = [AggregateEvents(group[0].aggregate, group) for group in groups]
    return await publisher.publish(page, asyncio.get_running_loop().time() + within)

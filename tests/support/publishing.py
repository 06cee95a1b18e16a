"""Events for a publisher, and a page of them."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import sources, using
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import AggregateEvents, Outcome, Publisher
from cosmos_outbox.testing.simulation.loop import Loop
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


def in_virtual_time(story: Callable[[], Coroutine[Any, Any, None]], seed: int = 0) -> None:
    """Run it from second 0 on; ``seed``: of what is drawn by lot."""
    loop: Loop

    def monotonic() -> float:
        return loop.time()

    with using(replace(sources(), monotonic=monotonic, random=Random(seed))):
        loop = Loop()
        loop.run(story())

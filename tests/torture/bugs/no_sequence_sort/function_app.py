"""The relay sends each contact's events in the order of the feed, which has none inside one transaction."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from infra.wiring import Outbox
from outbox.aggregate import AggregateKey
from outbox.feed import OutboxEvent
from outbox.publisher import AggregateEvents
from tests.torture.bugs.deployed import FORWARD, deployed_but


async def _forward(outbox: Outbox, items: Iterable[Mapping[str, Any]]) -> None:
    groups: defaultdict[AggregateKey, list[OutboxEvent]] = defaultdict(list)
    for event in outbox.events.events(items):
        if isinstance(event, OutboxEvent):
            groups[event.aggregate].append(event)
    await outbox.relay.publisher.publish([AggregateEvents(*group) for group in groups.items()])


app = deployed_but(FORWARD, "await forward(application().outbox, documents)", forward=_forward)

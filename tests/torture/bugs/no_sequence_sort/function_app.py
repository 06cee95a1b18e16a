"""The relay sends each contact's events in the order of the feed, which has none inside one transaction."""

from collections import defaultdict
from collections.abc import Iterable

from application.ports import FeedEvent, OutboxEvent
from application.relay import Relay
from tests.torture.bugs.deployed import FORWARD, deployed_but


async def _forward(relay: Relay, events: Iterable[FeedEvent]) -> None:
    groups: defaultdict[str, list[OutboxEvent]] = defaultdict(list)
    for event in events:
        if isinstance(event, OutboxEvent):
            groups[event.contact_id].append(event)
    for contact_id, group in groups.items():
        await relay.publisher.publish(contact_id, group)


app = deployed_but(
    FORWARD, "await forward(application().relay, events_from_items(documents))", forward=_forward
)

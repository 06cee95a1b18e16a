"""Committed documents in memory. What was read is used again until it is forgotten, as the real ones do."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cosmos_outbox.outbox.feed import FeedEvent


@dataclass
class KeptOriginals:
    stored: dict[str, FeedEvent] = field(default_factory=dict)
    """What is stored under an event's id now; any other event is as it was delivered."""
    kept: dict[str, FeedEvent] = field(default_factory=dict)

    async def verify(self, events: Sequence[FeedEvent]) -> list[FeedEvent]:
        return [self.kept.setdefault(each.id, self.stored.get(each.id, each)) for each in events]

    def forget(self, events: Sequence[FeedEvent]) -> None:
        for each in events:
            self.kept.pop(each.id, None)

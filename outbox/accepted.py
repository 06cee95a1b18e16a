"""A page that is tried again sends only what the broker is not known to have; the memory may be lost at any time.

One aggregate that waits makes its whole page come again, perhaps for hours. Without this memory the other aggregates'
events would be sent at each attempt, and reach subscribers a second time whenever the duplicate window has passed.
After a crash they are sent once more all the same: the memory spares work, and no rule relies on it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from outbox.aggregate import AggregateKey
from outbox.feed import FeedEvent

MOST = 50_000
"""How many events are remembered: more than the pages that a process can have in hand."""


@dataclass
class Accepted:
    """Which events of the pages in hand the broker has accepted."""

    most: int = MOST
    _known: OrderedDict[tuple[AggregateKey | None, str], None] = field(
        default_factory=OrderedDict, repr=False
    )

    def add(self, events: Iterable[FeedEvent]) -> None:
        """The broker has these events."""
        for event in events:
            self._known[event.aggregate, event.id] = None
        while len(self._known) > self.most:
            self._known.popitem(last=False)

    def without(self, events: Sequence[FeedEvent]) -> list[FeedEvent]:
        """The events that the broker is not known to have."""
        return [event for event in events if (event.aggregate, event.id) not in self._known]

    def forget(self, events: Iterable[FeedEvent]) -> None:
        """The page is done."""
        for event in events:
            self._known.pop((event.aggregate, event.id), None)

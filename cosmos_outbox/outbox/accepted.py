"""A page that is tried again sends only what the broker is not known to have; the memory may be lost at any time.

One aggregate that waits makes its whole page come again, perhaps for hours. Without this memory the other aggregates'
events would be sent at each attempt, and reach subscribers a second time whenever the duplicate window has passed.
After a crash they are sent once more all the same: the memory spares work, and no rule relies on it. It ends with the
page, also where the page goes on elsewhere because its lease was lost: an event that is delivered again much later,
from the beginning of the feed say, is to be sent, perhaps to a topic that was made anew.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.outbox.feed import FeedEvent

MOST = 50_000
"""How many events are remembered: more than the pages that a process can have in hand."""

KEPT_SECONDS = 600.0
"""From one attempt at a page to the next: a host pauses for a minute at most, and an attempt takes minutes."""


@dataclass
class AcceptedEvents:
    """Which events of the pages in hand the broker has accepted."""

    most: int = MOST
    _known: OrderedDict[tuple[AggregateKey | None, str], float] = field(
        default_factory=OrderedDict, repr=False
    )
    """With the time of the last attempt, the oldest first."""

    def add(self, events: Iterable[FeedEvent]) -> None:
        """The broker has these events."""
        now = monotonic()
        for event in events:
            self._note(event, now)
        while len(self._known) > self.most:
            self._known.popitem(last=False)

    def without(self, events: Sequence[FeedEvent]) -> list[FeedEvent]:
        """The events that the broker is not known to have."""
        now = monotonic()
        while self._known and next(iter(self._known.values())) <= now - KEPT_SECONDS:
            self._known.popitem(last=False)
        unknown = []
        for event in events:
            if (event.aggregate, event.id) in self._known:
                self._note(event, now)
            else:
                unknown.append(event)
        return unknown

    def forget(self, events: Iterable[FeedEvent]) -> None:
        """The page is done."""
        for event in events:
            self._known.pop((event.aggregate, event.id), None)

    def _note(self, event: FeedEvent, now: float) -> None:
        self._known[event.aggregate, event.id] = now
        self._known.move_to_end((event.aggregate, event.id))

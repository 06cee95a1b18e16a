"""An event of a page is in exactly one place: open, sent, parked, dropped, or behind a reason to wait."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.outbox.feed import FeedEvent
from cosmos_outbox.outbox.hindrance import Hindrance


@dataclass(frozen=True)
class Committed:
    """A page of the feed that has been compared with what was committed."""

    delivered: Sequence[FeedEvent]
    groups: Mapping[AggregateKey | None, Sequence[FeedEvent]]
    """The same events as they were committed: each aggregate's in the order of its changes, the others under None."""

    @property
    def ownerless(self) -> Sequence[FeedEvent]:
        """What belongs to no aggregate."""
        return self.groups.get(None, ())


@dataclass(frozen=True)
class Forwarded:
    """The result of one page of the feed, in numbers of events."""

    sent: int = 0
    parked: int = 0
    dropped: int = 0
    """Discarded earlier, or refused although the broker has the event's place."""


@dataclass
class PageProgress:
    """How far one page has got."""

    open: dict[AggregateKey, list[FeedEvent]]
    """What is neither sent, parked nor dropped yet."""
    aggregates: int
    sent: dict[AggregateKey, list[FeedEvent]] = field(default_factory=dict)
    parked: int = 0
    dropped: int = 0
    waiting: list[tuple[str, Hindrance]] = field(default_factory=list)
    """Why aggregates wait: one reason for each, and its kind."""

    @classmethod
    def of(cls, page: Committed) -> Self:
        """Nothing is done yet."""
        owned = {key: list(group) for key, group in page.groups.items() if key is not None}
        return cls(owned, len(page.groups))

    def wait(self, aggregate: AggregateKey, reason: str, why: Hindrance) -> None:
        """Nothing more of the aggregate is tried in this attempt at the page."""
        del self.open[aggregate]
        self.waiting.append((reason, why))

    def take_off(self, aggregate: AggregateKey, sent: Sequence[FeedEvent]) -> None:
        """The broker has these events."""
        gone = set(map(id, sent))
        self.open[aggregate] = [event for event in self.open[aggregate] if id(event) not in gone]
        self.sent.setdefault(aggregate, []).extend(sent)

    def drop(self, aggregate: AggregateKey, event: FeedEvent) -> None:
        """The event is not sent, and need not be."""
        self.open[aggregate] = [each for each in self.open[aggregate] if each is not event]
        self.dropped += 1

    def left(self) -> int:
        """How many events are open."""
        return sum(map(len, self.open.values()))

    def forwarded(self) -> Forwarded:
        """The numbers so far."""
        return Forwarded(sum(map(len, self.sent.values())), self.parked, self.dropped)

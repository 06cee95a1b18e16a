"""Keeps the state of pages under way: what was verified, sent, parked or dropped, and what the broker refuses alike.

:class:`PageProgress` keeps each event in exactly one state: open, sent, parked, dropped, or waiting for a reason.

:class:`SentCache` lets a repeated page send only events that the broker is not known to have. One waiting
aggregate makes its whole page come again, perhaps for hours. Without this cache the other aggregates' events would be
sent in each attempt, and reach subscribers twice once the duplicate window has passed; and a page that a slow receiver
cannot take within one sending time would begin anew each time, and never end. The cache may be lost at any time, as in
a crash, and the events are then sent again: no rule relies on it. An entry ends with its page, even if the page
continues elsewhere after a lost lease: an event that is delivered much later, such as from the beginning of the feed,
must be sent, perhaps to a new topic.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Self

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.errors import FailureReason
from cosmos_outbox.outbox.feed import FeedEvent

MOST = 50_000
"""The maximum number of cached events: more than all current pages of a process have."""

KEPT_SECONDS = 600.0
"""The lifetime of an entry since the last attempt: a host pauses for at most a minute, an attempt takes minutes."""


@dataclass
class SentCache:
    """Caches which events of the current pages the broker has accepted."""

    most: int = MOST
    _known: OrderedDict[tuple[AggregateKey | None, str], float] = field(
        default_factory=OrderedDict, repr=False
    )
    """The accepted events with the time of their last attempt, oldest first."""

    def add(self, events: Iterable[FeedEvent]) -> None:
        """Records that the broker has these events."""
        now = monotonic()
        for event in events:
            self._note(event, now)
        while len(self._known) > self.most:
            self._known.popitem(last=False)

    def without(self, events: Sequence[FeedEvent]) -> list[FeedEvent]:
        """Returns the events that the broker is not known to have."""
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
        """Removes the events of a page that is done."""
        for event in events:
            self._known.pop((event.aggregate, event.id), None)

    def _note(self, event: FeedEvent, now: float) -> None:
        self._known[event.aggregate, event.id] = now
        self._known.move_to_end((event.aggregate, event.id))


@dataclass(frozen=True)
class VerifiedPage:
    """A page of the feed, verified against the committed documents."""

    delivered: Sequence[FeedEvent]
    groups: Mapping[AggregateKey | None, Sequence[FeedEvent]]
    """The committed events: each aggregate's in the order of its changes, those without one under None."""

    @property
    def ownerless(self) -> Sequence[FeedEvent]:
        """The documents that belong to no aggregate."""
        return self.groups.get(None, ())


@dataclass(frozen=True)
class ForwardResult:
    """The result of one page of the feed, in numbers of events."""

    sent: int = 0
    parked: int = 0
    dropped: int = 0
    """The events discarded earlier, or refused although the broker has their sequence already."""


@dataclass
class PageProgress:
    """The progress of one page."""

    open: dict[AggregateKey, list[FeedEvent]]
    """The events that are neither sent, parked nor dropped yet."""
    aggregates: int
    sent: dict[AggregateKey, list[FeedEvent]] = field(default_factory=dict)
    parked: int = 0
    dropped: int = 0
    waiting: list[tuple[str, FailureReason]] = field(default_factory=list)
    """The reason, with its kind, of each aggregate that waits."""

    @classmethod
    def of(cls, page: VerifiedPage) -> Self:
        """Returns the progress of a page of which nothing is done yet."""
        owned = {key: list(group) for key, group in page.groups.items() if key is not None}
        return cls(owned, len(page.groups))

    def wait(self, aggregate: AggregateKey, reason: str, why: FailureReason) -> None:
        """Ends this attempt for the aggregate: its open events wait."""
        del self.open[aggregate]
        self.waiting.append((reason, why))

    def take_off(self, aggregate: AggregateKey, sent: Sequence[FeedEvent]) -> None:
        """Records that the broker has these events."""
        gone = set(map(id, sent))
        self.open[aggregate] = [event for event in self.open[aggregate] if id(event) not in gone]
        self.sent.setdefault(aggregate, []).extend(sent)

    def drop(self, aggregate: AggregateKey, event: FeedEvent) -> None:
        """Drops an event that need not be sent."""
        self.open[aggregate] = [each for each in self.open[aggregate] if each is not event]
        self.dropped += 1

    def left(self) -> int:
        """Returns the number of open events."""
        return sum(map(len, self.open.values()))

    def forwarded(self) -> ForwardResult:
        """Returns the numbers so far."""
        return ForwardResult(sum(map(len, self.sent.values())), self.parked, self.dropped)


PATIENCE_SECONDS = 600.0
"""Long enough for an alert and a reaction; a partition with only poison advances by six aggregates an hour."""


@dataclass
class BrokerFaultDetector:
    """Detects a broker that refuses everything for the same reason: the fault is then its own, and nothing is parked.

    A single refused message is poison, and so is each of several while the broker accepts others, or if the reasons
    differ. But if the broker has refused the events of several aggregates for one reason and accepted nothing since,
    most likely a topic or a setting is wrong, and the events wait until it is repaired. "Since" covers the whole
    process: an event of any partition, page or attempt that the broker accepts after an aggregate was first refused
    proves that the refusal is the aggregate's own. Without such a proof a few equally broken documents would block
    their partition for ever, so while the refusals last, one aggregate is parked each ``PATIENCE_SECONDS``.

    A passing failure counts like that also if the attempt had no time left for other aggregates: they may fail alike.

    Times are those of the monotonic clock.
    """

    patience_seconds: float = PATIENCE_SECONDS
    _refused: dict[AggregateKey, tuple[float, float]] = field(default_factory=dict, repr=False)
    """The first and last refusal of each aggregate; removed if it is not tried for ``patience_seconds``."""
    _accepted_at: float = field(default=float("-inf"), repr=False)
    """The time when the broker last accepted an event."""
    _parked: tuple[AggregateKey, str] | None = field(default=None, repr=False)
    """The aggregate that was parked last without a proof, and the reason."""
    _waiting: tuple[float, float] | None = field(default=None, repr=False)
    """The begin of the waiting, and its last attempt."""

    def to_wait(
        self, refused: Mapping[AggregateKey, str], *, accepted: bool, undecided: int = 0
    ) -> Mapping[AggregateKey, str]:
        """Returns the aggregates that must not be parked now, each with a message for an operator.

        ``refused``: the broker's reasons in one attempt. ``accepted``: whether it accepted any event in that attempt.
        ``undecided``: the number of other aggregates that may turn out to be refused alike.
        """
        now = monotonic()
        if accepted:
            self._accepted_at, self._parked, self._waiting = now, None, None
        self._note(refused, now)
        unproven = {
            key: reason for key, reason in refused.items() if self._accepted_at < self._refused[key][0]
        }
        reasons = set(unproven.values())
        if len(reasons) != 1:
            return {}
        [reason] = reasons
        first = next(iter(unproven))
        parked_alike = {self._parked[0]} if self._parked and self._parked[1] == reason else set()
        if len({*unproven, *parked_alike}) + undecided > 1 and self._waits(now):
            return dict.fromkeys(unproven, self._message(reason))
        self._parked, self._waiting = (first, reason), None
        return {key: self._message(reason) for key in unproven if key != first}

    def _note(self, refused: Mapping[AggregateKey, str], now: float) -> None:
        self._refused = {
            key: (first, last)
            for key, (first, last) in self._refused.items()
            if now - last <= self.patience_seconds
        }
        for key in refused:
            first, _ = self._refused.get(key, (now, now))
            self._refused[key] = first, now

    def _waits(self, now: float) -> bool:
        began, last = self._waiting or (now, now)
        if now - last > self.patience_seconds:  # that of an earlier page, which another instance has now
            began = now
        self._waiting = began, now
        return now - began < self.patience_seconds

    def _message(self, reason: str) -> str:
        return (
            f"the broker refuses the events of several aggregates alike and accepts none: {reason}. Nothing is parked "
            "for that at first: correct the topic or the settings. Until the broker accepts an event, one of these "
            f"aggregates is parked each {self.patience_seconds / 60:.0f} minutes"
        )

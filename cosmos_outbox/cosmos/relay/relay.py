"""Forwards each aggregate's events in the order of its changes; the feed advances only once the broker has them.

The change feed has no order inside one transaction and delivers at least once. So events are sorted by their
``sequence`` within each aggregate, and a page of the feed is done only when :meth:`Relay.forward` returns. A temporary
failure is raised; the host then delivers the same page again, and the broker or the subscribers drop events that they
already have.

An event that can never be sent is parked durably, with all later events of its aggregate, before the page is done.
Other aggregates continue. Every event of the page ends in one of four ways: the broker has it, it is parked, an
operator has discarded it, or the broker has its sequence already and refuses it now, which is logged. An error that one
document causes makes that document poison; a broker that refuses everything for one reason makes the page wait.

:class:`PageProgress` keeps each event in exactly one state: open, sent, parked, dropped, or waiting for a reason.

:class:`SentCache` lets a repeated page send only events that the broker is not known to have. One waiting
aggregate makes its whole page come again, perhaps for hours. Without this cache the other aggregates' events would be
sent in each attempt, and reach subscribers twice once the duplicate window has passed. The cache may be lost at any
time, as in a crash, and the events are then sent again: it saves work, and no rule relies on it. An entry ends with its
page, even if the page continues elsewhere after a lost lease: an event that is delivered much later, such as from the
beginning of the feed, must be sent, perhaps to a new topic.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Self

from cosmos_outbox.cosmos.relay.originals import CosmosOriginals
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import Clock, monotonic, utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.kernel.loops import LogThrottle
from cosmos_outbox.outbox import telemetry
from cosmos_outbox.outbox.aggregate_block import AggregateBlock, BlockDecision
from cosmos_outbox.outbox.errors import (
    FailureReason,
    NotDelivered,
    PreconditionFailed,
    Throttled,
    Unavailable,
    hindrance,
)
from cosmos_outbox.outbox.feed import (
    FeedEvent,
    Poison,
    Unread,
    by_aggregate,
    caused_by,
)
from cosmos_outbox.outbox.publisher import Delivered, Publisher, SendFailure, deliver

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


READING_SECONDS = 60.0
"""The maximum age of the blocks that a send is based on (rule ``fresh-reading``). A discarding waits as long."""

_RACES = 5
"""The number of attempts at an aggregate while others park or replay it."""

_PARKED_AT_ONCE = 8
"""The number of aggregates that are parked concurrently."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Relay:
    """Forwards event documents to the broker."""

    publisher: Publisher
    parking: CosmosParkingLot
    originals: CosmosOriginals
    reading_seconds: float = READING_SECONDS
    """The maximum age of the blocks that a send is based on, equal in all instances."""
    accepted: SentCache = field(default_factory=SentCache)
    refused_alike: BrokerFaultDetector = field(default_factory=BrokerFaultDetector)
    clock: Clock = utc_now
    saying: LogThrottle = field(default_factory=LogThrottle)

    async def forward(self, events: Sequence[FeedEvent]) -> ForwardResult:
        """Calls :meth:`compare` and :meth:`forward_committed`. Raises NotDelivered."""
        return await self.forward_committed(await self.compare(events))

    async def compare(self, events: Sequence[FeedEvent]) -> VerifiedPage:
        """Verifies a page against the committed documents; sends nothing, so it may overlap with the page before."""
        return VerifiedPage(events, by_aggregate(await self.originals.verify(events)))

    async def forward_committed(self, page: VerifiedPage) -> ForwardResult:
        """Sends or parks every event, each aggregate's in order.

        Raises:
            NotDelivered: the events of some aggregates are neither sent nor parked: read and forward the page again.
        """
        events = page.delivered
        if not events:
            return ForwardResult()
        try:
            forwarded = await self._forward(page)
        except NotDelivered as reason:
            if self.saying.due():
                _log.error(
                    "%d event(s) wait, and will be tried again until they are accepted: %s",
                    len(events),
                    reason,
                )
            raise
        telemetry.last_success.now()
        self.originals.forget(events)
        self.accepted.forget(events)
        _log.info("forwarded %d event(s), parked %d", forwarded.sent, forwarded.parked)
        return forwarded

    async def _forward(self, committed: VerifiedPage) -> ForwardResult:
        page = PageProgress.of(committed)
        races = 0
        while page.open and races < _RACES:
            left = page.left()
            await self._go_on(page)
            if page.left() == left:  # after a dropped event, those behind it are tried next
                races += 1
        for key in list(page.open):
            page.wait(
                key, f"operators or other instances keep parking and replaying {key}", FailureReason.RACED
            )
        await self._park_alone(page, committed.ownerless)
        if page.waiting:
            reason, why = page.waiting[0]
            raise NotDelivered(
                f"the events of {len(page.waiting)} of {page.aggregates} aggregates wait: {reason}", why
            )
        return page.forwarded()

    async def _go_on(self, page: PageProgress) -> None:
        """Reads the blocks once, and sends, parks or drops the open events accordingly. Raises NotDelivered."""
        usable_until = monotonic() + self.reading_seconds
        try:
            blocks = await self.parking.read_blocks(page.open.keys())
        except (Throttled, Unavailable) as error:
            raise NotDelivered(f"the parked events cannot be read: {error}", hindrance(error)) from error
        known = {key: blocks.get(key) or AggregateBlock(key) for key in page.open}
        for key, block in known.items():
            self._drop_given_up(page, key, block)
        await self._park(page, await self._send(page, known, usable_until))

    def _drop_given_up(self, page: PageProgress, key: AggregateKey, block: AggregateBlock) -> None:
        for event in [each for each in page.open[key] if block.decide(each) is BlockDecision.DROP]:
            _log.warning(
                "event %s of %s was discarded by an operator: it is not sent%s",
                event.id,
                key,
                caused_by(event),
            )
            page.drop(key, event)

    async def _send(
        self, page: PageProgress, blocks: Mapping[AggregateKey, AggregateBlock], usable_until: float
    ) -> list[AggregateBlock]:
        """Sends the sendable events. Returns the blocks behind which an aggregate's open events must be parked."""
        offered = {
            key: [event for event in page.open[key] if block.decide(event) is not BlockDecision.PARK]
            for key, block in blocks.items()
        }
        to_park: list[AggregateBlock] = []
        results = await self._deliver([*offered.values()], usable_until)
        to_wait = self._refused_alike(dict(zip(offered, (delivery for _, delivery in results), strict=True)))
        for key, (sent, delivery) in zip(offered, results, strict=True):
            block = blocks[key]
            page.take_off(key, sent)
            if key in to_wait:
                page.wait(key, to_wait[key], FailureReason.BATCH_REFUSED)
            elif delivery.waits_for is not None:
                page.wait(key, delivery.waits_for, delivery.why)
            elif delivery.failure is not None and block.has_place_of(delivery.failure.event):
                self._drop_refused(page, block, delivery.failure)
            elif delivery.failure is not None:
                had, now, failed = page.sent[key], self.clock(), delivery.failure
                to_park.append(
                    block.blocked_by(failed.event, failed.reason, had, now, passing=failed.passing)
                )
            elif page.open[key]:
                to_park.append(block)
            else:
                del page.open[key]
        return to_park

    def _refused_alike(self, deliveries: Mapping[AggregateKey, Delivered]) -> Mapping[AggregateKey, str]:
        """Returns the aggregates that wait because the broker refuses everything alike, with messages."""
        refused = {
            key: delivery.failure
            for key, delivery in deliveries.items()
            if delivery.failure is not None and delivery.failure.by_broker
        }
        accepted = any(delivery.sent for delivery in deliveries.values())
        passing = any(failure.passing for failure in refused.values())
        waiting = sum(delivery.waits_for is not None for delivery in deliveries.values())
        return self.refused_alike.to_wait(
            {key: failure.reason for key, failure in refused.items()},
            accepted=accepted,
            undecided=waiting if passing else 0,
        )

    async def _deliver(
        self, groups: Sequence[Sequence[FeedEvent]], usable_until: float
    ) -> list[tuple[list[FeedEvent], Delivered]]:
        """Sends each group, except events the broker is known to have, until the blocks are too old.

        Returns the events of each group that the broker has, and why the others were not sent.
        """
        new = [self.accepted.without(group) for group in groups]
        telemetry.duplicates(sum(map(len, groups)) - sum(map(len, new)))
        results = []
        for group, rest, delivery in zip(
            groups, new, await deliver(self.publisher, new, usable_until), strict=True
        ):
            self.accepted.add(rest[: delivery.sent])
            _report(rest[: delivery.sent])
            unsent = set(map(id, rest[delivery.sent :]))
            results.append(([event for event in group if id(event) not in unsent], delivery))
        return results

    def _drop_refused(self, page: PageProgress, block: AggregateBlock, failure: SendFailure) -> None:
        event, key = failure.event, block.aggregate
        page.drop(key, event)
        if event.id in block.passed:
            advice = "The broker has accepted it before: nothing needs to be done"
        else:
            advice = (
                f"The broker has accepted sequence {block.accepted} before, and perhaps this event too. It is "
                "possibly missing: if a subscriber lacks it, remove the reason and publish the aggregate again"
            )
        _log.error(
            "event %s of %s, sequence %s, came again or late, and cannot be sent now: %s. %s%s",
            event.id,
            key,
            event.sequence,
            failure.reason,
            advice,
            caused_by(event),
        )
        if not page.open[key]:
            del page.open[key]

    async def _park(self, page: PageProgress, blocks: Sequence[AggregateBlock]) -> None:
        """Parks the open events of these aggregates. Those of an aggregate that others have changed stay open."""
        places = asyncio.Semaphore(_PARKED_AT_ONCE)

        async def one(block: AggregateBlock) -> None:
            async with places:
                await self._park_one(page, block)

        async with asyncio.TaskGroup() as parking:
            for block in blocks:
                parking.create_task(one(block))

    async def _park_one(self, page: PageProgress, block: AggregateBlock) -> None:
        key = block.aggregate
        behind = page.open[key]
        if unread := next((event for event in behind if isinstance(event, Unread)), None):
            page.wait(key, unread.reason, unread.why)  # parked as delivered, its original might never be read
            return
        try:
            new = await self.parking.park(block, behind)
        except PreconditionFailed:  # an operator replayed the aggregate, or another instance parked it
            return
        except (Throttled, Unavailable) as error:
            page.wait(key, f"an event that cannot be sent could not be parked: {error}", hindrance(error))
            return
        del page.open[key]
        page.parked += len(behind)
        refusal = block.refusal
        refused = [event for event in behind if refusal and event.id == refusal.event_id]
        passing = refusal is not None and refusal.passing
        for event in behind:
            if event.id in new:  # count each event once: the page may come again because of others
                telemetry.parked(_why(event, passing) if event in refused else telemetry.Why.BEHIND)
        _log.log(
            logging.INFO if not refused else logging.WARNING if passing else logging.ERROR,
            "parked %d event(s) of %s behind event %s: %s. "
            f"{'It is tried again by itself' if passing else 'Remove the reason and replay the aggregate'}"
            ", or discard that event%s",
            len(behind),
            key,
            refusal.event_id if refusal else "that is being replayed",
            refusal.reason if refusal else "it is being replayed",
            caused_by(*behind),
        )

    async def _park_alone(self, page: PageProgress, ownerless: Sequence[FeedEvent]) -> None:
        for event in ownerless:
            if isinstance(event, Unread):
                page.waiting.append((event.reason, event.why))
                continue
            assert isinstance(event, Poison), "a valid event has its aggregate"
            try:
                new = await self.parking.park_alone(event)
            except (Throttled, Unavailable) as error:
                page.waiting.append(
                    (f"an event that cannot be sent could not be parked: {error}", hindrance(error))
                )
                return
            page.parked += 1
            telemetry.parked(telemetry.Why.INVALID, int(new))
            _log.error(
                "parked document %s, which belongs to no aggregate: %s. Look at the document, then discard it",
                event.id,
                event.reason,
            )


def _why(event: FeedEvent, passing: bool) -> telemetry.Why:
    if isinstance(event, Poison):
        return telemetry.Why.INVALID
    return telemetry.Why.FAILING if passing else telemetry.Why.REFUSED


def _report(sent: Sequence[FeedEvent]) -> None:
    if _log.isEnabledFor(logging.DEBUG):
        for event in sent:
            _log.debug(
                "forwarded %s of %s, sequence %s%s",
                event.id,
                event.aggregate,
                event.sequence,
                caused_by(event),
            )

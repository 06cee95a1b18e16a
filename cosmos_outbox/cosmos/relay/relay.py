"""Forwards each aggregate's events in the order of its changes; the feed advances only once the broker has them.

The change feed has no order inside one transaction and delivers at least once. So events are sorted by their
``sequence`` within each aggregate, and a page of the feed is done only when :meth:`Relay.forward` returns. A temporary
failure is raised; the host then delivers the same page again, and the broker or the subscribers drop events that they
already have.

An event that can never be sent is parked durably, with all later events of its aggregate, before the page is done.
Other aggregates continue. Every event of the page ends in one of four ways: the broker has it, it is parked, an
operator has discarded it, or the broker has its sequence already and refuses it now, which is logged. An error that one
document causes makes that document poison; a broker that refuses everything for one reason makes the page wait.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import field

from cosmos_outbox.cosmos.relay.originals import CosmosOriginals
from cosmos_outbox.cosmos.relay.pages import (
    BrokerFaultDetector,
    ForwardResult,
    PageProgress,
    SentCache,
    VerifiedPage,
)
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
    fault_detector: BrokerFaultDetector = field(default_factory=BrokerFaultDetector)
    clock: Clock = utc_now
    throttle: LogThrottle = field(default_factory=LogThrottle)

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
            if self.throttle.due():
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
        to_wait = self._broker_faults(dict(zip(offered, (delivery for _, delivery in results), strict=True)))
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

    def _broker_faults(self, deliveries: Mapping[AggregateKey, Delivered]) -> Mapping[AggregateKey, str]:
        """Returns the aggregates that wait because the broker refuses everything alike, with messages."""
        refused = {
            key: delivery.failure
            for key, delivery in deliveries.items()
            if delivery.failure is not None and delivery.failure.by_broker
        }
        accepted = any(delivery.sent for delivery in deliveries.values())
        passing = any(failure.passing for failure in refused.values())
        waiting = sum(delivery.waits_for is not None for delivery in deliveries.values())
        return self.fault_detector.to_wait(
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

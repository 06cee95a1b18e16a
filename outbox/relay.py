"""Each aggregate's events leave in the order of its changes, and the feed moves on only after the broker has them.

The change feed gives no order inside one transaction and delivers at least once. So events are sorted by their
``sequence`` within each aggregate, and a page of the feed counts as done only when :meth:`Relay.forward` returns. A
failure that may pass is raised; then the host brings the same page again, and the broker or the subscribers drop the
events that they already have.

An event that can never be sent is parked durably, with all later events of its aggregate, before the page counts as
done. Other aggregates go on. After a crash the page comes again: events that were sent are dropped as duplicates, and
events that were parked are found in the parking lot.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from outbox.aggregate import AggregateKey
from outbox.delivery import Delivery, deliver
from outbox.errors import NotDelivered, PreconditionFailed, Throttled, Unavailable
from outbox.feed import FeedEvent, OutboxEvent, Poison, Unread, by_aggregate
from outbox.once_a_minute import OnceAMinute
from outbox.originals import AsDelivered, Originals
from outbox.parking_lot import ParkedAggregate, ParkingLot
from outbox.publisher import Publisher
from outbox.ttl_guard import TtlGuard

_ROUNDS = 5
"""How many times an aggregate is tried while others park or replay it."""

_PARKED_AT_ONCE = 8
"""How many aggregates are being parked at the same time."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Forwarded:
    """The result of one page of the feed, in numbers of events."""

    sent: int = 0
    parked: int = 0


@dataclass
class _Page:
    """How far one page has got."""

    open: dict[AggregateKey, Sequence[FeedEvent]]
    """The aggregates whose events are neither sent nor parked yet."""
    aggregates: int
    sent: int = 0
    parked: int = 0
    waiting: list[str] = field(default_factory=list)
    """Why aggregates wait: one reason for each."""

    def wait(self, aggregate: AggregateKey, reason: str) -> None:
        del self.open[aggregate]
        self.waiting.append(reason)


@dataclass(frozen=True)
class Relay:
    """Forwards event documents to the broker."""

    publisher: Publisher
    parking: ParkingLot
    originals: Originals = field(default_factory=AsDelivered)
    guard: TtlGuard = field(default_factory=TtlGuard)
    saying: OnceAMinute = field(default_factory=OnceAMinute)

    async def forward(self, events: Sequence[FeedEvent]) -> Forwarded:
        """Send or park every event, each aggregate's in order.

        Raises:
            NotDelivered: the events of some aggregates are neither sent nor parked: forward the same page again.
        """
        if not events:
            return Forwarded()
        self.guard.watch(events)
        try:
            forwarded = await self._forward(events)
        except NotDelivered as reason:
            if self.saying.due():
                _log.error(
                    "%d event(s) wait, and will be tried again until they are accepted: %s",
                    len(events),
                    reason,
                )
            raise
        self.saying.reset()
        self.originals.forget(events)
        return forwarded

    async def _forward(self, events: Sequence[FeedEvent]) -> Forwarded:
        try:
            parked = dict(await self.parking.aggregates())
        except (Throttled, Unavailable) as error:
            raise NotDelivered(f"the parked events cannot be read: {error}") from error
        groups = by_aggregate(await self.originals.verified(events))
        page = _Page({key: group for key, group in groups.items() if key is not None}, len(groups))
        for _ in range(_ROUNDS):
            parked |= await self._send(page, [key for key in page.open if key not in parked])
            parked = await self._park(page, {key: parked[key] for key in page.open})
            if not page.open:
                break
        for key in list(page.open):
            page.wait(key, f"operators or other instances keep parking and replaying {key}")
        await self._park_alone(page, groups.get(None, []))
        if page.waiting:
            raise NotDelivered(
                f"the events of {len(page.waiting)} of {page.aggregates} aggregates wait: {page.waiting[0]}"
            )
        return Forwarded(page.sent, page.parked)

    async def _send(self, page: _Page, keys: Sequence[AggregateKey]) -> dict[AggregateKey, ParkedAggregate]:
        """Send what can be sent. Returns the aggregates to be parked; their sent events are off the page."""
        groups = [page.open[key] for key in keys]
        blocked: dict[AggregateKey, ParkedAggregate] = {}
        for key, group, delivery in zip(keys, groups, await deliver(self.publisher, groups), strict=True):
            _log_sent(group[: delivery.sent])
            page.sent += delivery.sent
            if delivery.waits_for is not None:
                page.wait(key, delivery.waits_for)
            elif delivery.block is None:
                del page.open[key]
            else:
                page.open[key] = group[delivery.sent :]
                blocked[key] = _to_be_parked(key, delivery)
        return blocked

    async def _park(
        self, page: _Page, parked: dict[AggregateKey, ParkedAggregate]
    ) -> dict[AggregateKey, ParkedAggregate]:
        """Park what is still on the page. Returns the aggregates that others changed meanwhile, as newly read."""
        places = asyncio.Semaphore(_PARKED_AT_ONCE)

        async def one(aggregate: ParkedAggregate) -> ParkedAggregate | None:
            async with places:
                return await self._park_one(page, aggregate)

        results = await asyncio.gather(*map(one, parked.values()), return_exceptions=True)
        again: dict[AggregateKey, ParkedAggregate] = {}
        for key, result in zip(parked, results, strict=True):
            if isinstance(result, Throttled | Unavailable):
                page.wait(key, f"an event that cannot be sent could not be parked: {result}")
            elif isinstance(result, BaseException):
                raise result
            elif result is not None:
                again[key] = result
        return again

    async def _park_one(self, page: _Page, parked: ParkedAggregate) -> ParkedAggregate | None:
        """Park one aggregate's events. Returns the aggregate as newly read when somebody else parked it faster."""
        key = parked.aggregate
        behind = page.open[key]
        if parked.version:  # all events before the blocking one were delivered before it was parked
            behind = [event for event in behind if event.position >= parked.position]
        if unread := next((event for event in behind if isinstance(event, Unread)), None):
            page.wait(key, unread.reason)  # parked as it was delivered, it might never be read again
            return None
        if behind:
            try:
                await self.parking.park(parked, behind)
            except PreconditionFailed:  # an operator replayed the aggregate, or another instance parked it
                return await self.parking.aggregate(key)
            _log.log(
                logging.INFO if parked.version else logging.ERROR,
                "parked %d event(s) of %s behind event %s: %s. "
                "Remove the reason and replay the aggregate, or discard that event",
                len(behind),
                key,
                parked.blocked_by,
                parked.reason,
            )
        del page.open[key]
        page.parked += len(behind)
        return None

    async def _park_alone(self, page: _Page, ownerless: Sequence[FeedEvent]) -> None:
        for event in ownerless:
            if isinstance(event, Unread):
                page.waiting.append(event.reason)
                continue
            assert isinstance(event, Poison), "a valid event has its aggregate"
            try:
                await self.parking.park_alone(event)
            except (Throttled, Unavailable) as error:
                page.waiting.append(f"an event that cannot be sent could not be parked: {error}")
                return
            page.parked += 1
            _log.error(
                "parked document %s, which belongs to no aggregate: %s. Look at the document, then discard it",
                event.id,
                event.reason,
            )


def _to_be_parked(aggregate: AggregateKey, delivery: Delivery) -> ParkedAggregate:
    assert delivery.block is not None
    event = delivery.block.event
    return ParkedAggregate(aggregate, event.id, delivery.block.reason, event.position, version="")


def _log_sent(events: Sequence[FeedEvent]) -> None:
    for event in events:
        if isinstance(event, OutboxEvent):
            _log.info(
                "forwarded %s %s of %s, sequence %d", event.action, event.id, event.aggregate, event.sequence
            )

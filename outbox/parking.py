"""An operator looks at parked events, replays them in order, or discards them. A crash at any point loses no event.

An aggregate is released only when no event of it is parked any more. An event that the relay parks in the meantime
changes the aggregate's version: then the release does nothing, and that event is replayed too. A parked event is
removed after the broker has accepted it; a crash in between sends the event again, under the same id.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from outbox.aggregate import AggregateKey
from outbox.delivery import deliver
from outbox.errors import NotDelivered, NotParked, PreconditionFailed, StillUnsendable
from outbox.feed import FeedEvent
from outbox.originals import AsDelivered, Originals
from outbox.parking_lot import ParkedAggregate, ParkedEvent, ParkedPage, ParkingLot
from outbox.publisher import Publisher

REPLAY_SECONDS = 20.0
"""How long one replay runs before it answers, finished or not: an HTTP caller does not wait for ever."""

_CHUNK = 50

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Replayed:
    """How many events a replay sent. ``done``: no event of the aggregate is parked now; new events are sent."""

    replayed: int
    done: bool


@dataclass(frozen=True)
class Parking:
    """The parked events, for operators."""

    lot: ParkingLot
    publisher: Publisher
    originals: Originals = field(default_factory=AsDelivered)
    clock: Callable[[], float] = time.monotonic

    async def page(self, size: int, continuation_token: str | None) -> ParkedPage:
        """A page of parked events, oldest first. Raises UnknownContinuation."""
        return await self.lot.page(size, continuation_token)

    async def show(self, parking_id: str) -> ParkedEvent:
        """One parked event with its document. Raises NotParked."""
        parked = await self.lot.get(parking_id)
        if parked is None:
            raise NotParked(
                f"no event is parked under {parking_id}: take an id from the list of parked events"
            )
        return parked

    async def replay(self, aggregate: AggregateKey) -> Replayed:
        """Send an aggregate's parked events in order; new ones queue up behind them until all are sent.

        Raises:
            NotParked: the aggregate is not parked.
            StillUnsendable: an event cannot be sent: discard the event, or remove the reason, then replay again.
            NotDelivered: the broker is away, or its answer was lost: replay again later.
        """
        parked = await self.lot.aggregate(aggregate)
        if parked is None:
            raise NotParked(f"{aggregate} is not parked: take an aggregate from the list of parked events")
        replayed, until = 0, self.clock() + REPLAY_SECONDS
        while self.clock() < until:
            waiting = await self.lot.waiting(aggregate, _CHUNK)
            if waiting:
                replayed += await self._send(parked, waiting)
            elif await self.lot.release(parked):
                _log.info("replayed %s: sent %d event(s), no event is parked any more", aggregate, replayed)
                return Replayed(replayed, done=True)
            # The relay may have parked more events, or another operator may have been faster: read the newest state.
            parked = await self.lot.aggregate(aggregate)
            if parked is None:
                return Replayed(replayed, done=True)
        return Replayed(replayed, done=False)

    async def discard(self, parking_id: str, reason: str) -> None:
        """Give an event up for good. Raises NotParked.

        When no other event of the aggregate is parked, the aggregate is released; otherwise replay the aggregate.
        """
        event = await self.show(parking_id)
        await self.lot.discard(event, reason)
        _log.warning("discarded event %s of %s", event.event_id, event.aggregate or "no aggregate")
        if event.aggregate is None:
            return
        parked = await self.lot.aggregate(event.aggregate)
        if parked is not None and not await self.lot.waiting(event.aggregate, 1):
            await self.lot.release(parked)

    async def _send(self, parked: ParkedAggregate, waiting: Sequence[tuple[ParkedEvent, FeedEvent]]) -> int:
        events = await self.originals.verified([event for _, event in waiting])
        [delivery] = await deliver(self.publisher, [events])
        self.originals.forget(events[: delivery.sent])
        await self.lot.remove([event for event, _ in waiting[: delivery.sent]])
        if delivery.waits_for is not None:
            raise NotDelivered(
                f"{delivery.waits_for}: when that is repaired, replay {parked.aggregate} again"
            )
        if delivery.block is None:
            return delivery.sent
        event, in_the_way = waiting[delivery.sent]
        reason = delivery.block.reason
        newest = replace(parked, blocked_by=event.event_id, reason=reason, position=in_the_way.position)
        # PreconditionFailed: the relay has parked more events meanwhile. The older note of the block does no harm.
        with contextlib.suppress(PreconditionFailed):
            await self.lot.move_block(newest)
        raise StillUnsendable(
            f"event {event.event_id} (parked as {event.id}) cannot be sent: {reason}. "
            f"{delivery.sent} event(s) before it were sent. Discard the event, or remove the reason, then replay again"
        )

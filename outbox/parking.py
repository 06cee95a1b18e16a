"""What an operator does with parked events: look, replay in order, discard. Dying anywhere in it is safe.

An aggregate is released only when nothing of it is parked, and only if nothing was parked since that was seen: an event
that the relay parks in the meantime changes the aggregate's version, and is replayed too. An event is forgotten after
the broker has accepted it; dying in between sends it again, under the same id.
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
"""How long one replay goes on before it answers how much is left: HTTP callers do not wait for ever."""

_CHUNK = 50

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Replayed:
    """How far a replay got. ``done``: nothing of the aggregate is parked any more, and its new events flow."""

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
        """Some parked events, oldest first, and where the next ones start."""
        return await self.lot.page(size, continuation_token)

    async def show(self, parking_id: str) -> ParkedEvent:
        """One parked event with its document. Raises NotParked."""
        parked = await self.lot.get(parking_id)
        if parked is None:
            raise NotParked(f"no event is parked under {parking_id}: the list of parked events has the ids")
        return parked

    async def replay(self, aggregate: AggregateKey) -> Replayed:
        """Send an aggregate's parked events in order; new ones queue up behind them until all are sent.

        Raises:
            NotParked: the aggregate is not parked.
            StillUnsendable: an event cannot be sent; discard it, or mend what refuses it, and replay again.
            NotDelivered: the broker is away.
        """
        parked = await self.lot.aggregate(aggregate)
        if parked is None:
            raise NotParked(
                f"{aggregate} is not parked: the list of parked events tells which aggregates are"
            )
        replayed, until = 0, self.clock() + REPLAY_SECONDS
        while self.clock() < until:
            waiting = await self.lot.waiting(aggregate, _CHUNK)
            if waiting:
                replayed += await self._send(parked, waiting)
            elif await self.lot.release(parked):
                _log.info("replayed %s: %d event(s), it is parked no longer", aggregate, replayed)
                return Replayed(replayed, done=True)
            # The relay may have parked more, or another operator be faster: go by the newest state.
            parked = await self.lot.aggregate(aggregate)
            if parked is None:
                return Replayed(replayed, done=True)
        return Replayed(replayed, done=False)

    async def discard(self, parking_id: str, reason: str) -> None:
        """Give an event up for good. The aggregate goes on when nothing else of it is parked; else replay it.

        Raises:
            NotParked: no such event is parked.
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
            raise NotDelivered(f"{delivery.waits_for}: replay {parked.aggregate} again when that is mended")
        if delivery.block is None:
            return delivery.sent
        event, in_the_way = waiting[delivery.sent]
        reason = delivery.block.reason
        newest = replace(parked, blocked_by=event.event_id, reason=reason, position=in_the_way.position)
        # A failed precondition: the relay has parked more, and what it says of the block is older.
        with contextlib.suppress(PreconditionFailed):
            await self.lot.move_block(newest)
        raise StillUnsendable(
            f"event {event.event_id} (parked as {event.id}) cannot be sent: {reason}. "
            f"{delivery.sent} event(s) before it were sent. Discard it, or mend what refuses it, and replay again"
        )

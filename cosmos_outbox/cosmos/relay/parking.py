"""Lists parked events, replays them in order, and discards single ones. A crash at any point loses no event.

A discarded event is replaced by a notice. The upkeep completes what a crash interrupted, and discards events that were
parked for too long.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from cosmos_outbox.cosmos.relay.originals import CosmosOriginals
from cosmos_outbox.cosmos.relay.parked_documents import ParkedEvent, ParkedPage, ParkedState
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.relay.relay import READING_SECONDS
from cosmos_outbox.cosmos.relay.replay import REPLAY_SECONDS, Replay, Replayed
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import Clock, monotonic, randomness, utc_now
from cosmos_outbox.outbox import telemetry
from cosmos_outbox.outbox.aggregate_block import AggregateBlock, Refusal
from cosmos_outbox.outbox.errors import (
    BeingReplayed,
    ConcurrentChange,
    NotInTheWay,
    NotParked,
    OutboxError,
    PreconditionFailed,
)
from cosmos_outbox.outbox.feed import SkipMarker
from cosmos_outbox.outbox.publisher import Publisher

MAX_AGE_SECONDS = 30 * 24 * 3600
"""The age at which the upkeep discards a blocking event: a parked event holds personal data."""

EXPIRED = "parked for longer than the service keeps such events"
"""The reason for a discarding by the upkeep."""

UPKEEP_SECONDS = 40.0
"""The time in which one upkeep begins replays; the next upkeep begins the others."""

SHARE_SECONDS = 10.0
"""The maximum time of one replay in an upkeep, with waiting for the broker, before the next aggregate's turn."""

TRY_AGAIN_SECONDS, LONGEST_TRY_AGAIN_SECONDS = 60.0, 3_600.0
"""The pause before an aggregate whose receiver fails is retried, at first and at most: it doubles each time."""

_CLOCKS_DIFFER = 1.1
_RACES = 5

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Parking:
    """Manages parked events for operators. Every call raises Throttled or Unavailable if the store did not answer."""

    lot: CosmosParkingLot
    publisher: Publisher
    originals: CosmosOriginals
    reading_seconds: float = READING_SECONDS
    """The ``reading_seconds`` of the relay."""
    max_age_seconds: int = MAX_AGE_SECONDS
    timer: Callable[[], float] = monotonic
    clock: Clock = utc_now
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def page(self, size: int, continuation_token: str | None, *, discarded: bool = False) -> ParkedPage:
        """Returns a page of parked, or of discarded events, oldest first. Raises UnknownContinuation."""
        return await self.lot.page(size, continuation_token, discarded=discarded)

    async def show(self, parking_id: str) -> ParkedEvent:
        """Returns one parked or discarded event with its document. Raises NotParked."""
        parked = await self.lot.get(parking_id)
        if parked is None:
            raise NotParked(
                f"no event is parked under {parking_id}: take an id from the list of parked events"
            )
        return parked

    async def replay(self, aggregate: AggregateKey) -> Replayed:
        """Sends an aggregate's parked events in order. Raises as ``Replay`` does."""
        return await self._replay(aggregate, REPLAY_SECONDS)

    async def _replay(self, aggregate: AggregateKey, seconds: float) -> Replayed:
        replay = Replay(
            self.lot, self.publisher, self.originals, self.reading_seconds, self.timer, self.clock, seconds
        )
        return await replay(aggregate)

    async def discard(self, parking_id: str, reason: str) -> None:
        """Discards the blocking event for good and replaces it by a notice. Repeated, it does nothing.

        The upkeep or a replay sends the notice and the events behind it. The call waits until no relay can still be
        sending the event: at most ``reading_seconds`` and a tenth, if the event has just been parked.

        Raises:
            NotParked: no event is parked under the id.
            NotInTheWay: the event waits behind another one, or its aggregate is being replayed.
            ConcurrentChange: others changed the aggregate in every attempt.
        """
        for _ in range(_RACES):
            event = await self.show(parking_id)
            if event.state is ParkedState.DISCARDED:
                return
            with contextlib.suppress(PreconditionFailed):  # the relay has parked more, or others were faster
                await self._discard(event, reason)
                _log.warning("discarded event %s of %s", event.event_id, event.aggregate or "no aggregate")
                return
        raise ConcurrentChange("others changed the parked aggregate each time: discard the event again")

    async def upkeep(self) -> None:
        """Completes what a crash interrupted, and discards events that were parked for too long.

        An event that needs an operator is not touched. Failures are logged, and retried at the next upkeep.

        The order of the aggregates is random each time, so that none always waits behind others that use up the time;
        no state is kept between upkeeps, which may run in different instances. Aggregates with more attempts mostly
        come later, so that those that hang each time do not delay the others. A replay that has used its share
        continues after all others had theirs.
        """
        until = self.timer() + UPKEEP_SECONDS
        too_old = self.clock() - timedelta(seconds=self.max_age_seconds)
        markers = await self.lot.list_blocked()
        telemetry.blocked([one.blocked_since for one in markers if one.blocked_since], self.clock())
        free = [one for one in markers if not one.is_replayed(self.clock())]
        turns = deque(sorted(free, key=_turn))
        while turns and self.timer() < until:
            marker = turns.popleft()
            if not await self._tend(marker, too_old):
                turns.append(marker)
        for event in await self.lot.alone_since_before(too_old):
            try:
                await self.discard(event.id, EXPIRED)
            except OutboxError as error:
                _log.warning("document %s, which belongs to no aggregate, stays: %s", event.event_id, error)

    async def _tend(self, marker: AggregateBlock, too_old: datetime) -> bool:
        """Replays an aggregate without a blocking event (rule ``timer-heals``). Returns False if more is to be sent.

        An aggregate whose receiver fails is replayed after its pause, as if by an operator; its event is discarded at
        the maximum age like any other, since it may hold personal data.
        """
        try:
            is_free = marker.in_the_way is None
            if marker.refusal is not None and marker.refusal.passing:
                is_free = self.clock() >= tried_again_at(marker.refusal)
            if (marker.in_the_way and await self._discard_by_age(marker, too_old)) or is_free:
                return (await self._replay(marker.aggregate, SHARE_SECONDS)).done
        except (NotParked, BeingReplayed, NotInTheWay):
            _log.debug("%s is tended by others", marker.aggregate)
        except OutboxError as error:
            _log.warning("the parked events of %s wait: %s", marker.aggregate, error)
        return True

    async def _discard_by_age(self, marker: AggregateBlock, too_old: datetime) -> bool:
        """Discards the blocking event if it is too old; returns False if it is not."""
        if marker.blocked_since is None or marker.blocked_since > too_old:
            return False
        for event in await self.lot.list_waiting(marker.aggregate, 1):
            if event.event_id == marker.in_the_way:
                if event.parked_at > too_old:
                    return False
                await self.discard(event.id, EXPIRED)
        return True

    async def _marker_of(self, event: ParkedEvent, aggregate: AggregateKey) -> AggregateBlock:
        """Returns the marker of the aggregate that the event blocks (rule ``only-in-the-way``). Raises NotInTheWay."""
        marker = (await self.lot.markers([aggregate])).get(aggregate) or AggregateBlock(aggregate)
        if marker.in_the_way == event.event_id:
            return marker
        if marker.in_the_way is None:
            raise NotInTheWay(f"{aggregate} is being replayed, or has been: look at its parked events again")
        raise NotInTheWay(
            f"event {event.event_id} waits behind event {marker.in_the_way}, and only that one can be discarded: "
            f"discard it, or replay {aggregate}"
        )

    def _relays_may_send_for(self, marker: AggregateBlock) -> float:
        """Returns the seconds in which a relay may act on a reading from before the block (rule ``fresh-reading``)."""
        assert marker.blocked_since is not None, "something is in the way of a blocked aggregate only"
        age = (self.clock() - marker.blocked_since).total_seconds()
        return max(0.0, _CLOCKS_DIFFER * self.reading_seconds - age)

    async def _discard(self, event: ParkedEvent, reason: str) -> None:
        """Replaces the event by a notice (rule ``notice``). Raises PreconditionFailed, NotInTheWay."""
        if event.aggregate is None:
            await self.lot.discard_alone(event, reason)
            return
        marker = await self._marker_of(event, event.aggregate)
        await self.pause(self._relays_may_send_for(marker))
        now = self.clock()
        notice = SkipMarker(marker.aggregate, event.event_id, event.sequence, now)
        await self.lot.discard(marker.with_discarded(event.event_id, now), event, notice, reason)


def _turn(marker: AggregateBlock) -> float:
    return randomness().random() * (marker.refusal.attempts if marker.refusal else 1)


def tried_again_at(refusal: Refusal) -> datetime:
    """Returns the time of the next automatic retry of a temporarily refused event, with random jitter."""
    pause = min(TRY_AGAIN_SECONDS * 2.0 ** min(refusal.attempts - 1, 16), LONGEST_TRY_AGAIN_SECONDS)
    return refusal.at + timedelta(seconds=pause * randomness().uniform(0.75, 1.25))

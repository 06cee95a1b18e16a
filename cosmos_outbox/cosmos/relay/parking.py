"""Lists parked events, replays them in order, and discards single ones. A crash at any point loses no event.

A discarded event is replaced by a skip marker. The upkeep completes what a crash interrupted, and discards events that
were parked for too long.

A replay first claims the block, which also unblocks the refused event: while it sends, no event can be discarded. An
event is removed after the broker has accepted it, in one transaction with the block. A replay that dies leaves its
claim, which expires, and perhaps an event that the broker already has: the next replay sends it again under its id.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from cosmos_outbox.cosmos.relay.originals import CosmosOriginals
from cosmos_outbox.cosmos.relay.parked_documents import ParkedEvent, ParkedPage, ParkedState
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.relay.relay import READING_SECONDS
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import Clock, monotonic, new_id, randomness, utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox import telemetry
from cosmos_outbox.outbox.aggregate_block import AggregateBlock, Refusal
from cosmos_outbox.outbox.errors import (
    BeingReplayed,
    ConcurrentChange,
    FailureReason,
    NotDelivered,
    NotInTheWay,
    NotParked,
    OutboxError,
    PreconditionFailed,
    StillUnsendable,
    Throttled,
    Unavailable,
)
from cosmos_outbox.outbox.feed import FeedEvent, SkipMarker, still_of
from cosmos_outbox.outbox.publisher import Publisher, SendFailure, deliver

REPLAY_SECONDS = 20.0
"""The maximum time of a replay for a caller, finished or not."""

_CLAIM_MARGIN_SECONDS = 30.0
"""The margin of a claim beyond the time to send: a replay also reads and writes the parking lot."""

_CLOCKS_DIFFER_SECONDS = 5.0
"""The time before its claim's end at which a replay stops sending: another instance's clock may be ahead."""

_READ_SECONDS = 5.0
"""The time to read the events before the first is sent, in addition to the broker's ``answer_seconds``."""

_CHUNK = 50

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


_Waiting = Sequence[tuple[ParkedEvent, FeedEvent]]


@dataclass(frozen=True)
class Replayed:
    """The number of events that a replay sent. ``done``: no event of the aggregate is parked any more."""

    replayed: int
    done: bool


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

    async def discard(self, parking_id: str, reason: str) -> None:
        """Discards the blocking event for good and replaces it by a skip marker. Repeated, it does nothing.

        The upkeep or a replay sends the skip marker and the events behind it. The call waits until no relay can still
        be sending the event: at most ``reading_seconds`` and a tenth, if the event has just been parked.

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
        raise ConcurrentChange("others keep changing the parked aggregate: discard the event again")

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
        blocks = await self.lot.list_blocked()
        telemetry.blocked([one.blocked_since for one in blocks if one.blocked_since], self.clock())
        free = [one for one in blocks if not one.is_replayed(self.clock())]
        turns = deque(sorted(free, key=_turn))
        while turns and self.timer() < until:
            block = turns.popleft()
            if not await self._tend(block, too_old):
                turns.append(block)
        for event in await self.lot.alone_since_before(too_old):
            try:
                await self.discard(event.id, EXPIRED)
            except OutboxError as error:
                _log.warning("document %s, of no aggregate, is not discarded: %s", event.event_id, error)

    async def _tend(self, block: AggregateBlock, too_old: datetime) -> bool:
        """Replays an aggregate without a blocking event (rule ``timer-heals``). Returns False if more is to be sent.

        An aggregate whose receiver fails is replayed after its pause, as if by an operator; its event is discarded at
        the maximum age like any other, since it may hold personal data.
        """
        try:
            is_free = block.in_the_way is None
            if block.refusal is not None and block.refusal.passing:
                is_free = self.clock() >= tried_again_at(block.refusal)
            if (block.in_the_way and await self._discard_by_age(block, too_old)) or is_free:
                return (await self.replay(block.aggregate, SHARE_SECONDS)).done
        except (NotParked, BeingReplayed, NotInTheWay):
            _log.debug("%s is being replayed or discarded by others", block.aggregate)
        except OutboxError as error:
            _log.warning("the parked events of %s wait: %s", block.aggregate, error)
        return True

    async def _discard_by_age(self, block: AggregateBlock, too_old: datetime) -> bool:
        """Discards the blocking event if it is too old; returns False if it is not."""
        if block.blocked_since is None or block.blocked_since > too_old:
            return False
        for event in await self.lot.list_waiting(block.aggregate, 1):
            if event.event_id == block.in_the_way:
                if event.parked_at > too_old:
                    return False
                await self.discard(event.id, EXPIRED)
        return True

    async def _block_of(self, event: ParkedEvent, aggregate: AggregateKey) -> AggregateBlock:
        """Returns the block of the aggregate that the event blocks (rule ``only-in-the-way``). Raises NotInTheWay."""
        block = await self.lot.read_block(aggregate)
        if block.in_the_way == event.event_id:
            return block
        if block.in_the_way is None:
            raise NotInTheWay(f"{aggregate} is being replayed, or has been: look at its parked events again")
        raise NotInTheWay(
            f"event {event.event_id} waits behind event {block.in_the_way}, and only that one can be discarded: "
            f"discard it, or replay {aggregate}"
        )

    def _relays_may_send_for(self, block: AggregateBlock) -> float:
        """Returns the seconds in which a relay may act on a reading from before the block (rule ``fresh-reading``)."""
        assert block.blocked_since is not None, "something is in the way of a blocked aggregate only"
        age = (self.clock() - block.blocked_since).total_seconds()
        return max(0.0, _CLOCKS_DIFFER * self.reading_seconds - age)

    async def _discard(self, event: ParkedEvent, reason: str) -> None:
        """Replaces the event by a skip marker (rule ``skip-marker``). Raises PreconditionFailed, NotInTheWay."""
        if event.aggregate is None:
            await self.lot.discard_alone(event, reason)
            return
        block = await self._block_of(event, event.aggregate)
        await self.pause(self._relays_may_send_for(block))
        now = self.clock()
        skip_marker = SkipMarker(block.aggregate, event.event_id, event.sequence, now)
        await self.lot.discard(block.with_discarded(event.event_id, now), event, skip_marker, reason)

    async def replay(self, aggregate: AggregateKey, seconds: float = REPLAY_SECONDS) -> Replayed:
        """Sends an aggregate's parked events in order; new ones queue behind them until all are sent.

        ``seconds``: the maximum time, also of its last send unless the broker's ``answer_seconds`` are longer.

        Raises:
            NotParked: the aggregate is not parked.
            BeingReplayed: another replay of the aggregate is running.
            StillUnsendable: an event cannot be sent: discard the event, or remove the reason, then replay again.
            NotDelivered: the broker is unavailable, or its answer was lost: the upkeep or an operator replays again.
            ConcurrentChange: others changed the block in every attempt.
            Throttled, Unavailable: the store did not answer.
        """
        block = await self._claim(aggregate)
        replayed, until = 0, self.timer() + seconds
        try:
            while block.blocked and self.timer() < until:
                waiting = await self.lot.waiting(aggregate, _CHUNK)
                if waiting:
                    block, sent = await self._send(block, waiting, seconds)
                    replayed += sent
                else:
                    block = await self.lot.recount(block)
        except PreconditionFailed:  # the answer to our own change was lost, or the claim has expired
            block = await self._read_outcome(aggregate)
        if block.blocked:
            await self._give_back(block)
            return Replayed(replayed, done=False)
        _log.info("replayed %s: sent %d event(s), no event is parked any more", aggregate, replayed)
        return Replayed(replayed, done=True)

    async def _claim(self, aggregate: AggregateKey) -> AggregateBlock:
        """Claims the block and returns it. Raises NotParked, BeingReplayed, ConcurrentChange."""
        replay = new_id().hex
        for _ in range(_RACES):
            block = await self._read_blocked(aggregate)
            if block.replay != replay and block.is_replayed(self.clock()):
                raise _being_replayed(aggregate)
            with contextlib.suppress(PreconditionFailed):
                return await self.lot.store(block.claimed(replay, self._claimed_until()))
        raise ConcurrentChange(f"others keep changing the parked events of {aggregate}: replay again")

    async def _read_blocked(self, aggregate: AggregateKey) -> AggregateBlock:
        block = await self.lot.read_block(aggregate)
        if not block.blocked:
            raise NotParked(f"{aggregate} is not parked: take an aggregate from the list of parked events")
        return block

    def _claimed_until(self) -> datetime:
        return self.clock() + timedelta(seconds=self.reading_seconds + _CLAIM_MARGIN_SECONDS)

    async def _send(
        self, block: AggregateBlock, waiting: _Waiting, seconds: float
    ) -> tuple[AggregateBlock, int]:
        """Sends the first parked events, and removes those that the broker has.

        Returns the new block, and the number of removed events.
        """
        parked = [event for _, event in waiting]
        self.originals.forget(parked)  # an operator may have repaired a document since it was read
        try:
            send_until = monotonic() + self._seconds_to_send(block, seconds)
            async with asyncio.timeout(send_until - monotonic()):
                verified = await self.originals.verify(parked)
        except TimeoutError:
            await self._give_back(block)
            raise NotDelivered(
                "the events could not be sent in time: replay again later", FailureReason.TOO_SLOW
            ) from None
        events = [still_of(block.aggregate, event) for event in verified]
        [delivery] = await deliver(self.publisher, [events], send_until)
        sent, now = events[: delivery.sent], self.clock()
        self.originals.forget(sent)
        out = [event for event, _ in waiting[: delivery.sent]]
        if delivery.failure is not None:
            return await self._take_refusal(block, waiting, delivery.sent, sent, delivery.failure)
        if delivery.waits_for is not None:
            ended = AggregateBlock.released if sent else lambda newest: newest.backed_off(now)
            await self.lot.settle(block, out, lambda newest: ended(newest.with_accepted(sent, now)))
            raise NotDelivered(
                f"{delivery.waits_for}: when that is repaired, replay {block.aggregate} again", delivery.why
            )
        until = self._claimed_until()
        change = lambda newest: replace(newest.with_accepted(sent, now), replay_until=until)  # noqa: E731
        return await self.lot.settle(block, out, change), len(out)

    def _seconds_to_send(self, block: AggregateBlock, seconds: float) -> float:
        """Returns the time to send, within the claim. Raises TimeoutError if nothing may be sent any more."""
        assert block.replay_until is not None, "a replay sends under a claim"
        left = (block.replay_until - self.clock()).total_seconds() - _CLOCKS_DIFFER_SECONDS
        if left <= 0:
            raise TimeoutError
        answer = self.publisher.guarantees.answer_seconds
        return min(self.reading_seconds, max(seconds, answer + _READ_SECONDS), left)

    async def _take_refusal(
        self,
        block: AggregateBlock,
        waiting: _Waiting,
        accepted: int,
        sent: Sequence[FeedEvent],
        failure: SendFailure,
    ) -> tuple[AggregateBlock, int]:
        """Handles a refused event. Raises StillUnsendable, unless it is a skip marker, which is dropped."""
        refused, now = waiting[accepted][0], self.clock()
        out = [event for event, _ in waiting[:accepted]]
        if refused.is_skip and failure.passing:
            await self.lot.settle(block, out, lambda newest: newest.with_accepted(sent, now).released())
            raise NotDelivered(f"{failure.reason}: a skip marker waits, and is tried again by itself")
        if refused.is_skip:
            _log.error(
                "the skip marker in the place of a discarded event of %s cannot be sent: %s. It is dropped, and "
                "subscribers see a gap at sequence %s",
                block.aggregate,
                failure.reason,
                refused.sequence,
            )
            block = await self.lot.settle(
                block, [*out, refused], lambda newest: newest.with_accepted(sent, now)
            )
            return block, len(out)
        await self.lot.settle(
            block,
            out,
            lambda newest: newest.with_accepted(sent, now).refused(
                refused.event_id, failure.reason, now, passing=failure.passing
            ),
        )
        raise StillUnsendable(
            f"event {refused.event_id} (parked as {refused.id}) cannot be sent: {failure.reason}. {len(out)} event(s) "
            f"before it were sent. {_what_helps(failure.passing)}"
        )

    async def _give_back(self, block: AggregateBlock) -> None:
        """Releases the claim. If that fails, it expires by itself."""
        with contextlib.suppress(PreconditionFailed, Throttled, Unavailable):
            await self.lot.settle(block, [], AggregateBlock.released)

    async def _read_outcome(self, aggregate: AggregateKey) -> AggregateBlock:
        """Reads the block after a change without an answer, our own or another's. Raises as the replay does."""
        block = await self.lot.read_block(aggregate)
        if block.blocked and block.in_the_way is not None and block.refusal is not None:
            raise StillUnsendable(
                f"event {block.in_the_way} cannot be sent: {block.refusal.reason}. "
                f"{_what_helps(block.refusal.passing)}"
            )
        if block.blocked:
            raise _being_replayed(aggregate)
        return block


def _what_helps(passing: bool) -> str:
    if passing:
        return "It is tried again by itself; or discard the event"
    return "Discard the event, or remove the reason, then replay again"


def _being_replayed(aggregate: AggregateKey) -> BeingReplayed:
    return BeingReplayed(f"{aggregate} is being replayed: wait, then look at it again")


def _turn(block: AggregateBlock) -> float:
    return randomness().random() * (block.refusal.attempts if block.refusal else 1)


def tried_again_at(refusal: Refusal) -> datetime:
    """Returns the time of the next automatic retry of a temporarily refused event, with random jitter."""
    pause = min(TRY_AGAIN_SECONDS * 2.0 ** min(refusal.attempts - 1, 16), LONGEST_TRY_AGAIN_SECONDS)
    return refusal.at + timedelta(seconds=pause * randomness().uniform(0.75, 1.25))

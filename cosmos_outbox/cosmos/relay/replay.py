"""Sends an aggregate's parked events in order, one replay at a time, until none waits or one is refused.

A replay first claims the marker, which also unblocks the refused event: while it sends, no event can be discarded. An
event is removed after the broker has accepted it, in one transaction with the marker. A replay that dies leaves its
claim, which expires, and perhaps an event that the broker already has: the next replay sends it again under its id.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cosmos_outbox.cosmos.relay.originals import CosmosOriginals
from cosmos_outbox.cosmos.relay.parked_documents import ParkedEvent
from cosmos_outbox.cosmos.relay.parking_lot import CosmosParkingLot
from cosmos_outbox.cosmos.relay.relay import READING_SECONDS
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import Clock, monotonic, new_id, utc_now
from cosmos_outbox.outbox.aggregate_block import AggregateBlock
from cosmos_outbox.outbox.errors import (
    BeingReplayed,
    ConcurrentChange,
    FailureReason,
    NotDelivered,
    NotParked,
    PreconditionFailed,
    StillUnsendable,
    Throttled,
    Unavailable,
)
from cosmos_outbox.outbox.feed import FeedEvent, still_of
from cosmos_outbox.outbox.publisher import Block, Publisher, deliver

REPLAY_SECONDS = 20.0
"""The maximum time of a replay for a caller, finished or not."""

_CLAIM_MARGIN_SECONDS = 30.0
"""The margin of a claim beyond the time to send: a replay also reads and writes the parking lot."""

_CLOCKS_DIFFER_SECONDS = 5.0
"""The time before its claim's end at which a replay stops sending: another instance's clock may be ahead."""

_READ_SECONDS = 5.0
"""The time to read the events before the first is sent, in addition to the broker's ``answer_seconds``."""

_CHUNK = 50
_RACES = 5

_log = logging.getLogger(__name__)

_Waiting = Sequence[tuple[ParkedEvent, FeedEvent]]


@dataclass(frozen=True)
class Replayed:
    """The number of events that a replay sent. ``done``: no event of the aggregate is parked any more."""

    replayed: int
    done: bool


@dataclass(frozen=True)
class Replay:
    """Replays parked aggregates."""

    lot: CosmosParkingLot
    publisher: Publisher
    originals: CosmosOriginals
    reading_seconds: float = READING_SECONDS
    """The ``reading_seconds`` of the relay."""
    timer: Callable[[], float] = monotonic
    clock: Clock = utc_now
    seconds: float = REPLAY_SECONDS
    """The maximum time of a replay, and of its last send unless the broker's ``answer_seconds`` are longer."""

    async def __call__(self, aggregate: AggregateKey) -> Replayed:
        """Sends an aggregate's parked events in order; new ones queue behind them until all are sent.

        Raises:
            NotParked: the aggregate is not parked.
            BeingReplayed: another replay of the aggregate is running.
            StillUnsendable: an event cannot be sent: discard the event, or remove the reason, then replay again.
            NotDelivered: the broker is unavailable, or its answer was lost: the upkeep or an operator replays again.
            ConcurrentChange: others changed the marker in every attempt.
            Throttled, Unavailable: the store did not answer.
        """
        marker = await self._claim(aggregate)
        replayed, until = 0, self.timer() + self.seconds
        try:
            while marker.blocked and self.timer() < until:
                waiting = await self.lot.waiting(aggregate, _CHUNK)
                if waiting:
                    marker, sent = await self._send(marker, waiting)
                    replayed += sent
                else:
                    marker = await self.lot.recount(marker)
        except PreconditionFailed:  # the answer to our own change was lost, or the claim has expired
            marker = await self._read_outcome(aggregate)
        if marker.blocked:
            await self._give_back(marker)
            return Replayed(replayed, done=False)
        _log.info("replayed %s: sent %d event(s), no event is parked any more", aggregate, replayed)
        return Replayed(replayed, done=True)

    async def _claim(self, aggregate: AggregateKey) -> AggregateBlock:
        """Claims the marker and returns it. Raises NotParked, BeingReplayed, ConcurrentChange."""
        replay = new_id().hex
        for _ in range(_RACES):
            marker = await self._read_blocked(aggregate)
            if marker.replay != replay and marker.is_replayed(self.clock()):
                raise _being_replayed(aggregate)
            with contextlib.suppress(PreconditionFailed):
                return await self.lot.store(marker.claimed(replay, self._claimed_until()))
        raise ConcurrentChange(f"others changed the parked events of {aggregate} each time: replay again")

    async def _read_blocked(self, aggregate: AggregateKey) -> AggregateBlock:
        marker = (await self.lot.markers([aggregate])).get(aggregate)
        if marker is None or not marker.blocked:
            raise NotParked(f"{aggregate} is not parked: take an aggregate from the list of parked events")
        return marker

    def _claimed_until(self) -> datetime:
        return self.clock() + timedelta(seconds=self.reading_seconds + _CLAIM_MARGIN_SECONDS)

    async def _send(self, marker: AggregateBlock, waiting: _Waiting) -> tuple[AggregateBlock, int]:
        """Sends the first parked events, and removes those that the broker has.

        Returns the new marker, and the number of removed events.
        """
        parked = [event for _, event in waiting]
        self.originals.forget(parked)  # an operator may have repaired a document since it was read
        try:
            send_until = monotonic() + self._seconds_to_send(marker)
            async with asyncio.timeout(send_until - monotonic()):
                verified = await self.originals.verify(parked)
        except TimeoutError:
            await self._give_back(marker)
            raise NotDelivered(
                "the events could not be sent in time: replay again later", FailureReason.TOO_SLOW
            ) from None
        events = [still_of(marker.aggregate, event) for event in verified]
        [delivery] = await deliver(self.publisher, [events], send_until)
        sent, now = events[: delivery.sent], self.clock()
        self.originals.forget(sent)
        out = [event for event, _ in waiting[: delivery.sent]]
        if delivery.block is not None:
            return await self._take_refusal(marker, waiting, delivery.sent, sent, delivery.block)
        if delivery.waits_for is not None:
            ended = AggregateBlock.given_back if sent else lambda newest: newest.in_vain(now)
            await self.lot.settle(marker, out, lambda newest: ended(newest.with_accepted(sent, now)))
            raise NotDelivered(
                f"{delivery.waits_for}: when that is repaired, replay {marker.aggregate} again", delivery.why
            )
        until = self._claimed_until()
        change = lambda newest: replace(newest.with_accepted(sent, now), replay_until=until)  # noqa: E731
        return await self.lot.settle(marker, out, change), len(out)

    def _seconds_to_send(self, marker: AggregateBlock) -> float:
        """Returns the time to send, within the claim. Raises TimeoutError if nothing may be sent any more."""
        assert marker.replay_until is not None, "a replay sends under a claim"
        left = (marker.replay_until - self.clock()).total_seconds() - _CLOCKS_DIFFER_SECONDS
        if left <= 0:
            raise TimeoutError
        answer = self.publisher.guarantees.answer_seconds
        return min(self.reading_seconds, max(self.seconds, answer + _READ_SECONDS), left)

    async def _take_refusal(
        self,
        marker: AggregateBlock,
        waiting: _Waiting,
        accepted: int,
        sent: Sequence[FeedEvent],
        block: Block,
    ) -> tuple[AggregateBlock, int]:
        """Handles a refused event. Raises StillUnsendable, unless it is a notice, which is dropped."""
        refused, now = waiting[accepted][0], self.clock()
        out = [event for event, _ in waiting[:accepted]]
        if refused.is_notice and block.passing:
            await self.lot.settle(marker, out, lambda newest: newest.with_accepted(sent, now).given_back())
            raise NotDelivered(f"{block.reason}: a notice waits, and is tried again by itself")
        if refused.is_notice:
            _log.error(
                "the notice in the place of a discarded event of %s cannot be sent: %s. It is dropped, and subscribers "
                "see a gap at sequence %s",
                marker.aggregate,
                block.reason,
                refused.sequence,
            )
            marker = await self.lot.settle(
                marker, [*out, refused], lambda newest: newest.with_accepted(sent, now)
            )
            return marker, len(out)
        await self.lot.settle(
            marker,
            out,
            lambda newest: newest.with_accepted(sent, now).refused(
                refused.event_id, block.reason, now, passing=block.passing
            ),
        )
        raise StillUnsendable(
            f"event {refused.event_id} (parked as {refused.id}) cannot be sent: {block.reason}. {len(out)} event(s) "
            f"before it were sent. {_what_helps(block.passing)}"
        )

    async def _give_back(self, marker: AggregateBlock) -> None:
        """Releases the claim. If that fails, it expires by itself."""
        with contextlib.suppress(PreconditionFailed, Throttled, Unavailable):
            await self.lot.settle(marker, [], AggregateBlock.given_back)

    async def _read_outcome(self, aggregate: AggregateKey) -> AggregateBlock:
        """Reads the marker after a change without an answer, our own or another's. Raises as the replay does."""
        marker = (await self.lot.markers([aggregate])).get(aggregate) or AggregateBlock(aggregate)
        if marker.blocked and marker.in_the_way is not None and marker.refusal is not None:
            raise StillUnsendable(
                f"event {marker.in_the_way} cannot be sent: {marker.refusal.reason}. "
                f"{_what_helps(marker.refusal.passing)}"
            )
        if marker.blocked:
            raise _being_replayed(aggregate)
        return marker


def _what_helps(passing: bool) -> str:
    if passing:
        return "It is tried again by itself; or discard the event"
    return "Discard the event, or remove the reason, then replay again"


def _being_replayed(aggregate: AggregateKey) -> BeingReplayed:
    return BeingReplayed(f"{aggregate} is being replayed: wait, then look at it again")

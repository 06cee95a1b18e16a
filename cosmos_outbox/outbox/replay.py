"""Parked events leave in order, one replay of an aggregate at a time, until nothing waits or one is refused.

A replay first claims the marker, which also takes the refused event out of the way: while it sends, nobody discards. An
event is removed after the broker has accepted it, in one transaction with the marker. A replay that dies leaves its
claim, which runs out, and perhaps an event that the broker has already: the next replay sends it again under its id.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import Clock, monotonic, new_id, utc_now
from cosmos_outbox.outbox.errors import (
    BeingReplayed,
    ConcurrentChange,
    Hindrance,
    NotDelivered,
    NotParked,
    PreconditionFailed,
    StillUnsendable,
    Throttled,
    Unavailable,
)
from cosmos_outbox.outbox.feed import AsDelivered, FeedEvent, Originals, still_of
from cosmos_outbox.outbox.marker import Marker
from cosmos_outbox.outbox.parking_lot import ParkedEvent, ParkingLot
from cosmos_outbox.outbox.publisher import Block, Publisher, deliver
from cosmos_outbox.outbox.relay import READING_SECONDS

REPLAY_SECONDS = 20.0
"""How long one replay runs for a caller before it answers, finished or not: nobody waits for ever."""

_CLAIM_MARGIN_SECONDS = 30.0
"""How much longer than its sending a replay is believed to live: it reads and writes the parking lot as well."""

_CLOCKS_DIFFER_SECONDS = 5.0
"""So long before its claim runs out a replay stops sending: by another instance's clock it may have run out."""

_READ_SECONDS = 5.0
"""How long the events may be read before the first is sent, without a broker that answers late going without one."""

_CHUNK = 50
_RACES = 5

_log = logging.getLogger(__name__)

_Waiting = Sequence[tuple[ParkedEvent, FeedEvent]]


@dataclass(frozen=True)
class Replayed:
    """How many events a replay sent. ``done``: no event of the aggregate is parked now; new events are sent."""

    replayed: int
    done: bool


@dataclass(frozen=True)
class Replay:
    """Replays parked aggregates."""

    lot: ParkingLot
    publisher: Publisher
    originals: Originals = field(default_factory=AsDelivered)
    reading_seconds: float = READING_SECONDS
    """As the relay has it."""
    timer: Callable[[], float] = monotonic
    clock: Clock = utc_now
    seconds: float = REPLAY_SECONDS
    """How long it goes on, and how long the last events that it sends may wait for a broker that answers soon."""

    async def __call__(self, aggregate: AggregateKey) -> Replayed:
        """Send an aggregate's parked events in order; new ones queue up behind them until all are sent.

        Raises:
            NotParked: the aggregate is not parked.
            BeingReplayed: another replay of the aggregate is under way.
            StillUnsendable: an event cannot be sent: discard the event, or remove the reason, then replay again.
            NotDelivered: the broker is away, or its answer was lost: the upkeep replays again, or the operator does.
            ConcurrentChange: others changed the marker each time.
            Throttled, Unavailable: the store could not answer.
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
        except PreconditionFailed:  # the answer to our own change was lost, or the claim has run out
            marker = await self._read_outcome(aggregate)
        if marker.blocked:
            await self._give_back(marker)
            return Replayed(replayed, done=False)
        _log.info("replayed %s: sent %d event(s), no event is parked any more", aggregate, replayed)
        return Replayed(replayed, done=True)

    async def _claim(self, aggregate: AggregateKey) -> Marker:
        """The marker, with a claim of ours in it. Raises NotParked, BeingReplayed, ConcurrentChange."""
        replay = new_id().hex
        for _ in range(_RACES):
            marker = await self._read_blocked(aggregate)
            if marker.replay != replay and marker.is_replayed(self.clock()):
                raise _being_replayed(aggregate)
            with contextlib.suppress(PreconditionFailed):
                return await self.lot.store(marker.claimed(replay, self._claimed_until()))
        raise ConcurrentChange(f"others changed the parked events of {aggregate} each time: replay again")

    async def _read_blocked(self, aggregate: AggregateKey) -> Marker:
        marker = (await self.lot.markers([aggregate])).get(aggregate)
        if marker is None or not marker.blocked:
            raise NotParked(f"{aggregate} is not parked: take an aggregate from the list of parked events")
        return marker

    def _claimed_until(self) -> datetime:
        return self.clock() + timedelta(seconds=self.reading_seconds + _CLAIM_MARGIN_SECONDS)

    async def _send(self, marker: Marker, waiting: _Waiting) -> tuple[Marker, int]:
        """Send the first parked events, and take out what the broker has.

        Returns the marker as it is then, and how many events are out.
        """
        parked = [event for _, event in waiting]
        self.originals.forget(parked)  # an operator may have mended a document since it was read
        try:
            send_until = monotonic() + self._seconds_to_send(marker)
            async with asyncio.timeout(send_until - monotonic()):
                verified = await self.originals.verify(parked)
        except TimeoutError:
            await self._give_back(marker)
            raise NotDelivered(
                "the events could not be sent in time: replay again later", Hindrance.TOO_SLOW
            ) from None
        events = [still_of(marker.aggregate, event) for event in verified]
        [delivery] = await deliver(self.publisher, [events], send_until)
        sent, now = events[: delivery.sent], self.clock()
        self.originals.forget(sent)
        out = [event for event, _ in waiting[: delivery.sent]]
        if delivery.block is not None:
            return await self._take_refusal(marker, waiting, delivery.sent, sent, delivery.block)
        if delivery.waits_for is not None:
            ended = Marker.given_back if sent else lambda newest: newest.in_vain(now)
            await self.lot.settle(marker, out, lambda newest: ended(newest.with_accepted(sent, now)))
            raise NotDelivered(
                f"{delivery.waits_for}: when that is repaired, replay {marker.aggregate} again", delivery.why
            )
        until = self._claimed_until()
        change = lambda newest: replace(newest.with_accepted(sent, now), replay_until=until)  # noqa: E731
        return await self.lot.settle(marker, out, change), len(out)

    def _seconds_to_send(self, marker: Marker) -> float:
        """Never longer than the claim lasts. Raises TimeoutError when nothing may be sent any more."""
        assert marker.replay_until is not None, "a replay sends under a claim"
        left = (marker.replay_until - self.clock()).total_seconds() - _CLOCKS_DIFFER_SECONDS
        if left <= 0:
            raise TimeoutError
        answer = self.publisher.guarantees.answer_seconds
        return min(self.reading_seconds, max(self.seconds, answer + _READ_SECONDS), left)

    async def _take_refusal(
        self, marker: Marker, waiting: _Waiting, accepted: int, sent: Sequence[FeedEvent], block: Block
    ) -> tuple[Marker, int]:
        """The broker does not take an event. Raises StillUnsendable, unless it is a notice, which is dropped."""
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
                refused.event_id, block.told, now, passing=block.passing
            ),
        )
        raise StillUnsendable(
            f"event {refused.event_id} (parked as {refused.id}) cannot be sent: {block.told}. {len(out)} event(s) "
            f"before it were sent. {_what_helps(block.passing)}"
        )

    async def _give_back(self, marker: Marker) -> None:
        """The claim would run out all the same: that it stays does no harm."""
        with contextlib.suppress(PreconditionFailed, Throttled, Unavailable):
            await self.lot.settle(marker, [], Marker.given_back)

    async def _read_outcome(self, aggregate: AggregateKey) -> Marker:
        """The marker after our change, or somebody else's, of which we got no answer. Raises as the replay does."""
        marker = (await self.lot.markers([aggregate])).get(aggregate) or Marker(aggregate)
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

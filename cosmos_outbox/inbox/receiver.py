"""Receives messages and backs off before raising, so a failing message neither spins nor blocks other aggregates.

A function of Azure Functions cannot settle a message with a reason. It can return, which completes the message, or
raise, which redelivers the message at once and counts a delivery; the broker dead-letters it after a limit. So:

- ``wait-inside``: a failure that affects all aggregates (the store is unavailable) is waited out inside the call, for
  ``WAIT_SECONDS``, and then raised. An hour without the store costs 80 deliveries, not thousands.
- ``set-aside``: an event that fails alone is tried ``FAILURES`` times at short intervals, stored as waiting, and done:
  the next message follows. If a record of the aggregate waits already, the first failure is enough.
- ``makes-room``: if the store seems unavailable, but a probe of a nonexistent aggregate succeeds, the event is set
  aside after ``HOLD_SECONDS``: a session holds other aggregates too. For a minute its later events follow it untried.
- ``refuse``: a message that can never be applied is stored as refused, and done.
- ``goes-behind``: if the receiver keeps the order (effects), an event whose aggregate has a waiting record is set aside
  behind it. The records are read first, then the event is handled (``aside-then-record``).

Read models and reactions need no such check: a later event comes after a gap, which is healed, or fails like the
first one and is set aside behind it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import field
from datetime import datetime, timedelta

from cosmos_outbox.inbox import telemetry
from cosmos_outbox.inbox.errors import (
    EffectFailed,
    EffectRefused,
    ReactionRefused,
    StoreUnavailable,
    Unreadable,
    reason_of,
)
from cosmos_outbox.inbox.message import Delivery, Event
from cosmos_outbox.inbox.set_aside import Record, RecordState, SetAside
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic, sleep, utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.kernel.loops import own_failures

WAIT_SECONDS = 45.0
"""How long a call waits for the store before it raises."""

HOLD_SECONDS = 5.0
"""How long one aggregate may hold up the others of its session, if a check shows that the failure is its own."""

CHECK_SECONDS = 1.0
"""The time within which an available, unthrottled store answers."""

SICK_SECONDS = 60.0
"""How long later events of such an aggregate are set aside untried."""

LONGEST_CALL_SECONDS = 120.0
"""The longest that a call may take. A host must allow more (``functionTimeout``), and tombstones must live longer."""

MARGIN = timedelta(days=1)
"""Allows for clocks that differ, if an event's record must outlive the deliveries of its message."""

PATIENT_SECONDS = LONGEST_CALL_SECONDS - WAIT_SECONDS
"""The longest attempt if no check can show that the failure is one aggregate's."""

FAILURES = 5
"""The number of attempts on an event that fails for a reason of its own."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 8.0
FAILURE_PAUSE_SECONDS = 0.01
"""Doubled after each failure: five failures take 150 ms, so that a hundred failing aggregates take only seconds."""

Read = Callable[[Delivery], Event | None]
"""Returns the event in a message; None: the message is not for this subscriber. Raises Unreadable."""

Handle = Callable[[Event], Awaitable[object]]
"""Applies an event; returns when the message is done. Any error but StoreUnavailable affects one aggregate alone."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Receiver:
    """Receives the messages of one subscription. Any number of calls may run side by side."""

    read: Read
    handle: Handle
    set_aside: SetAside
    now: Callable[[], datetime] = utc_now
    time: Callable[[], float] = monotonic
    sleep: Callable[[float], Awaitable[None]] = sleep
    check: Callable[[], Awaitable[object]] | None = None
    """Returns if store and source answer about a nonexistent aggregate. None: each apparent outage counts as one."""
    in_order: bool = False
    """Whether an event must wait while a record of its aggregate waits."""
    _sick: dict[AggregateKey, float] = field(default_factory=dict)
    """The time until which an aggregate's events are set aside untried."""

    async def receive(self, delivery: Delivery) -> None:
        """Apply a message or set it aside; after a return it is done. Raises StoreUnavailable, after having waited."""
        with telemetry.of_subscription(delivery.subscription):
            await self._receive(delivery)

    async def _receive(self, delivery: Delivery) -> None:
        read = self._read(delivery)
        began, pause = self.time(), FIRST_PAUSE_SECONDS
        room_at, give_up_at = began + HOLD_SECONDS, began + WAIT_SECONDS
        longest = PATIENT_SECONDS if self.check is None else HOLD_SECONDS
        while True:
            try:
                async with asyncio.timeout(longest):
                    with own_failures():
                        return await self._once(delivery, read)
            except TimeoutError:
                failure = StoreUnavailable("the store answers so slowly that no event is applied in time")
            except StoreUnavailable as error:
                failure = error
            except Exception as error:  # noqa: BLE001 - a bug of the store's adapter also waits before it is raised
                failure = StoreUnavailable(f"the store cannot be used, because of a bug: {reason_of(error)}")
            now = self.time()
            if now >= room_at and await self._makes_room(delivery, read, failure):
                return None
            left = give_up_at - now
            if left <= 0:
                telemetry.decided(telemetry.Outcome.WAITING)
                _log.error("message %s waits: the store is unavailable: %s", delivery.message_id, failure)
                raise failure
            left = min(left, room_at - now) if now < room_at else left
            await self.sleep(min(left, max(pause, failure.retry_after_seconds)))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _read(self, delivery: Delivery) -> Event | Unreadable | None:
        """Read the message once for all attempts."""
        try:
            event = self._event(delivery)
        except Unreadable as error:
            return error
        if event is not None:
            logged = event.action, event.id, event.aggregate, event.sequence
            _log.info("received %s %s of %s, sequence %s", *logged)
        return event

    async def keep(self, delivery: Delivery, reason: str) -> None:
        """Store a dead letter, to be retried or decided by an operator (``dead-letters-collected``).

        Raises StoreUnavailable.
        """
        with telemetry.of_subscription(delivery.subscription):
            try:
                event = self._event(delivery)
            except Unreadable as error:
                await self._add(
                    Record.of(delivery, None, RecordState.REFUSED, f"{error} ({reason})", self.now())
                )
                return
            if event is not None:
                await self._add(Record.of(delivery, event, RecordState.WAITING, reason, self.now()))

    async def _add(self, record: Record) -> None:
        await self.set_aside.add(record)
        refused = record.state is RecordState.REFUSED
        telemetry.decided(telemetry.Outcome.REFUSED if refused else telemetry.Outcome.SET_ASIDE)

    def _event(self, delivery: Delivery) -> Event | None:
        """Returns the event. Raises Unreadable, also if the reading has a bug: an operator applies it later."""
        try:
            with own_failures():
                return self.read(delivery)
        except Unreadable:
            raise
        except Exception as error:  # noqa: BLE001 - if raised, the message would be redelivered at once, and for ever
            raise Unreadable(f"the message cannot be read, because of a bug: {reason_of(error)}") from None

    async def _once(self, delivery: Delivery, read: Event | Unreadable | None) -> None:
        if isinstance(read, Unreadable):
            record = Record.of(delivery, None, RecordState.REFUSED, str(read), self.now())
            await self._add(record)
            _log.error("refused message %s: %s. Its record is %s", delivery.message_id, read, record.id)
        elif read is not None and await self._goes_behind(read.aggregate):
            before = StoreUnavailable("an event of its aggregate before it was set aside")
            await self._put_aside(delivery, read, before, RecordState.WAITING)
        elif read is not None:
            await self._try(delivery, read)

    async def _try(self, delivery: Delivery, event: Event) -> None:
        pause, left = FAILURE_PAUSE_SECONDS, FAILURES
        while True:
            try:
                with own_failures():
                    await self.handle(event)
            except StoreUnavailable:
                raise
            except (EffectRefused, ReactionRefused) as error:
                return await self._put_aside(delivery, event, error, RecordState.REFUSED)
            except EffectFailed as error:
                return await self._put_aside(delivery, event, error, RecordState.WAITING)
            except Exception as error:  # noqa: BLE001 - no error may hold up the other aggregates
                if left == FAILURES and await self.set_aside.waits(event.aggregate):
                    left = 1
                left -= 1
                if not left:
                    return await self._put_aside(delivery, event, error, RecordState.WAITING)
            else:
                return None
            await self.sleep(pause)
            pause *= 2

    async def _makes_room(
        self, delivery: Delivery, event: Event | Unreadable | None, failure: StoreUnavailable
    ) -> bool:
        """Rule ``makes-room``: set the event aside if its failure affects no others."""
        if not isinstance(event, Event) or self.check is None:
            return False
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                with own_failures():
                    await self.check()
                    await self._put_aside(delivery, event, failure, RecordState.WAITING)
        except Exception as error:  # noqa: BLE001 - any failure of the check counts as an outage
            _log.debug("a failure of %s affects all aggregates: %s", event.aggregate, reason_of(error))
            return False
        self._sick[event.aggregate] = self.time() + SICK_SECONDS
        return True

    async def _goes_behind(self, aggregate: AggregateKey) -> bool:
        """Whether the event must be set aside behind an earlier one of its aggregate. Raises StoreUnavailable."""
        for each in [one for one, until in self._sick.items() if until <= self.time()]:
            del self._sick[each]
        return aggregate in self._sick or (self.in_order and await self.set_aside.waits(aggregate))

    async def _put_aside(
        self, delivery: Delivery, event: Event, error: Exception, state: RecordState
    ) -> None:
        reason = reason_of(error)
        record = Record.of(delivery, event, state, reason, self.now())
        await self._add(record)
        _log.debug("event %s failed here:", event.id, exc_info=error)
        _log.error(
            "set aside %s %s of %s, sequence %s: %s. It is %s; its record is %s",
            event.action,
            event.id,
            event.aggregate,
            event.sequence,
            reason,
            "tried again" if state is RecordState.WAITING else "for an operator to decide",
            record.id,
        )

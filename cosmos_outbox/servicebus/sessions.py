"""Receives sessions concurrently, one message of a session at a time, and completes it only after it was handled.

One message is requested at a time: with several, the Python SDK can let a message be overtaken
(https://github.com/Azure/azure-sdk-for-net/issues/35846). A session's lock is renewed while its message is handled. A
session is released when it is idle, and after ``MOST_SECONDS``, so that a few busy ones cannot occupy all slots. After
a lock is lost, no message of its session is completed or begun.

Every AMQP body type is normalised to bytes: an unexpected type must not crash the receive loop.
Separate from :mod:`cosmos_outbox.servicebus.delivery`, which is imported without the broker's SDK.

A dead letter leaves its queue only after its record is stored: dead letters never expire, and fill the topic.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import field

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSession
from azure.servicebus.amqp import AmqpMessageBodyType
from azure.servicebus.exceptions import OperationTimeoutError, SessionCannotBeLockedError

from cosmos_outbox.inbox.errors import StoreUnavailable
from cosmos_outbox.inbox.set_aside import Collected, Keep, Receive
from cosmos_outbox.kernel.clock import monotonic, utc_now
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.kernel.loops import CallEnded, LogThrottle, own_failures
from cosmos_outbox.servicebus.client import in_time, receiver_of
from cosmos_outbox.servicebus.delivery import delivery_of
from cosmos_outbox.servicebus.errors import SDK_ERRORS, verdict
from cosmos_outbox.telemetry.liveness import SlotHealth, wait
from cosmos_outbox.telemetry.messaging import handling

AT_ONCE = 10
SILENCE_SECONDS = 2.0
"""The time without a message after which the queue counts as empty."""

_SETTLE_SECONDS = 10.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeadLetters:
    """The dead-letter queue of one subscription."""

    client: ServiceBusClient
    topic: str
    subscription: str
    is_queue: bool = False
    """Whether ``topic`` is a queue."""

    async def collect(self, keep: Keep, *, seconds: float) -> Collected:
        """Moves the dead letters into records; receives no more after ``seconds``. Raises StoreUnavailable.

        Every received message is processed: one that is left would be hidden until its lock expires.
        """
        until, collected, emptied = monotonic() + seconds, 0, False
        try:
            async with self._receiver(until) as receiver:
                while messages := await self._receive(receiver, until):
                    for message in messages:
                        await keep(
                            delivery_of(message, body_of(message), self.subscription), _reason(message)
                        )
                        await in_time(receiver.complete_message(message), monotonic() + _SETTLE_SECONDS)
                        collected += 1
                emptied = True
        except TimeoutError:
            _log.info("not all dead letters were collected within %.0f s: the next run goes on", seconds)
        except SDK_ERRORS as error:
            raise StoreUnavailable(f"the dead letters cannot be read: {verdict(error)[1]}") from error
        if collected:
            _log.warning("collected %d dead letter(s) of %s", collected, self.subscription)
        return Collected(collected, emptied)

    @asynccontextmanager
    async def _receiver(self, until: float) -> AsyncIterator[ServiceBusReceiver]:
        receiver = receiver_of(
            self.client, self.topic, self.subscription, is_queue=self.is_queue,
            sub_queue=ServiceBusSubQueue.DEAD_LETTER,
        )  # fmt: skip
        try:
            await in_time(receiver.__aenter__(), until)
            yield receiver
        finally:
            with suppress(*SDK_ERRORS):
                await in_time(receiver.close(), monotonic() + _SETTLE_SECONDS)

    async def _receive(
        self, receiver: ServiceBusReceiver, until: float
    ) -> Sequence[ServiceBusReceivedMessage]:
        """Receives messages; none: the queue is empty. Raises TimeoutError if that could not be determined."""
        if monotonic() >= until:
            raise TimeoutError
        receiving = receiver.receive_messages(AT_ONCE, max_wait_time=SILENCE_SECONDS)
        return await in_time(receiving, until + SILENCE_SECONDS)


def _reason(message: ServiceBusReceivedMessage) -> str:
    """Returns the broker's reason, without the error description, which may contain anything."""
    return f"dead letter: {str(message.dead_letter_reason or 'no reason given')[:100]}"


def body_of(message: ServiceBusReceivedMessage) -> bytes:
    """Returns the body as bytes. JMS clients send text as an AMQP value; any other value is kept for inspection."""
    if message.body_type is AmqpMessageBodyType.DATA:
        return b"".join(message.body)
    body = message.body if message.body_type is AmqpMessageBodyType.VALUE else list(message.body)
    return body if isinstance(body, bytes) else str(body).encode()


IDLE_SECONDS = 0.5
"""The time without a message after which a session is released."""

MOST_SECONDS = 30.0
"""The time after which a session is released even if it has more messages; opening one takes a second."""

WAITING = 2
"""The number of slots that wait for a session while there is no work: each slot has its own connection."""

SOON_SECONDS = 2.0
"""A session that opens within this time suggests that more are ready: two slots then wait in the place of one."""

WAIT_SECONDS = 20.0
"""The maximum wait for a session that has messages."""
OPENING_SECONDS = 10.0
"""The additional time for an opening. The SDK itself never stops waiting if its token link is detached."""
_CLOSE_SECONDS = 10.0

LOCK_SECONDS = (5.0, 300.0)
"""The shortest and the longest lock that Service Bus supports
(https://learn.microsoft.com/azure/service-bus-messaging/message-transfers-locks-settlement)."""

LONGEST_RENEWAL_SECONDS = 10.0
"""The maximum pause between renewals: if this machine's clock is slow, a lock seems longer than it is."""


@dataclass
class _Crew:
    """Keeps ``WAITING`` slots waiting for a session, within ``most`` slots; more while sessions open quickly."""

    most: int
    begin: Callable[[], None]
    """Starts another slot, which waits."""
    slots: int = 0
    waiting: int = 0

    def join(self, count: int) -> None:
        """Starts up to ``count`` more slots, within ``most``."""
        for _ in range(min(count, self.most - self.slots)):
            self.slots += 1
            self.waiting += 1
            self.begin()

    def got_session(self, seconds: float) -> None:
        """Records that a waiting slot got a session after ``seconds``, and starts its replacements."""
        self.waiting -= 1
        self.join(2 if seconds < SOON_SECONDS else 1)

    def waits_again(self) -> None:
        """Records that a slot has released its session."""
        self.waiting += 1

    def leaves(self) -> bool:
        """Whether a waiting slot is surplus and must end; it is no longer counted then."""
        if self.waiting <= WAITING:
            return False
        self.waiting -= 1
        self.slots -= 1
        return True


@dataclass(frozen=True)
class Sessions:
    """The sessions of one subscription.

    ``client`` must not retry: if no session has messages, the SDK would try three more openings, which take longer than
    any successful one and cannot be distinguished from one that hangs.
    """

    client: ServiceBusClient
    topic: str
    subscription: str
    wait_seconds: float = WAIT_SECONDS
    opening_seconds: float = OPENING_SECONDS
    is_queue: bool = False
    """Whether ``topic`` is a queue."""
    clock_log: LogThrottle = field(default_factory=LogThrottle)

    async def serve(self, receive: Receive, stop: asyncio.Event, health: SlotHealth, *, slots: int) -> None:
        """Handles messages until ``stop`` is set; returns once the current messages are handled."""
        async with asyncio.TaskGroup() as group:

            def begin() -> None:
                group.create_task(self._slot(receive, stop, health, crew))

            crew = _Crew(slots, begin)
            crew.join(WAITING)

    async def _slot(self, receive: Receive, stop: asyncio.Event, health: SlotHealth, crew: _Crew) -> None:
        with health.slot() as beat:
            while not stop.is_set():
                beat()
                await self._round(receive, stop, health, crew, beat)
                if crew.leaves():
                    break

    async def _round(
        self, receive: Receive, stop: asyncio.Event, health: SlotHealth, crew: _Crew, beat: Callable[[], None]
    ) -> None:
        """Waits for a session and serves it; pauses after a failure."""
        pause, began, held = 0.0, monotonic(), False
        try:
            with own_failures():
                async with self._next_session(stop) as receiver:
                    if receiver is not None:
                        held = True
                        crew.got_session(monotonic() - began)
                        await self._serve_one(receiver, receive, stop, health, beat)
        except (OperationTimeoutError, SessionCannotBeLockedError) as error:
            if held or monotonic() - began < self.wait_seconds / 2:  # otherwise no session has messages
                pause = health.failed(verdict(error)[1], opening=not held)
            else:
                health.came_through()
        except SDK_ERRORS as error:
            pause = health.failed(verdict(error)[1], opening=not held)
        except CallEnded as error:
            pause = health.failed(str(error), opening=not held)
        if pause:
            await wait(stop, pause)
        if held:
            crew.waits_again()

    @asynccontextmanager
    async def _next_session(self, stop: asyncio.Event) -> AsyncIterator[ServiceBusReceiver | None]:
        """Opens a session that has messages; None: ``stop`` was set first."""
        receiver = receiver_of(
            self.client, self.topic, self.subscription, is_queue=self.is_queue,
            session_id=NEXT_AVAILABLE_SESSION, max_wait_time=self.wait_seconds,
        )  # fmt: skip
        until = monotonic() + self.wait_seconds + self.opening_seconds
        opening = asyncio.create_task(in_time(receiver.__aenter__(), until))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if opening.done():
                await opening
                yield receiver
            else:
                yield None
        finally:
            for task in (opening, stopping):
                task.cancel()
            await asyncio.gather(opening, stopping, return_exceptions=True)
            with contextlib.suppress(*SDK_ERRORS):
                await in_time(receiver.close(), monotonic() + _CLOSE_SECONDS)

    async def _serve_one(
        self,
        receiver: ServiceBusReceiver,
        receive: Receive,
        stop: asyncio.Event,
        health: SlotHealth,
        beat: Callable[[], None],
    ) -> None:
        health.sessions += 1
        until = monotonic() + MOST_SECONDS
        try:
            async with renewed(receiver.session, self.clock_log):
                while monotonic() < until:
                    messages = [] if stop.is_set() else await receiver.receive_messages(1, IDLE_SECONDS)
                    if not messages:
                        if not stop.is_set():
                            health.came_through()
                        return
                    [message] = messages
                    try:
                        delivery = delivery_of(message, body_of(message), self.subscription)
                        with handling(self.topic, delivery, message.correlation_id):
                            await receive(delivery)
                    except StoreUnavailable:
                        await receiver.abandon_message(message)
                        return
                    await receiver.complete_message(message)
                    health.received += 1
                    health.came_through()
                    beat()
        finally:
            health.sessions -= 1


@asynccontextmanager
async def renewed(session: ServiceBusSession, clock_log: LogThrottle) -> AsyncIterator[None]:
    """Renews the session's lock at a third of its time while the block runs, even if this machine's clock is wrong.

    The SDK can lose a cancellation that arrives together with an answer (``asyncio.wait_for`` of Python 3.11). A
    renewal that continued after that would hold the session for ever, and nobody would get its messages.
    """
    over = asyncio.Event()
    pause = _until_renewal(session, clock_log)

    async def renew() -> None:
        nonlocal pause
        while not over.is_set():
            await asyncio.sleep(pause)
            with contextlib.suppress(*SDK_ERRORS):  # completing the message detects a lost lock
                await session.renew_lock()
            pause = _until_renewal(session, clock_log)

    renewing = asyncio.create_task(renew())
    try:
        yield
    finally:
        over.set()
        renewing.cancel()
        await asyncio.wait({renewing})


def _until_renewal(session: ServiceBusSession, clock_log: LogThrottle) -> float:
    """Returns the pause before a lock that was just taken is renewed.

    The broker returns the lock's end by its own clock. If no lock can last that long from now, this machine's clock is
    wrong. If that time is past, the SDK treats the lock as lost and settles nothing, so the end is hidden from it.
    """
    until = session.locked_until_utc
    shortest, longest = LOCK_SECONDS
    left = shortest if until is None else (until - utc_now()).total_seconds()
    if not 0 < left <= longest and clock_log.due():
        _log.error(
            "this machine's clock is at least %.0f s %s that of Service Bus: set the clock",
            max(-left, left - longest),
            "ahead of" if left <= 0 else "behind",
        )
    if left <= 0:
        # The SDK compares it with this machine's clock, and skips the check if it is None, as in its base class.
        session._locked_until_utc = None  # type: ignore[assignment]  # noqa: SLF001
        left = shortest
    return min(max(0.1, left / 3), LONGEST_RENEWAL_SECONDS)

"""Sessions side by side, one message of a session at a time, each completed only after it was handled.

One message is asked for at a time: asked for several, the Python SDK can let a message be overtaken
(https://github.com/Azure/azure-sdk-for-net/issues/35846). A session's lock is renewed while its message is handled. A
session is given back when it is idle, and after ``MOST_IN_A_ROW`` messages, so that a few hot aggregates cannot keep
all slots.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSession
from azure.servicebus.exceptions import OperationTimeoutError, SessionCannotBeLockedError

from changefeed import Pulse
from inbox.errors import StoreAway
from inbox.set_aside import Delivery
from infra.servicebus.bodies import body_of
from infra.servicebus.errors import SDK_ERRORS, verdict
from infra.servicebus.in_time import in_time
from infra.servicebus.received import delivery_of, handling
from outbox.unit_of_work import utc_now

IDLE_SECONDS = 0.5
"""After so long without a message a session is given back."""

MOST_IN_A_ROW = 100
"""After so many messages a session is given back, even if more wait."""

_WAIT_SECONDS = 20.0
"""For a session that has messages."""
_OPEN_SECONDS = _WAIT_SECONDS + 10
"""The SDK itself waits for ever when its token link is detached while a receiver opens."""
_CLOSE_SECONDS = 10.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 30.0

Receive = Callable[[Delivery], Awaitable[None]]
"""Handles a message. Raises StoreAway, after a wait: the message is given back."""

_log = logging.getLogger(__name__)


@dataclass
class Work:
    """What the slots have done and met, for probes and a health line."""

    received: int = 0
    sessions: int = 0
    """How many are held at this moment."""
    waiting_for: str | None = None
    pulses: list[Pulse] = field(default_factory=list)
    """One for each slot: it beats with each session that was asked for, and with each message."""


@dataclass(frozen=True)
class Sessions:
    """The sessions of one subscription."""

    client: ServiceBusClient
    topic: str
    subscription: str

    async def serve(self, receive: Receive, stop: asyncio.Event, work: Work, *, slots: int) -> None:
        """Handle messages until ``stop`` is set; then return as soon as the messages in hand are handled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(slots):
                group.create_task(self._slot(receive, stop, work))

    async def _slot(self, receive: Receive, stop: asyncio.Event, work: Work) -> None:
        pause, pulse = _FIRST_PAUSE_SECONDS, Pulse()
        work.pulses.append(pulse)
        while not stop.is_set():
            pulse.beat()
            try:
                async with self._next_session(stop) as receiver:
                    if receiver is not None:
                        await self._serve_one(receiver, receive, stop, work, pulse)
            except (OperationTimeoutError, SessionCannotBeLockedError):  # no session has messages
                work.waiting_for = None
            except SDK_ERRORS as error:
                work.waiting_for = verdict(error)[1]
                _log.warning("messages wait: %s", work.waiting_for)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await stop.wait()
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            else:
                work.waiting_for, pause = None, _FIRST_PAUSE_SECONDS

    @asynccontextmanager
    async def _next_session(self, stop: asyncio.Event) -> AsyncIterator[ServiceBusReceiver | None]:
        """A session that has messages; None: the stop came first."""
        receiver = self.client.get_subscription_receiver(
            self.topic, self.subscription, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=_WAIT_SECONDS
        )
        opening = asyncio.create_task(in_time(receiver.__aenter__(), _now() + _OPEN_SECONDS))
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
            # Gathered, so that an opening that failed as the stop came is looked at: else asyncio complains of it.
            await asyncio.gather(opening, stopping, return_exceptions=True)
            with contextlib.suppress(*SDK_ERRORS):
                await in_time(receiver.close(), _now() + _CLOSE_SECONDS)

    async def _serve_one(
        self, receiver: ServiceBusReceiver, receive: Receive, stop: asyncio.Event, work: Work, pulse: Pulse
    ) -> None:
        work.sessions += 1
        try:
            async with renewed(receiver.session):
                for _ in range(MOST_IN_A_ROW):
                    messages = [] if stop.is_set() else await receiver.receive_messages(1, IDLE_SECONDS)
                    if not messages:
                        return
                    [message] = messages
                    try:
                        delivery = delivery_of(message, body_of(message), self.subscription)
                        with handling(self.topic, delivery, message.correlation_id):
                            await receive(delivery)
                    except StoreAway:
                        await receiver.abandon_message(message)
                        return
                    await receiver.complete_message(message)
                    work.received += 1
                    pulse.beat()
        finally:
            work.sessions -= 1


def _now() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def renewed(session: ServiceBusSession) -> AsyncIterator[None]:
    """Renew the session's lock at a third of its time, until the body ends.

    The SDK can lose a cancellation that comes as an answer does (``asyncio.wait_for`` of Python 3.11). A renewal that
    went on after that would hold the session for ever, and nobody would get its messages.
    """
    over = asyncio.Event()

    async def renew() -> None:
        while not over.is_set() and (until := session.locked_until_utc) is not None:
            left = (until - utc_now()).total_seconds()
            await asyncio.sleep(max(0.1, left / 3))
            with contextlib.suppress(*SDK_ERRORS):  # a lock that is lost shows when the message is completed
                await session.renew_lock()

    renewing = asyncio.create_task(renew())
    try:
        yield
    finally:
        over.set()
        renewing.cancel()
        await asyncio.wait({renewing})

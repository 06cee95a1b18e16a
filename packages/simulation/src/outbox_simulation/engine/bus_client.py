"""Connects the subscriber's own code to a broker in memory: only the used calls of the broker's SDK are doubled.

The broker carries out a receiver's calls even if the receiver is gone by then; each can meet the broker's faults, and
raises the SDK's errors then.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Self, TypeVar, cast

from azure.servicebus import ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpMessageBodyType
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from cosmos_outbox.operations.subscriber import Queues
from cosmos_outbox.servicebus.sessions import DeadLetters, Sessions
from outbox_simulation.engine.bus import Bus
from outbox_simulation.engine.bus_queue import Lock, Queue, Queued

T = TypeVar("T")

TOPIC = "topic"


def queues(bus: Bus, subscription: str, *, topic: str = TOPIC) -> Queues:
    """Returns one process's queues of a subscription: the deployed code, over this broker."""
    client = cast(ServiceBusClient, BusClient(bus))
    return Queues(DeadLetters(client, topic, subscription), Sessions(client, topic, subscription))


@dataclass(frozen=True)
class ReceivedMessage:
    """The used attributes of a received message."""

    held: Queued
    lock: object

    @property
    def message_id(self) -> str:
        return self.held.taken.sent.message.id

    @property
    def enqueued_sequence_number(self) -> int:
        return self.held.taken.number

    @property
    def sequence_number(self) -> int:
        return self.held.taken.number

    @property
    def application_properties(self) -> Mapping[str, Any]:
        return self.held.taken.sent.message.properties

    @property
    def correlation_id(self) -> str | None:
        return self.held.taken.sent.correlation_id

    @property
    def body_type(self) -> AmqpMessageBodyType:
        return AmqpMessageBodyType.DATA

    @property
    def body(self) -> Sequence[bytes]:
        return [self.held.taken.sent.message.body]

    @property
    def dead_letter_reason(self) -> str | None:
        return self.held.reason


class BusClient:
    """Double of the SDK's client."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus

    def get_subscription_receiver(
        self,
        topic: str,
        subscription: str,
        *,
        session_id: object = None,
        sub_queue: ServiceBusSubQueue | None = None,
        max_wait_time: float | None = None,
    ) -> "SessionReceiver | DeadLetterReceiver":
        """Returns a receiver of the next free session, or of the dead letters."""
        queue = self._bus.queues[subscription]
        if sub_queue is not None:
            return DeadLetterReceiver(self._bus, queue)
        assert max_wait_time is not None, "a session is waited for for some time"
        return SessionReceiver(self._bus, queue, max_wait_time)

    async def close(self) -> None:
        """Closes nothing: nothing is left open."""


class _Receiver:
    """One connection to the broker."""

    def __init__(self, bus: Bus, queue: Queue) -> None:
        self._bus = bus
        self._queue = queue
        self._end_waiting: Callable[[], None] = _nothing
        self._broken = False
        """Whether the client's end of the connection is gone."""
        self._dropped = False
        """Whether the broker's end is gone."""

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def _open(self) -> None:
        """Opens the connection. Raises the SDK's errors."""
        await self._ask(_nothing)

    def _lost(self) -> None:
        """Lets the broker notice that the connection has ended."""

    def _drop(self) -> None:
        self._dropped = True
        self._end_waiting()
        self._lost()

    async def _ask(self, do: Callable[[], T]) -> T:
        """Lets the broker do it. Raises the broker's error, or that of a fault of the call."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def carry_out() -> None:
            if self._dropped:
                return
            try:
                done = do()
            except ServiceBusError as error:
                self._answer(answer, error=error)
            else:
                self._answer(answer, done)

        self._send(carry_out, answer)
        return await answer

    async def _wait_for(self, seconds: float, find: Callable[[], T | None]) -> T | None:
        """Returns what the broker finds within this time. Raises as :meth:`_ask`."""
        answer: asyncio.Future[T | None] = asyncio.get_running_loop().create_future()

        def carry_out() -> None:
            if self._dropped:
                return
            try:
                self._end_waiting = self._queue.wait(seconds, find, lambda found: self._answer(answer, found))
            except ServiceBusError as error:
                self._answer(answer, error=error)

        self._send(carry_out, answer)
        return await answer

    def _send(self, carry_out: Callable[[], None], answer: "asyncio.Future[Any]") -> None:
        """Sends it to the broker, unless a fault prevents that."""
        bus, chances, way = self._bus, self._bus.rates, self._bus.way_seconds()
        if self._broken or bus.is_away():
            self._answer(answer, error=ServiceBusConnectionError())
        elif bus.strikes(chances.busy):
            self._answer(answer, error=ServiceBusServerBusyError())
        elif bus.strikes(chances.cut) or bus.strikes(chances.lost_before):
            self._cut(answer, way)
        elif bus.strikes(chances.lost_after):
            bus.later(way, carry_out)
            self._cut(answer, 2 * way)
        else:
            bus.later(way, carry_out)

    def _cut(self, answer: "asyncio.Future[Any]", way: float) -> None:
        """Ends the connection; chance decides whether the broker notices it before a lock runs out."""
        self._broken = True
        self._bus.note("connection cut", self._queue.name)
        if self._bus.one_of(2):
            self._bus.later(way, self._drop)
        self._bus.later(way, lambda: _set(answer, error=ServiceBusConnectionError()))

    def _answer(
        self, answer: "asyncio.Future[Any]", result: Any = None, *, error: Exception | None = None
    ) -> None:
        self._bus.later(self._bus.way_seconds(), lambda: _set(answer, result, error))


class SessionReceiver(_Receiver):
    """Receiver of one session."""

    def __init__(self, bus: Bus, queue: Queue, wait_seconds: float) -> None:
        super().__init__(bus, queue)
        self._wait_seconds = wait_seconds
        self._lock: Lock | None = None
        self.session = SessionDouble(self)

    async def _open(self) -> None:
        def take() -> Lock | None:
            self._lock = self._queue.next_session()
            return self._lock

        lock = await self._wait_for(self._wait_seconds, take)
        if lock is None:
            raise OperationTimeoutError
        self.session.locked_until_utc = self._bus.wall(lock.until)

    async def close(self) -> None:
        """Frees the session. Raises ServiceBusError."""
        await self._ask(self._drop)

    async def receive_messages(self, most: int, max_wait_time: float) -> list[ReceivedMessage]:
        """Returns one message, or none if none came in time. Raises ServiceBusError."""
        assert most == 1, "asked for several, the SDK can let a message be overtaken"
        lock = self._held
        held = await self._wait_for(max_wait_time, lambda: self._queue.take(lock))
        return [] if held is None else [ReceivedMessage(held, lock)]

    async def complete_message(self, message: ReceivedMessage) -> None:
        """Raises ServiceBusError."""
        lock = self._held
        again = self._bus.strikes(self._bus.rates.again)
        if self._bus.strikes(self._bus.rates.lock_lost):
            self._queue.release(lock, counts=True)
        await self._ask(lambda: self._queue.complete(lock, message.held, again=again))

    async def abandon_message(self, message: ReceivedMessage) -> None:
        """Raises ServiceBusError."""
        await self._ask(partial(self._queue.abandon, self._held, message.held))

    async def renew(self) -> datetime:
        """Renews the lock and returns its end. Raises ServiceBusError."""
        return self._bus.wall(await self._ask(partial(self._queue.renew, self._held)))

    @property
    def _held(self) -> Lock:
        assert self._lock is not None, "the receiver was opened"
        return self._lock

    def _lost(self) -> None:
        if self._lock is not None:
            self._queue.release(self._lock)


class SessionDouble:
    """Double of the SDK's session."""

    def __init__(self, receiver: SessionReceiver) -> None:
        self._receiver = receiver
        self.locked_until_utc: datetime | None = None

    async def renew_lock(self) -> None:
        """Raises ServiceBusError."""
        self.locked_until_utc = await self._receiver.renew()


class DeadLetterReceiver(_Receiver):
    """Receiver of the dead letters of a subscription."""

    async def close(self) -> None:
        """Leaves the locks, which run out by themselves. Raises ServiceBusError."""
        await self._ask(self._drop)

    async def receive_messages(self, most: int, max_wait_time: float) -> list[ReceivedMessage]:
        """Returns the available messages, or none if none came in time. Raises ServiceBusError."""

        def take() -> list[ReceivedMessage] | None:
            found = self._queue.take_dead(most)
            return None if found is None else [ReceivedMessage(held, held.lock) for held in found]

        return await self._wait_for(max_wait_time, take) or []

    async def complete_message(self, message: ReceivedMessage) -> None:
        """Raises ServiceBusError."""
        await self._ask(partial(self._queue.complete_dead, message.held, message.lock))


def _set(answer: "asyncio.Future[Any]", result: Any = None, error: Exception | None = None) -> None:
    """Sets the result, unless the future is cancelled or already done."""
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)


def _nothing() -> None:
    """Does nothing."""

"""A sender serves one send at a time, and is closed after a send without an answer before anything else is sent.

A send that got no answer may still be on its way. Then the connection may have died in silence, and others with it, as
when a firewall has dropped what was idle: no idle sender is used again, since each of them could take as long to fail.
A refusal is an answer, and closes nothing.

Each sender has a connection of its own. Opening one takes several round trips, and the SDK's pauses between them, so
whoever waits for a sender gets the next one that is free, be it new or given back.

A batch whose messages are known to fit encodes each of them once.

The SDK encodes a message twice when it is put into a batch, the first time only to learn its size, and encoding is most
of what the relay does. Sizes are counted before (:func:`cosmos_outbox.servicebus.message.size_at_most`). What is used
here of the SDK's inside can only fail one way: in a version that has it no more, messages are encoded twice again.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from azure.core.settings import settings
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.servicebus.client import in_time
from cosmos_outbox.servicebus.errors import SDK_ERRORS, is_answer

_TRANSPORT = "_amqp_transport"


class _Unmeasuring:
    """The SDK's codec, for which every message has no size."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def get_message_encoded_size(self, _message: Any) -> int:
        return 0


@contextmanager
def unmeasured(batch: ServiceBusMessageBatch) -> Iterator[None]:
    """Let messages be added without being measured; not while the SDK traces, since then it makes them larger."""
    transport = getattr(batch, _TRANSPORT, None)
    if transport is None or settings.tracing_implementation() is not None:
        yield
        return
    setattr(batch, _TRANSPORT, _Unmeasuring(transport))
    try:
        yield
    finally:
        setattr(batch, _TRANSPORT, transport)


SEND_TIMEOUT_SECONDS = 20.0
"""The timeout for opening a link and for each send. The SDK has no timeout by default."""

_CLOSE_TIMEOUT_SECONDS = 2.0


@dataclass(frozen=True)
class Limits:
    """What the topic takes, as its link tells."""

    batch_bytes: int
    message_bytes: int
    """Of a message that is sent alone. In the Premium tier this can be more than a batch may have."""


class Sender:
    """One link, in use by one send at a time. The methods raise what is in ``SDK_ERRORS``."""

    def __init__(self, link: ServiceBusSender) -> None:
        self._link = link
        self.usable = True
        """False while a call waits for its answer, and when none came, also since the call was cancelled."""
        self.outdated = False
        """The topic may take other sizes than this link tells, which learned them when it was opened."""

    async def limits(self) -> Limits:
        """What the link tells; opens the link if it is not open."""
        batch = await self._new_batch()
        # The SDK keeps this number to itself. A test pins that it is there and that it is the link's.
        message_bytes: int = self._link._max_message_size_on_link  # noqa: SLF001
        return Limits(batch.max_size_in_bytes, message_bytes)

    async def send(self, messages: Sequence[ServiceBusMessage]) -> None:
        """Send all of them as one batch, or the only one by itself. Returns when the topic has accepted them."""
        what: ServiceBusMessage | ServiceBusMessageBatch = messages[0]
        if len(messages) > 1:
            what = await self._new_batch()
            with unmeasured(what):
                for message in messages:
                    what.add_message(message)
        self.usable = False
        try:
            await in_time(
                self._link.send_messages(what, timeout=SEND_TIMEOUT_SECONDS), _after(SEND_TIMEOUT_SECONDS)
            )
        except SDK_ERRORS as error:
            self.usable = is_answer(error)
            raise
        self.usable = True

    async def close(self) -> None:
        """Raises nothing: a link that cannot be closed in time is left to the service."""
        with contextlib.suppress(*SDK_ERRORS):
            await in_time(self._link.close(), _after(_CLOSE_TIMEOUT_SECONDS))

    async def _new_batch(self) -> ServiceBusMessageBatch:
        self.usable = False  # the first call opens the link, to learn the limits
        batch = await in_time(self._link.create_message_batch(), _after(SEND_TIMEOUT_SECONDS))
        self.usable = True
        return batch


def _after(seconds: float) -> float:
    return monotonic() + seconds


class Senders:
    """The senders of one topic, at most ``most`` at once."""

    def __init__(self, client: ServiceBusClient, topic: str, most: int) -> None:
        self._client = client
        self._topic = topic
        self._most = most
        self._idle: list[Sender] = []
        self._lent: set[Sender] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._waiting: deque[asyncio.Future[Sender]] = deque()
        self._refused = False
        """Whether the last link that was tried could not be opened."""

    async def limits(self, *, batches: int = 1) -> Limits:
        """Asks the topic if no link is open, since only a link tells. Raises what is in ``SDK_ERRORS``.

        The first links are opened side by side, one for each of the ``batches`` that are to follow; while the topic is
        away, one is tried.
        """
        if not (self._idle or self._lent or self._refused):
            self._open_up_to(batches)
        sender = await self.take()
        try:
            return await sender.limits()
        finally:
            await self.give_back(sender)

    async def take(self) -> Sender:
        """The next sender that is free, for the caller alone until it gives the sender back.

        Raises what is in ``SDK_ERRORS`` when no link is open and none can be opened.
        """
        if self._idle:
            return self._lend(self._idle.pop())
        turn: asyncio.Future[Sender] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._open_for_the_waiting()
        try:
            return await turn
        except asyncio.CancelledError:
            if not turn.cancelled() and turn.exception() is None:
                self._hand_on(turn.result())  # it came in the moment of the cancellation
            raise

    async def give_back(self, sender: Sender) -> None:
        """The next in turn gets it; one that got no answer is closed, with all that are idle, and leaves its place."""
        if sender.usable and not sender.outdated:
            self._hand_on(sender)
            return
        closing = [sender]
        if not sender.usable:
            closing += self._idle
            self._idle = []
        try:
            await asyncio.gather(*(one.close() for one in closing))
        finally:
            self._lent.discard(sender)
            self._open_for_the_waiting()

    async def renew(self) -> None:
        """Use no link again that is open now: an operator may have changed what the topic takes."""
        for sender in self._lent:
            sender.outdated = True
        idle, self._idle = self._idle, []
        await asyncio.gather(*(sender.close() for sender in idle))

    async def close(self) -> None:
        """Close the idle senders and stop opening others; the caller closes the client."""
        opening = list(self._opening)
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        self._end_waiting(ValueError("the senders are closed"))
        while self._idle:
            await self._idle.pop().close()

    def _lend(self, sender: Sender) -> Sender:
        self._lent.add(sender)
        return sender

    def _hand_on(self, sender: Sender) -> None:
        self._lent.discard(sender)
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(self._lend(sender))
                return
        self._idle.append(sender)

    def _open_for_the_waiting(self) -> None:
        self._open_up_to(sum(not turn.done() for turn in self._waiting))

    def _open_up_to(self, wanted: int) -> None:
        """So many at once, while there may be more. None is idle then: nobody would wait."""
        room = self._most - len(self._lent)
        while len(self._opening) < min(wanted, room):
            task = asyncio.create_task(self._open())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self) -> None:
        try:
            sender = await self._open_one()
        except Exception as error:  # noqa: BLE001 - whoever waits gets it, and knows what it is
            self._opening_is_over()
            self._refused = True
            if not (self._lent or self._opening):
                self._end_waiting(error)
        else:
            self._opening_is_over()
            self._refused = False
            self._hand_on(sender)

    async def _open_one(self) -> Sender:
        sender = Sender(self._client.get_topic_sender(self._topic))
        try:
            await sender.limits()
        except BaseException:
            await sender.close()
            raise
        return sender

    def _opening_is_over(self) -> None:
        """Said by the task itself: its end is told a moment later, when others may have counted on it already."""
        task = asyncio.current_task()
        assert task is not None, "an opening is a task"
        self._opening.discard(task)

    def _end_waiting(self, error: Exception) -> None:
        """There is no sender to wait for."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(error)

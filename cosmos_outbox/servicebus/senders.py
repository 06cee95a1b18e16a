"""Pools the senders of a topic. A sender serves one send at a time; one without an answer is closed first.

A send without an answer may still be in flight. Its connection may have died silently, and others with it, as when a
firewall drops idle connections: so no idle sender is used again, since each could take as long to fail. A refusal is an
answer, and closes nothing.

Each sender has its own connection. Opening one takes several round trips, and the SDK's pauses between them, so a
waiting send gets the next free sender, new or returned.

A batch whose messages are known to fit encodes each message once. The SDK encodes a message twice when it is added to a
batch, the first time only to measure it, and encoding is most of the relay's work. Sizes are estimated before
(:func:`cosmos_outbox.servicebus.message.size_at_most`). The SDK internals that are used here can fail in only one way:
in a version without them, messages are encoded twice again.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from azure.core.settings import settings
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.servicebus.client import in_time
from cosmos_outbox.servicebus.errors import SDK_ERRORS, is_answer

_TRANSPORT = "_amqp_transport"


class _Unmeasuring:
    """Wraps the SDK's codec and returns 0 for the size of every message."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def get_message_encoded_size(self, _message: Any) -> int:
        return 0


@contextmanager
def unmeasured(batch: ServiceBusMessageBatch) -> Iterator[None]:
    """Adds messages without measuring them; not while the SDK traces, since its trace properties enlarge them."""
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
    """The topic's size limits, as its link reports them."""

    batch_bytes: int
    message_bytes: int
    """The limit of a message that is sent alone; in the Premium tier it can exceed that of a batch."""


class Sender:
    """One link, used by one send at a time. The methods raise ``SDK_ERRORS``."""

    def __init__(self, link: ServiceBusSender) -> None:
        self._link = link
        self.usable = True
        """False while a call waits for its answer, and after a call without one, such as a cancelled call."""
        self.outdated = False
        """Whether the topic's limits may have changed since the link was opened and learned them."""

    async def limits(self) -> Limits:
        """Returns the limits that the link reports; opens the link if it is not open."""
        batch = await self._new_batch()
        # The SDK keeps this number private. A test verifies that it exists and is the link's.
        message_bytes: int = self._link._max_message_size_on_link  # noqa: SLF001
        return Limits(batch.max_size_in_bytes, message_bytes)

    async def send(self, messages: Sequence[ServiceBusMessage]) -> None:
        """Sends several messages as one batch, or one alone. Returns once the topic has accepted them."""
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
        """Closes the link and raises nothing: one that does not close in time is left to the service."""
        with contextlib.suppress(*SDK_ERRORS):
            await in_time(self._link.close(), _after(_CLOSE_TIMEOUT_SECONDS))

    async def _new_batch(self) -> ServiceBusMessageBatch:
        self.usable = False  # the first call opens the link to learn its limits
        batch = await in_time(self._link.create_message_batch(), _after(SEND_TIMEOUT_SECONDS))
        self.usable = True
        return batch


def _after(seconds: float) -> float:
    return monotonic() + seconds


class Senders:
    """Pools at most ``most`` senders of one topic."""

    def __init__(self, client: ServiceBusClient, topic: str, most: int) -> None:
        self._client = client
        self._topic = topic
        self._most = most
        self._idle: list[Sender] = []
        self._lent: set[Sender] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._waiting: deque[asyncio.Future[Sender]] = deque()

    async def limits(self) -> Limits:
        """Returns the limits; opens a link if none is open, since only a link knows them. Raises ``SDK_ERRORS``."""
        sender = await self.take()
        try:
            return await sender.limits()
        finally:
            await self.give_back(sender)

    async def take(self) -> Sender:
        """Returns the next free sender, for the caller's exclusive use until :meth:`give_back`.

        Raises ``SDK_ERRORS`` if no link is open and none can be opened.
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
                self._hand_on(turn.result())  # it arrived at the same moment as the cancellation
            raise

    async def give_back(self, sender: Sender) -> None:
        """Hands the sender to the next waiter; closes one without an answer, and with it all idle senders."""
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
        """Retires all open links: an operator may have changed the topic's limits."""
        for sender in self._lent:
            sender.outdated = True
        idle, self._idle = self._idle, []
        await asyncio.gather(*(sender.close() for sender in idle))

    async def close(self) -> None:
        """Closes the idle senders and stops opening others; the caller closes the client."""
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
        """Opens a link for each, concurrently, within ``most``. Nothing waits while a sender is idle."""
        wanted = sum(not turn.done() for turn in self._waiting)
        while len(self._opening) < min(wanted, self._most - len(self._lent)):
            task = asyncio.create_task(self._open())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self) -> None:
        try:
            sender = await self._open_one()
        except Exception as error:  # noqa: BLE001 - passed on to the waiters, which classify it
            self._opening_is_over()
            if not (self._lent or self._opening):
                self._end_waiting(error)
        else:
            self._opening_is_over()
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
        """Removes the task here: its done callback runs one loop iteration later, after others have counted it."""
        task = asyncio.current_task()
        assert task is not None, "an opening is a task"
        self._opening.discard(task)

    def _end_waiting(self, error: Exception) -> None:
        """Raises the error in all waiters."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(error)

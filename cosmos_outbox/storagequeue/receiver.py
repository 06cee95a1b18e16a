"""Handles messages concurrently and deletes each only after it was handled; a dead worker's messages reappear.

A message is hidden while it is handled, and its visibility timeout is renewed at a third. A worker that lost a message
nevertheless cannot delete it, since its receipt is outdated. A message delivered too often goes to the poison queue.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from azure.core.exceptions import HttpResponseError
from azure.storage.queue import QueueMessage
from azure.storage.queue.aio import QueueClient

from cosmos_outbox.inbox.errors import StoreUnavailable
from cosmos_outbox.inbox.set_aside import Collected, Keep, Receive
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.kernel.loops import CallEnded, own_failures
from cosmos_outbox.storagequeue.client import SDK_ERRORS, error_code, reason
from cosmos_outbox.storagequeue.message import arrived
from cosmos_outbox.storagequeue.publisher import FOR_EVER
from cosmos_outbox.telemetry.liveness import SlotHealth, wait
from cosmos_outbox.telemetry.messaging import STORAGEQUEUE, handling

POISON = "-poison"
"""The suffix of a poison queue's name, as in the Functions host."""

MOST_DELIVERIES = 20
"""A message delivered more often crashes its workers, or outlasts an outage: it goes to the poison queue."""

HIDDEN_SECONDS = 60.0
"""The visibility timeout: no other worker gets the message; it is renewed while the message is handled."""

AWAY_SECONDS = 5
"""The time after which a message that could not be handled becomes visible again."""

MOST_AT_ONCE = 32
"""The service returns at most this number of messages per request."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 2.0
"""The pauses between polls of an empty queue: each poll costs a transaction."""

_GONE = ("MessageNotFound", "PopReceiptMismatch")

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class QueueReceiver:
    """The queue of one subscription; both have the same name."""

    queue: QueueClient
    poison: QueueClient
    hidden_seconds: float = HIDDEN_SECONDS
    most_deliveries: int = MOST_DELIVERIES

    @property
    def subscription(self) -> str:
        """The name of the queue."""
        return str(self.queue.queue_name)

    async def serve(self, receive: Receive, stop: asyncio.Event, health: SlotHealth, *, slots: int) -> None:
        """Handles messages until ``stop`` is set; returns once the current messages are handled."""
        pause, in_hand = FIRST_PAUSE_SECONDS, set[asyncio.Task[None]]()
        stopping = asyncio.create_task(stop.wait())
        try:
            with health.slot() as beat:
                async with asyncio.TaskGroup() as group:
                    while not stop.is_set():
                        beat()
                        found = await self._next(min(MOST_AT_ONCE, slots - len(in_hand)), stop, health)
                        for message in found:
                            task = group.create_task(self._handle(message, receive, health))
                            in_hand.add(task)
                            task.add_done_callback(in_hand.discard)
                        pause = FIRST_PAUSE_SECONDS if found else min(2 * pause, LONGEST_PAUSE_SECONDS)
                        if len(in_hand) >= slots:
                            await asyncio.wait({*in_hand, stopping}, return_when=asyncio.FIRST_COMPLETED)
                        elif not found:
                            await asyncio.wait({stopping}, timeout=pause)
        finally:
            stopping.cancel()

    async def _next(self, most: int, stop: asyncio.Event, health: SlotHealth) -> list[QueueMessage]:
        """Receives messages; after a failure pauses and returns none."""
        try:
            with own_failures():
                found = await _page(self.queue, most, self.hidden_seconds)
        except (CallEnded, *SDK_ERRORS) as error:
            await wait(stop, health.failed(reason(error, f"the queue {self.subscription}"), opening=True))
            return []
        health.came_through()
        return found

    async def _handle(self, message: QueueMessage, receive: Receive, health: SlotHealth) -> None:
        """Handles one message, then deletes it. After a failure the message becomes visible again."""
        health.sessions += 1
        try:
            with health.slot(), own_failures():
                async with self._held(message) as held:
                    if (message.dequeue_count or 0) > self.most_deliveries:
                        await self._give_up(message)
                    else:
                        await self._receive(message, receive)
                        health.received += 1
                    await held.release()
                    await _delete(self.queue, message, held.receipt)
        except StoreUnavailable as error:
            _log.info("a message of %s was not handled, and is delivered again: %s", self.subscription, error)
        except (CallEnded, *SDK_ERRORS) as error:
            health.failed(reason(error, f"the queue {self.subscription}"), opening=False)
        finally:
            health.sessions -= 1

    async def _receive(self, message: QueueMessage, receive: Receive) -> None:
        found = arrived(message.content, message.id, self.subscription)
        delivery = found.delivery
        with handling(self.subscription, delivery, found.correlation_id, STORAGEQUEUE):
            await receive(delivery)

    async def _give_up(self, message: QueueMessage) -> None:
        """Copies the message to the poison queue before its deletion: a crash between leaves two copies, never none."""
        await self.poison.send_message(message.content, time_to_live=FOR_EVER)
        _log.error(
            "message %s was delivered %s times, more than allowed: it is in %s now",
            message.id,
            message.dequeue_count,
            self.poison.queue_name,
        )

    @asynccontextmanager
    async def _held(self, message: QueueMessage) -> AsyncIterator["_Held"]:
        """Keeps the message hidden during the block; if the block raises, makes it visible again soon."""
        held = _Held(self.queue, message, self.hidden_seconds)
        renewing = asyncio.create_task(held.renew())
        try:
            yield held
        except BaseException:
            renewing.cancel()
            await held.let_go()
            raise
        finally:
            renewing.cancel()
            await asyncio.wait({renewing})


class _Held:
    """A message that is being handled, with its newest receipt."""

    def __init__(self, queue: QueueClient, message: QueueMessage, hidden_seconds: float) -> None:
        self._queue, self._message, self._hidden = queue, message, hidden_seconds
        self.receipt = message.pop_receipt
        self._renewing = asyncio.Lock()
        self._over = False

    async def renew(self) -> None:
        """Renews the visibility timeout until the message is released or lost."""
        while True:
            await asyncio.sleep(self._hidden / 3)
            async with self._renewing:
                if self._over or not await self._renew_once():
                    return

    async def _renew_once(self) -> bool:
        """Renews once; False: the message is lost to another worker, or deleted."""
        try:
            await self._hide(round(self._hidden))
        except SDK_ERRORS as error:
            _log.info("message %s could not be renewed: %s", self._message.id, error_code(error))
            return error_code(error) not in _GONE
        return True

    async def release(self) -> None:
        """Stops renewing and waits for a running renewal, so that the receipt is the newest."""
        self._over = True
        async with self._renewing:
            pass

    async def let_go(self) -> None:
        """Tries to make the message visible soon; if that fails, it reappears at its timeout. Renewal has ended."""
        with contextlib.suppress(*SDK_ERRORS):
            async with asyncio.timeout(AWAY_SECONDS):
                await self._hide(AWAY_SECONDS)

    async def _hide(self, seconds: int) -> None:
        # By id: with the message object the SDK would rewrite its content.
        renewed = await self._queue.update_message(self._message.id, self.receipt, visibility_timeout=seconds)
        self.receipt = renewed.pop_receipt


async def _page(queue: QueueClient, most: int, hidden: float) -> list[QueueMessage]:
    """Receives by a single paid request: the SDK would repeat it until it has ``most`` or the queue is empty."""
    pages = queue.receive_messages(messages_per_page=most, visibility_timeout=round(hidden)).by_page()
    async for page in pages:
        return [message async for message in page]
    return []


async def _delete(queue: QueueClient, message: QueueMessage, receipt: str | None) -> None:
    try:
        await queue.delete_message(message.id, receipt)
    except HttpResponseError as error:
        if error_code(error) not in _GONE:
            raise
        _log.info("another worker has message %s now: it may be handled once more", message.id)


@dataclass(frozen=True)
class PoisonQueue:
    """The poison queue of one subscription."""

    queue: QueueClient
    subscription: str

    async def collect(self, keep: Keep, *, seconds: float) -> Collected:
        """Moves the messages into records; receives no more after ``seconds``. Raises StoreUnavailable."""
        until, collected = monotonic() + seconds, 0
        try:
            while monotonic() < until:
                messages = await _page(self.queue, MOST_AT_ONCE, HIDDEN_SECONDS)
                if not messages:
                    return Collected(collected, emptied=await self._is_empty())
                for message in messages:
                    found = arrived(message.content, message.id, self.subscription)
                    await keep(found.delivery, "poison: it came too often")
                    await _delete(self.queue, message, message.pop_receipt)
                    collected += 1
        except SDK_ERRORS as error:
            if error_code(error) == "QueueNotFound":  # the Functions host creates it with its first message
                return Collected(collected, emptied=True)
            raise StoreUnavailable(
                f"the poison queue cannot be read: {reason(error, str(self.queue.queue_name))}"
            ) from error
        _log.info("not all poison messages were collected within %.0f s: the next run goes on", seconds)
        return Collected(collected, emptied=False)

    async def _is_empty(self) -> bool:
        """Whether no hidden message is left either: another worker may hold one whose record is not stored yet."""
        return not (await self.queue.get_queue_properties()).approximate_message_count

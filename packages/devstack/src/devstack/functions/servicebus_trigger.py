"""A message is completed after its function has returned, and abandoned when it raised; cut short, it is
neither.

Nothing here counts deliveries or dead-letters: the service does, at its MaxDeliveryCount.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import datetime
from typing import Any
from weakref import WeakKeyDictionary

from azure.core.exceptions import AzureError
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from devstack.functions.connections import Clients
from devstack.functions.execution import Executor, StoppedWaiting, stack_trace
from devstack.functions.host_json import ServiceBusOptions
from devstack.functions.indexing import FunctionInfo
from devstack.functions.invocation import FunctionFailed, Invoker
from devstack.functions.listener import Outage, Running, Stop, first_line
from devstack.functions.locks import lock_kept
from devstack.functions.logs import logged_as
from devstack.functions.receiver_pool import ReceiverPool
from devstack.functions.servicebus_message import UnsupportedBody, bind_many, bind_one
from devstack.functions.servicebus_settings import ServiceBusTriggerSettings

WAIT_SECONDS = 60.0
"""How long one request for a message or a session waits before it is made again."""
OPEN_SECONDS = WAIT_SECONDS + 10
"""The SDK itself waits for ever when the link that carries its token is detached while a receiver opens."""
CLOSE_SECONDS = 1.5
"""What saying goodbye to the service may take when the host stops."""
SPARE_RECEIVERS = 2
SPARE_SESSION_RECEIVERS = 8
"""More, as a burst of messages usually is one of sessions, and each session needs its own receiver."""

_log = logging.getLogger(__name__)


class ServiceBusTrigger:
    """Runs one function on the messages of a queue or subscription; a listener."""

    def __init__(
        self, function: FunctionInfo, invoker: Invoker, clients: Clients, options: ServiceBusOptions
    ) -> None:
        self._settings = ServiceBusTriggerSettings.read(function)
        self._function = function
        self._executor = Executor(function, invoker)
        self._client = clients.servicebus(self._settings.connection)
        self._options = options
        self._outage = Outage(f"Service Bus ({self._settings.entity})")
        self._running = Running()
        self._stopped = asyncio.Event()
        self._pool: ReceiverPool | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._settling: WeakKeyDictionary[ServiceBusReceiver, asyncio.Lock] = WeakKeyDictionary()

    async def run(self) -> None:
        with logged_as(self._function.name):
            spare = SPARE_SESSION_RECEIVERS if self._settings.sessions else SPARE_RECEIVERS
            self._pool = ReceiverPool(self._limit, spare, self._work)
            await self._stopped.wait()

    async def stop(self, stop: Stop) -> None:
        self._stopped.set()
        self._executor.stop_retrying()
        if self._pool is None:
            return
        self._pool.close()
        tasks = set(self._pool.tasks)
        running = {task for task in tasks if task in self._running}
        for task in tasks - running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=stop.seconds)
        # The functions have had their time. The SDK, cancelled while it opens a link, may take long to close it.
        if late := {task for task in tasks if not task.done()}:
            for task in late & running:
                task.cancel()
            await asyncio.wait(late, timeout=CLOSE_SECONDS)
        if self._closing:
            await asyncio.wait(self._closing, timeout=CLOSE_SECONDS)

    @property
    def _limit(self) -> int:
        if self._settings.many:
            # As in the extension: what takes batches is called for one batch at a time.
            return 1
        if self._settings.sessions:
            return self._options.max_concurrent_sessions
        return self._options.max_concurrent_calls

    @property
    def _has_too_many_receivers(self) -> bool:
        return self._pool is not None and self._pool.has_too_many

    async def _work(self) -> None:
        while not self._stopped.is_set():
            try:
                had_work = await (
                    self._work_on_session() if self._settings.sessions else self._work_on_messages()
                )
            except Exception as error:  # noqa: BLE001 - the SDK raises all sorts when a connection breaks
                self._outage.met(error)
                await asyncio.sleep(self._outage.pause)
                continue
            if not had_work and self._has_too_many_receivers:
                return

    async def _work_on_session(self) -> bool:
        """Wait for a session that nobody works on, and work on it until it is idle; whether there was one."""
        try:
            async with self._receiver(session=True) as receiver:
                self._outage.over()
                with self._busy():
                    await self._work_on_held_session(receiver)
        except OperationTimeoutError:
            self._outage.over()
            return False
        except (SessionCannotBeLockedError, SessionLockLostError) as error:
            _log.debug("%s", error)
        return True

    async def _work_on_held_session(self, receiver: ServiceBusReceiver) -> None:
        session = receiver.session

        async def renew() -> datetime:
            return await session.renew_lock()

        longest = 0.0 if self._settings.many else self._options.max_lock_renewal
        async with lock_kept(session.locked_until_utc, renew, longest=longest):
            while not self._stopped.is_set():
                messages = await self._receive(receiver, self._options.session_idle_timeout)
                if not messages:
                    return
                with self._running.invocation():
                    await self._handle_of_session(receiver, messages)

    async def _handle_of_session(
        self, receiver: ServiceBusReceiver, messages: Sequence[ServiceBusReceivedMessage]
    ) -> None:
        if self._settings.many or len(messages) == 1:
            await self._handle(receiver, messages)
            return
        # With maxConcurrentCallsPerSession above 1, the order inside the session is given up.
        async with asyncio.TaskGroup() as group:
            for message in messages:
                group.create_task(self._handle(receiver, [message]))

    async def _work_on_messages(self) -> bool:
        """Work on messages until none comes for a while; whether there was one."""
        had_work = False
        async with self._receiver(session=False) as receiver:
            self._outage.over()
            while not self._stopped.is_set():
                messages = await self._receive(receiver, WAIT_SECONDS)
                if not messages:
                    if self._has_too_many_receivers:
                        break
                    continue
                had_work = True
                with self._busy():
                    await self._handle_locked(receiver, messages)
        return had_work

    async def _handle_locked(
        self, receiver: ServiceBusReceiver, messages: Sequence[ServiceBusReceivedMessage]
    ) -> None:
        message = messages[0]

        async def renew() -> datetime:
            return await receiver.renew_message_lock(message)

        longest = 0.0 if self._settings.many else self._options.max_lock_renewal
        async with lock_kept(message.locked_until_utc, renew, longest=longest):
            with self._running.invocation():
                await self._handle(receiver, messages)

    async def _handle(
        self, receiver: ServiceBusReceiver, messages: Sequence[ServiceBusReceivedMessage]
    ) -> None:
        try:
            succeeded = await self._invoke(messages)
        except StoppedWaiting:
            _log.debug("stopped before the next retry")
            return
        # As the extension does, so that its subscriber gets a message again that it has worked on.
        if succeeded and self._stopped.is_set() and self._settings.sessions and not self._settings.many:
            _log.warning("the host stops: %s is abandoned, though it succeeded", _ids(messages))
            succeeded = False
        for message in messages:
            await self._settle(receiver, message, succeeded=succeeded)

    async def _invoke(self, messages: Sequence[ServiceBusReceivedMessage]) -> bool:
        binary, many = self._settings.binary, self._settings.many
        try:
            value = bind_many(messages, binary=binary) if many else bind_one(messages[0], binary=binary)
            await self._executor.run(value)
        except FunctionFailed as error:
            _log.error("failed; the service delivers again: %s%s", _ids(messages), stack_trace(error))
            return False
        except UnsupportedBody as error:
            _log.error("failed; the service delivers again: %s", error)
            return False
        return True

    async def _settle(
        self, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage, *, succeeded: bool
    ) -> None:
        try:
            # The SDK's receivers are not for several coroutines at once; but each for one.
            async with self._settling.setdefault(receiver, asyncio.Lock()):
                if not succeeded:
                    await receiver.abandon_message(message)
                elif self._options.auto_complete:
                    await receiver.complete_message(message)
        except (AzureError, ValueError) as error:
            _log.warning("%s could not be settled and comes again: %s", message.message_id, first_line(error))

    async def _receive(self, receiver: ServiceBusReceiver, wait: float) -> list[ServiceBusReceivedMessage]:
        if self._settings.many:
            count = self._options.max_batch_size
        else:
            count = self._options.max_concurrent_calls_per_session if self._settings.sessions else 1
        return await receiver.receive_messages(max_message_count=count, max_wait_time=wait)

    @contextlib.contextmanager
    def _busy(self) -> Iterator[None]:
        if self._pool is None:
            yield
            return
        with self._pool.busy():
            yield

    @contextlib.asynccontextmanager
    async def _receiver(self, *, session: bool) -> AsyncIterator[ServiceBusReceiver]:
        receiver = self._make_receiver(session=session)
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await receiver.__aenter__()
            yield receiver
        finally:
            # It takes as long as working on a session does, and holds nobody up in the background.
            closing = asyncio.create_task(receiver.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closed)

    def _closed(self, closing: asyncio.Task[None]) -> None:
        self._closing.discard(closing)
        if not closing.cancelled() and (error := closing.exception()):
            _log.debug("a receiver was not closed: %s", error)

    def _make_receiver(self, *, session: bool) -> ServiceBusReceiver:
        options: dict[str, Any] = {
            "max_wait_time": WAIT_SECONDS,
            "prefetch_count": self._options.prefetch_count,
        }
        if session:
            options["session_id"] = NEXT_AVAILABLE_SESSION
        if self._settings.queue:
            return self._client.get_queue_receiver(self._settings.queue, **options)
        return self._client.get_subscription_receiver(
            self._settings.topic, self._settings.subscription, **options
        )


def _ids(messages: Sequence[ServiceBusReceivedMessage]) -> str:
    return ", ".join(str(message.message_id) for message in messages)

"""The socket of one client: its bytes go to the connection, what the connection reports to those who deal with it.

A defect of ours closes the connection with an error, so that no client waits for an answer that never comes.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from devstack.servicebus.amqp.cbs import SasKey
from devstack.servicebus.amqp.client import Client
from devstack.servicebus.amqp.connection import AmqpConnection, Event, KeyProved
from devstack.servicebus.amqp.engine import Engine
from devstack.servicebus.amqp.faults import Faults
from devstack.servicebus.amqp.session import AmqpSession, AttachAsked
from devstack.servicebus.amqp.wire import Wire
from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.errors import INTERNAL_ERROR, AmqpError

_log = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0
LONGEST_DELAY_SECONDS = 86_400.0
"""A timer of the event loop: whatever is due later is looked at again then."""

_A_LITTLE_SECONDS = 0.001
"""So that what is due has come when the timer fires."""


@dataclass(frozen=True)
class Context:
    """What every connection shares."""

    engine: Engine
    key: SasKey
    faults: Faults
    attach: Callable[[Client, AmqpSession, p.Attach], None]
    idle_seconds: float


class Transport(asyncio.Protocol):
    """One TCP connection."""

    def __init__(self, context: Context, transports: dict["Transport", None]) -> None:
        self._context = context
        self._transports = transports
        self._loop = asyncio.get_running_loop()
        self._socket: asyncio.Transport | None = None
        self._wire = Wire(self._write, self._close, self._abort)
        self._connection = AmqpConnection(self._wire, context.key, context.idle_seconds, self._loop.time())
        self.client = Client(self._connection, self._wire, context.engine, context.faults)
        self._timer: asyncio.TimerHandle | None = None

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._socket = transport
        self._transports[self] = None
        self._set_timer()

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._connection.receive(data, self._loop.time()):
                self._deal_with(event)
        except AmqpError as error:
            self._connection.close(error)
        except Exception:  # noqa: BLE001 - whatever went wrong, the client gets a close and not silence
            _log.exception("a frame could not be handled")
            self._connection.close(AmqpError(INTERNAL_ERROR, "The frame could not be handled."))
        self._set_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wire.has_ended = True
        self._socket = None
        self._transports.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        self._connection.lost()

    def pause_writing(self) -> None:
        """The client does not read: nothing more is read from it either, so that its answers do not pile up here."""
        self._wire.is_writable = False
        if self._socket is not None:
            self._socket.pause_reading()

    def resume_writing(self) -> None:
        self._wire.is_writable = True
        if self._socket is not None:
            self._socket.resume_reading()
        self.client.can_be_written_to()

    # -- the server's

    def close(self) -> None:
        """Say goodbye and end."""
        self._connection.close()

    # -- inside

    def _deal_with(self, event: Event) -> None:
        if isinstance(event, AttachAsked):
            self._context.attach(self.client, event.session, event.attach)
        elif isinstance(event, KeyProved):
            self.client.access.allow_all()
        else:
            self.client.credited(event)

    def _set_timer(self) -> None:
        """One timer for all that is due: it is set anew only when something is due sooner."""
        if self._wire.has_ended:
            return
        due = min(self._due(), self._loop.time() + LONGEST_DELAY_SECONDS)
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._wake)

    def _due(self) -> float:
        ends_ms = self.client.access.next_end_ms()
        if ends_ms is None:
            return self._connection.deadline + _A_LITTLE_SECONDS
        until_end = (ends_ms - self._context.engine.now()) / 1000 + 10 * _A_LITTLE_SECONDS
        return min(self._connection.deadline + _A_LITTLE_SECONDS, self._loop.time() + until_end)

    def _wake(self) -> None:
        self._timer = None
        self._connection.wake(self._loop.time())
        self.client.detach_unauthorised()
        self._set_timer()

    def _write(self, data: bytes) -> None:
        if self._socket is not None:
            self._socket.write(data)

    def _close(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.close()
            self._loop.call_later(CLOSE_SECONDS, socket.abort)  # a client that does not read

    def _abort(self) -> None:
        socket, self._socket = self._socket, None
        if socket is not None:
            socket.abort()

"""A connection ends in order: whatever a client sends, it gets an answer or a close with an AMQP error, never silence.

Source: OASIS AMQP 1.0 part 2, 2.2 to 2.4, and part 5, 5.3.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from devstack.servicebus import cbs, sasl
from devstack.servicebus.access import Access
from devstack.servicebus.cbs import SasKey
from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.composites import decode_performative
from devstack.servicebus.codec.errors import FRAMING_ERROR, INTERNAL_ERROR, NOT_ALLOWED, AmqpError
from devstack.servicebus.codec.frames import (
    AMQP_FRAME,
    AMQP_HEADER,
    MAX_FRAME_SIZE,
    SASL_FRAME,
    SASL_HEADER,
    Frame,
    frame,
)
from devstack.servicebus.engine import Engine
from devstack.servicebus.faults import Faults
from devstack.servicebus.incoming import Incoming
from devstack.servicebus.session import AmqpSession, Link
from devstack.servicebus.timers import Liveness, Timers

_log = logging.getLogger(__name__)

CONTAINER_ID = "devstack-servicebus"
MAX_CHANNEL = 255
MIN_FRAME_SIZE = 512
"""The smallest max-frame-size that AMQP lets a peer announce."""

HANDSHAKE_SECONDS = 30.0
CLOSE_SECONDS = 5.0


@dataclass(frozen=True)
class Context:
    """What every connection shares."""

    engine: Engine
    key: SasKey
    faults: Faults
    attach: Callable[[AmqpSession, p.Attach], None]
    idle_seconds: float
    """A client that is silent for longer is closed; half of it is announced, as AMQP advises."""


class Connection(asyncio.Protocol):
    """One TCP connection, from the protocol header to the close."""

    def __init__(self, context: Context, connections: set["Connection"]) -> None:
        self.context = context
        self.engine = context.engine
        self.remote_max_frame_size = MIN_FRAME_SIZE
        self.writable = True
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._incoming = Incoming()
        self._sasl_done = False
        self._opened = False
        self._sessions: dict[int, AmqpSession] = {}
        self._ended: set[int] = set()
        """Channels that we ended; the client may not know yet."""

        self._timers = Timers()
        self._liveness = Liveness(self._timers, context.idle_seconds, self.write, self.close)
        self.access = Access(context.engine.now, self._timers, self.links)

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)
        self._timers.later(HANDSHAKE_SECONDS, self._check_opened)
        self._liveness.start()

    def data_received(self, data: bytes) -> None:
        self._liveness.heard()
        self._incoming.add(data)
        try:
            while self._transport is not None and (received := self._incoming.next()) is not None:
                if isinstance(received, Frame):
                    self._on_frame(received)
                else:
                    self._on_header(received)
        except AmqpError as error:
            self.close(error)
        except Exception:  # noqa: BLE001 - whatever went wrong, the client gets a close and not silence
            _log.exception("a frame could not be handled")
            self.close(AmqpError(INTERNAL_ERROR, "The frame could not be handled."))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._connections.discard(self)
        self._timers.stop()
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.close()

    def pause_writing(self) -> None:
        """The client does not read: nothing more is read from it either, so that its answers do not pile up here."""
        self.writable = False
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self.writable = True
        if self._transport is not None:
            self._transport.resume_reading()
        for session in list(self._sessions.values()):
            session.pump()

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def abort(self) -> None:
        """End without a word, as a network does; what was received and not looked at yet is never looked at."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    def close(self, error: AmqpError | None = None) -> None:
        """Say goodbye, with the reason if there is one, and end."""
        if self._transport is None:
            return
        if self._opened:
            field = None if error is None else p.error_field(error)
            self.write(frame(0, p.Close(field)))
        elif error is not None and self._sasl_done:
            self.write(frame(0, p.Open(CONTAINER_ID)) + frame(0, p.Close(p.error_field(error))))
        transport, self._transport = self._transport, None
        transport.close()
        asyncio.get_running_loop().call_later(CLOSE_SECONDS, transport.abort)  # a client that does not read

    # -- for its links

    def answer(self, send: Callable[[], None]) -> None:
        """Send an answer once all that was done so far is stored; later still while a fault asks for that."""
        if slow := self.context.faults.happens("slow"):
            later = partial(asyncio.get_running_loop().call_later, slow.seconds, send)
            self.engine.when_durable(lambda: (later(), None)[1])
        else:
            self.engine.when_durable(send)

    def attach(self, session: AmqpSession, attach: p.Attach) -> None:
        self.context.attach(session, attach)

    def links(self) -> Iterator[Link]:
        """The links to entities, of every AMQP session; those for tokens stay for as long as the connection."""
        for session in list(self._sessions.values()):
            yield from [link for link in session.links.values() if link.path != cbs.NODE]

    def detach_all(self, error: AmqpError) -> None:
        """Detach every link to an entity."""
        for link in self.links():
            link.session.detach(link, error)

    # -- incoming

    def _check_opened(self) -> None:
        if not self._opened:
            self.abort()

    def _on_header(self, header: bytes) -> None:
        if header == SASL_HEADER and not self._sasl_done:
            self.write(SASL_HEADER + frame(0, sasl.MECHANISMS, SASL_FRAME))
        elif header == AMQP_HEADER:
            # a client that has only a token says nothing of SASL; $cbs decides what it may do
            self._sasl_done = True
            self.write(AMQP_HEADER)
        else:  # OASIS AMQP 1.0 part 2, 2.2: answer with the header that is supported, and close
            self.write(AMQP_HEADER if self._sasl_done else SASL_HEADER)
            self.close()
            return
        self._incoming.expects_header = False

    def _on_frame(self, received: Frame) -> None:
        if (received.kind == SASL_FRAME) is self._sasl_done:
            raise AmqpError(FRAMING_ERROR, "SASL frames come before the AMQP header, AMQP frames after it.")
        if not received.body:
            if received.kind != AMQP_FRAME:
                raise AmqpError(FRAMING_ERROR, "A SASL frame has a body.")
            return
        performative, payload_at = decode_performative(received.body)
        if received.kind == SASL_FRAME:
            self._on_sasl(performative)
        elif not self._opened:
            self._on_open(performative)
        elif isinstance(performative, p.Close):
            self._opened = False
            self.write(frame(0, p.Close()))
            self.close()
        elif isinstance(performative, p.Begin):
            self._on_begin(received.channel, performative)
        else:
            self._on_session_frame(received.channel, performative, received.body[payload_at:])

    def _on_sasl(self, performative: Any) -> None:
        outcome, proved = sasl.outcome(performative, self.context.key)
        self.write(frame(0, outcome, SASL_FRAME))
        if outcome.code != sasl.OK:
            self.close()
            return
        if proved:
            self.access.allow_all()
        self._sasl_done = True
        self._incoming.expects_header = True

    def _on_open(self, performative: Any) -> None:
        if not isinstance(performative, p.Open):
            raise AmqpError(NOT_ALLOWED, "The first frame of a connection is open.")
        self._opened = True
        announced = self._liveness.announced_ms
        self.write(frame(0, p.Open(CONTAINER_ID, None, MAX_FRAME_SIZE, MAX_CHANNEL, announced)))
        if performative.max_frame_size < MIN_FRAME_SIZE:
            raise AmqpError("amqp:invalid-field", f"max-frame-size is at least {MIN_FRAME_SIZE}.")
        self.remote_max_frame_size = min(performative.max_frame_size, MAX_FRAME_SIZE)
        self._liveness.beat(performative.idle_timeout or None)

    def _on_begin(self, channel: int, begin: p.Begin) -> None:
        if channel in self._sessions or channel > MAX_CHANNEL:
            raise AmqpError(NOT_ALLOWED, f"Channel {channel} is in use, or above {MAX_CHANNEL}.")
        self._ended.discard(channel)
        session = AmqpSession(self, channel, begin)
        self._sessions[channel] = session
        session.open()

    def _on_session_frame(self, channel: int, performative: Any, payload: bytes) -> None:
        session = self._sessions.get(channel)
        if session is None and channel in self._ended:
            if isinstance(performative, p.End):
                self._ended.discard(channel)
            return
        if session is None:
            raise AmqpError(NOT_ALLOWED, f"No session has begun on channel {channel}.")
        if isinstance(performative, p.End):
            del self._sessions[channel]
            session.close()
            self.write(frame(channel, p.End()))
            return
        try:
            session.handle(performative, payload)
        except AmqpError as error:
            if error.condition in ("amqp:decode-error", "amqp:invalid-field", FRAMING_ERROR):
                raise
            self._sessions.pop(channel, None)
            self._ended.add(channel)
            session.end(error)

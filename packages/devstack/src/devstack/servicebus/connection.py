"""A connection ends in order: whatever a client sends, it gets an answer or a close with an AMQP error, never silence.

Source: OASIS AMQP 1.0 part 2, 2.2 to 2.4, and part 5, 5.3.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from devstack.servicebus import sasl
from devstack.servicebus.cbs import Grant, SasKey
from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.composites import decode_performative
from devstack.servicebus.codec.errors import (
    CONNECTION_FORCED,
    FRAMING_ERROR,
    INTERNAL_ERROR,
    NOT_ALLOWED,
    UNAUTHORIZED,
    AmqpError,
)
from devstack.servicebus.codec.frames import (
    AMQP_FRAME,
    AMQP_HEADER,
    EMPTY_FRAME,
    MAX_FRAME_SIZE,
    SASL_FRAME,
    SASL_HEADER,
    Frame,
    frame,
    take_frame,
)
from devstack.servicebus.engine import Engine
from devstack.servicebus.faults import Faults
from devstack.servicebus.session import AmqpSession, Link

_log = logging.getLogger(__name__)

CONTAINER_ID = "devstack-servicebus"
MAX_CHANNEL = 255
MIN_FRAME_SIZE = 512
"""The smallest max-frame-size that AMQP lets a peer announce."""

HANDSHAKE_SECONDS = 30.0
CLOSE_SECONDS = 5.0
HEARTBEAT_SECONDS = 4.0
"""A client hears from us at least so often: the sync SDK's keep-alive thread waits for a frame with its lock held."""

LONGEST_DELAY_SECONDS = 86_400.0
"""A timer of the event loop; a token that is valid for longer is not looked at again, since no test runs for a day."""


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
        self.grants: list[Grant] = []
        self.remote_max_frame_size = MIN_FRAME_SIZE
        self.writable = True
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._read: Callable[[], bool] = self._read_header
        self._sasl_done = False
        self._opened = False
        self._sessions: dict[int, AmqpSession] = {}
        self._ended: set[int] = set()
        """Channels that we ended; the client may not know yet."""

        self._last_heard = 0.0
        self._timers: list[asyncio.TimerHandle] = []

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)
        loop = asyncio.get_running_loop()
        self._last_heard = loop.time()
        self._timers.append(loop.call_later(HANDSHAKE_SECONDS, self._check_opened))
        self._check_idle()

    def data_received(self, data: bytes) -> None:
        self._last_heard = asyncio.get_running_loop().time()
        self._buffer += data
        try:
            while self._transport is not None and self._read():
                pass
        except AmqpError as error:
            self.close(error)
        except Exception:  # noqa: BLE001 - whatever went wrong, the client gets a close and not silence
            _log.exception("a frame could not be handled")
            self.close(AmqpError(INTERNAL_ERROR, "The frame could not be handled."))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._connections.discard(self)
        for timer in self._timers:
            timer.cancel()
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

    # -- authorisation

    def check_access(self, path: str) -> None:
        """Raises :class:`AmqpError` unless a token of this connection covers the path."""
        now = self.engine.now()
        if not any(grant.covers(path, now) for grant in self.grants):
            raise AmqpError(
                UNAUTHORIZED, f"Unauthorized access. A token with a claim for '{path}' is required."
            )

    def add_grant(self, grant: Grant) -> None:
        """A token was put; links whose last token ends are detached then."""
        now = self.engine.now()
        self.grants = [held for held in self.grants if held.path != grant.path and held.expires_ms > now]
        self.grants.append(grant)
        self._later(
            min((grant.expires_ms - now) / 1000 + 0.01, LONGEST_DELAY_SECONDS), self._detach_unauthorised
        )

    def _detach_unauthorised(self) -> None:
        for link in self.links():
            if link.path.startswith("$"):
                continue
            try:
                self.check_access(link.path)
            except AmqpError as error:
                expired = AmqpError(error.condition, "ExpiredToken: the link's token has expired.")
                link.session.detach(link, expired)

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
        """The links of every AMQP session of the connection."""
        for session in list(self._sessions.values()):
            yield from list(session.links.values())

    def detach_all(self, error: AmqpError) -> None:
        """Detach every link of the connection."""
        for link in self.links():
            link.session.detach(link, error)

    # -- time

    def _check_opened(self) -> None:
        if not self._opened:
            self.abort()

    def _check_idle(self) -> None:
        loop = asyncio.get_running_loop()
        left = self._last_heard + self.context.idle_seconds - loop.time()
        if left <= 0:
            self.close(
                AmqpError(CONNECTION_FORCED, "The connection was inactive for longer than its idle time-out.")
            )
            return
        self._later(left + 0.001, self._check_idle)

    def _beat(self, seconds: float) -> None:
        self.write(EMPTY_FRAME)
        self._later(seconds, lambda: self._beat(seconds))

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        if self._transport is None:
            return
        loop = asyncio.get_running_loop()
        self._timers = [
            timer for timer in self._timers if timer.when() > loop.time() and not timer.cancelled()
        ]
        self._timers.append(loop.call_later(seconds, call))

    # -- incoming

    def _read_header(self) -> bool:
        if len(self._buffer) < 8:
            if not AMQP_HEADER.startswith(self._buffer[:4]) and self._buffer:
                self._refuse_header()
            return False
        header = bytes(self._buffer[:8])
        del self._buffer[:8]
        if header == SASL_HEADER and not self._sasl_done:
            self.write(SASL_HEADER + frame(0, sasl.MECHANISMS, SASL_FRAME))
            self._read = self._read_frames
        elif header == AMQP_HEADER:
            self._sasl_done = (
                True  # a client that has only a token says nothing of SASL; $cbs decides what it may do
            )
            self.write(AMQP_HEADER)
            self._read = self._read_frames
        else:
            self._refuse_header()
            return False
        return True

    def _refuse_header(self) -> None:
        """OASIS AMQP 1.0 part 2, 2.2: answer with the header that is supported, and close."""
        self.write(AMQP_HEADER if self._sasl_done else SASL_HEADER)
        self.close()

    def _read_frames(self) -> bool:
        """Handle every whole frame in the buffer; true when the reader has changed."""
        position = 0
        reader = self._read
        try:
            while self._transport is not None and self._read == reader:
                taken = take_frame(self._buffer, position)
                if taken is None:
                    break
                position = taken[1]
                self._handle(taken[0])
        finally:
            del self._buffer[:position]
        return self._read != reader

    def _handle(self, received: Frame) -> None:
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
            self.grants.append(Grant("", 1 << 62))
        self._sasl_done = True
        self._read = self._read_header

    def _on_open(self, performative: Any) -> None:
        if not isinstance(performative, p.Open):
            raise AmqpError(NOT_ALLOWED, "The first frame of a connection is open.")
        self._opened = True
        idle_ms = int(self.context.idle_seconds * 500)
        self.write(frame(0, p.Open(CONTAINER_ID, None, MAX_FRAME_SIZE, MAX_CHANNEL, idle_ms)))
        if performative.max_frame_size < MIN_FRAME_SIZE:
            raise AmqpError("amqp:invalid-field", f"max-frame-size is at least {MIN_FRAME_SIZE}.")
        self.remote_max_frame_size = min(performative.max_frame_size, MAX_FRAME_SIZE)
        wanted = performative.idle_timeout or HEARTBEAT_SECONDS * 2000
        self._beat(min(HEARTBEAT_SECONDS, max(0.01, wanted / 2000)))

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

"""A connection ends in order: whatever a client sends, it gets an answer or a close with an AMQP error, never silence.

Bytes come in, what the client asks for comes out; times are given, and the next that matters is returned. No socket,
no clock and no broker is known here. Source: OASIS AMQP 1.0 part 2, 2.2 to 2.4, and part 5, 5.3.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from devstack.servicebus.amqp import sasl
from devstack.servicebus.amqp.cbs import SasKey
from devstack.servicebus.amqp.channel import Channel
from devstack.servicebus.amqp.incoming import Incoming
from devstack.servicebus.amqp.liveness import Liveness
from devstack.servicebus.amqp.session import AmqpSession, Report
from devstack.servicebus.amqp.wire import MIN_FRAME_SIZE, Wire
from devstack.servicebus.codec import performatives as p
from devstack.servicebus.codec.composites import decode_performative
from devstack.servicebus.codec.errors import CONNECTION_FORCED, FRAMING_ERROR, NOT_ALLOWED, AmqpError
from devstack.servicebus.codec.frames import (
    AMQP_FRAME,
    AMQP_HEADER,
    EMPTY_FRAME,
    MAX_FRAME_SIZE,
    SASL_FRAME,
    SASL_HEADER,
    Frame,
    frame,
)

CONTAINER_ID = "devstack-servicebus"
MAX_CHANNEL = 255


@dataclass(frozen=True)
class KeyProved:
    """The client knows the key: it needs no token."""


Event = KeyProved | Report


class AmqpConnection:
    """One connection, from the protocol header to the close."""

    def __init__(self, wire: Wire, key: SasKey, idle_seconds: float, now: float) -> None:
        """``idle_seconds``: a client that is silent for longer is closed; half of it is announced, as AMQP advises."""
        self._wire = wire
        self._key = key
        self._incoming = Incoming()
        self._sasl_done = False
        self._opened = False
        self._sessions: dict[int, AmqpSession] = {}
        self._ended: set[int] = set()
        """Channels that we ended; the client may not know yet."""

        self._liveness = Liveness(idle_seconds, now)

    @property
    def deadline(self) -> float:
        """When :meth:`wake` has something to do."""
        return self._liveness.deadline

    @property
    def sessions(self) -> list[AmqpSession]:
        return list(self._sessions.values())

    def receive(self, data: bytes, now: float) -> Iterator[Event]:
        """What the client asks for, in order; each is to be dealt with before the next. Raises :class:`AmqpError`,
        with which the connection is to be closed.
        """
        self._liveness.heard(now)
        self._incoming.add(data)
        while not self._wire.has_ended and (received := self._incoming.next()) is not None:
            if isinstance(received, Frame):
                event = self._on_frame(received, now)
                if event is not None:
                    yield event
            else:
                self._on_header(received)

    def wake(self, now: float) -> None:
        """Do what is due: a heartbeat, or the end of a client that says nothing."""
        if self._liveness.is_late_to_open(now):
            self._wire.abort()
        elif self._liveness.is_silent(now):
            self.close(
                AmqpError(CONNECTION_FORCED, "The connection was inactive for longer than its idle time-out.")
            )
        elif self._liveness.must_beat(now):
            self._wire.write(EMPTY_FRAME)

    def close(self, error: AmqpError | None = None) -> None:
        """Say goodbye, with the reason if there is one, and end."""
        if self._opened:
            field = None if error is None else p.error_field(error)
            self._wire.write(frame(0, p.Close(field)))
        elif error is not None and self._sasl_done:
            self._wire.write(frame(0, p.Open(CONTAINER_ID)) + frame(0, p.Close(p.error_field(error))))
        self._wire.close()

    def lost(self) -> None:
        """The socket is gone, and every session with it."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.close()

    # -- incoming

    def _on_header(self, header: bytes) -> None:
        if header == SASL_HEADER and not self._sasl_done:
            self._wire.write(SASL_HEADER + frame(0, sasl.MECHANISMS, SASL_FRAME))
        elif header == AMQP_HEADER:
            # a client that has only a token says nothing of SASL; $cbs decides what it may do
            self._sasl_done = True
            self._wire.write(AMQP_HEADER)
        else:  # OASIS AMQP 1.0 part 2, 2.2: answer with the header that is supported, and close
            self._wire.write(AMQP_HEADER if self._sasl_done else SASL_HEADER)
            self.close()
            return
        self._incoming.expects_header = False

    def _on_frame(self, received: Frame, now: float) -> Event | None:
        if (received.kind == SASL_FRAME) is self._sasl_done:
            raise AmqpError(FRAMING_ERROR, "SASL frames come before the AMQP header, AMQP frames after it.")
        if not received.body:
            if received.kind != AMQP_FRAME:
                raise AmqpError(FRAMING_ERROR, "A SASL frame has a body.")
            return None
        performative, payload_at = decode_performative(received.body)
        if received.kind == SASL_FRAME:
            return self._on_sasl(performative)
        if not self._opened:
            self._on_open(performative, now)
        elif isinstance(performative, p.Close):
            self._opened = False
            self._wire.write(frame(0, p.Close()))
            self.close()
        elif isinstance(performative, p.Begin):
            self._on_begin(received.channel, performative)
        else:
            return self._on_session_frame(received.channel, performative, received.body[payload_at:])
        return None

    def _on_sasl(self, performative: Any) -> Event | None:
        outcome, proved = sasl.outcome(performative, self._key)
        self._wire.write(frame(0, outcome, SASL_FRAME))
        if outcome.code != sasl.OK:
            self.close()
            return None
        self._sasl_done = True
        self._incoming.expects_header = True
        return KeyProved() if proved else None

    def _on_open(self, performative: Any, now: float) -> None:
        if not isinstance(performative, p.Open):
            raise AmqpError(NOT_ALLOWED, "The first frame of a connection is open.")
        self._opened = True
        announced = self._liveness.announced_ms
        self._wire.write(frame(0, p.Open(CONTAINER_ID, None, MAX_FRAME_SIZE, MAX_CHANNEL, announced)))
        if performative.max_frame_size < MIN_FRAME_SIZE:
            raise AmqpError("amqp:invalid-field", f"max-frame-size is at least {MIN_FRAME_SIZE}.")
        self._wire.max_frame_size = min(performative.max_frame_size, MAX_FRAME_SIZE)
        self._liveness.opened(performative.idle_timeout or None, now)

    def _on_begin(self, channel: int, begin: p.Begin) -> None:
        if channel in self._sessions or channel > MAX_CHANNEL:
            raise AmqpError(NOT_ALLOWED, f"Channel {channel} is in use, or above {MAX_CHANNEL}.")
        self._ended.discard(channel)
        session = AmqpSession(Channel(self._wire, channel, begin))
        self._sessions[channel] = session
        session.open()

    def _on_session_frame(self, channel: int, performative: Any, payload: bytes) -> Event | None:
        session = self._sessions.get(channel)
        if session is None and channel in self._ended:
            if isinstance(performative, p.End):
                self._ended.discard(channel)
            return None
        if session is None:
            raise AmqpError(NOT_ALLOWED, f"No session has begun on channel {channel}.")
        if isinstance(performative, p.End):
            del self._sessions[channel]
            session.close()
            self._wire.write(frame(channel, p.End()))
            return None
        try:
            return session.handle(performative, payload)
        except AmqpError as error:
            if error.condition in ("amqp:decode-error", "amqp:invalid-field", FRAMING_ERROR):
                raise
            self._sessions.pop(channel, None)
            self._ended.add(channel)
            session.end(error)
            return None

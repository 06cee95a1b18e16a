"""What arrives comes out in the order of AMQP: a protocol header, then whole frames; no piece is handled twice.

Source: OASIS AMQP 1.0 part 2, 2.2 and 2.3.
"""

from devstack.servicebus.codec.frames import AMQP_HEADER, Frame, take_frame

HEADER_BYTES = 8


class Incoming:
    """The bytes of one connection that are not handled yet."""

    def __init__(self) -> None:
        self.expects_header = True
        """True at the start and after SASL: a protocol header is next, not a frame."""

        self._buffer = bytearray()
        self._position = 0

    def add(self, data: bytes) -> None:
        """Take what arrived; what was handled by now is dropped."""
        del self._buffer[: self._position]
        self._position = 0
        self._buffer += data

    def next(self) -> bytes | Frame | None:
        """The next protocol header or frame; None while it is incomplete.

        Bytes that no header starts with are given as they are, without waiting for eight of them.
        Raises :class:`AmqpError` for a frame that cannot be one.
        """
        if self.expects_header:
            return self._header()
        taken = take_frame(self._buffer, self._position)
        if taken is None:
            return None
        received, self._position = taken
        return received

    def _header(self) -> bytes | None:
        header = bytes(self._buffer[self._position : self._position + HEADER_BYTES])
        if len(header) < HEADER_BYTES and AMQP_HEADER.startswith(header[:4]):
            return None
        self._position += len(header)
        return header

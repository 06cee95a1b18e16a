"""A frame is bounded before it is read: what announces more than the agreed size closes the connection.

Source: OASIS AMQP 1.0 part 2, 2.3 (layout) and part 5, 5.3.1 (SASL frames).
"""

import struct
from typing import Any, NamedTuple

from devstack.servicebus.codec import encode as e
from devstack.servicebus.codec.composites import encode_performative
from devstack.servicebus.codec.errors import FRAMING_ERROR, AmqpError

AMQP_FRAME = 0
SASL_FRAME = 1
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
MAX_FRAME_SIZE = 65_536
"""What we announce; the size that Azure Service Bus announces too."""

EMPTY_FRAME = struct.pack(">IBBH", 8, 2, AMQP_FRAME, 0)
"""A heartbeat."""

_HEADER = struct.Struct(">IBBH")


class Frame(NamedTuple):
    kind: int
    channel: int
    body: bytes


def take_frame(buffer: bytearray, position: int) -> tuple[Frame, int] | None:
    """The frame at ``position`` and where the next one starts; None while it is incomplete.

    Raises :class:`AmqpError` with ``amqp:connection:framing-error`` for a header that no frame can have.
    """
    available = len(buffer) - position
    if available < 8:
        return None
    size, offset, kind, channel = _HEADER.unpack_from(buffer, position)
    if not 8 <= size <= MAX_FRAME_SIZE:
        raise AmqpError(FRAMING_ERROR, f"a frame has 8 to {MAX_FRAME_SIZE} bytes, not {size}")
    if not 2 <= offset <= size // 4 or kind not in (AMQP_FRAME, SASL_FRAME):
        raise AmqpError(FRAMING_ERROR, "the frame header is malformed")
    if available < size:
        return None
    end = position + size
    return Frame(kind, channel, bytes(buffer[position + offset * 4 : end])), end


def frame(channel: int, performative: Any, kind: int = AMQP_FRAME) -> bytes:
    body = encode_performative(performative)
    return _HEADER.pack(len(body) + 8, 2, kind, channel) + body


def transfer_frames(  # noqa: PLR0913 - the fields of a transfer
    channel: int,
    handle: int,
    delivery_id: int,
    tag: bytes,
    payload: bytes,
    *,
    settled: bool,
    max_frame_size: int,
) -> list[bytes]:
    """One delivery as the frames it takes, the header written by hand: this is the hot path of receiving."""
    head = [e.uint(handle), e.uint(delivery_id), e.binary(tag), b"\x43", e.boolean(settled)]
    last = e.described(0x14, e.encode_list(head))
    size = 8 + len(last) + len(payload)
    if size <= max_frame_size:
        return [_HEADER.pack(size, 2, AMQP_FRAME, channel) + last + payload]
    more = e.described(0x14, e.encode_list([*head, b"\x41"]))
    room = max_frame_size - 8 - len(more)
    frames = []
    for start in range(0, len(payload), room):
        piece = payload[start : start + room]
        performative = more if start + room < len(payload) else last
        frames.append(
            _HEADER.pack(8 + len(performative) + len(piece), 2, AMQP_FRAME, channel) + performative + piece
        )
    return frames

"""What a receiver sees of a message: the stored bytes, with a header and annotations that only the broker may set.

Sources of the annotations: the AMQP protocol guide of Azure Service Bus and what the Azure SDKs read.
"""

import struct
import uuid

from devstack.servicebus.broker.message import Message, State
from devstack.servicebus.codec import encode as e
from devstack.servicebus.codec.message import ANNOTATIONS, DELIVERY_ANNOTATIONS, HEADER, raw_map

_ENQUEUED_TIME = e.symbol("x-opt-enqueued-time")
_SEQUENCE_NUMBER = e.symbol("x-opt-sequence-number")
_ENQUEUE_SEQUENCE_NUMBER = e.symbol("x-opt-enqueue-sequence-number")
_LOCKED_UNTIL = e.symbol("x-opt-locked-until")
_STATE = e.symbol("x-opt-message-state")
_LOCK_TOKEN = e.symbol("x-opt-lock-token")
_DEAD_LETTER_SOURCE = e.symbol("x-opt-deadletter-source")
_OURS = frozenset(
    {
        "x-opt-enqueued-time",
        "x-opt-sequence-number",
        "x-opt-enqueue-sequence-number",
        "x-opt-locked-until",
        "x-opt-message-state",
        "x-opt-deadletter-source",
        "x-opt-lock-token",
    }
)
TICKS_AT_EPOCH = 621_355_968_000_000_000
"""1970-01-01 in the unit of .NET, 100 ns since the year 1."""


def ticks(time_ms: int) -> int:
    """Milliseconds since the epoch in .NET's unit."""
    return TICKS_AT_EPOCH + time_ms * 10_000


def lock_token(tag: bytes) -> uuid.UUID:
    """A delivery tag is a lock token in .NET's byte order."""
    return uuid.UUID(bytes_le=tag)


def _delivery_annotations(message: Message, token: bytes) -> bytes:
    """The sender's own, and the lock token, which the SDKs read here when there is no delivery tag."""
    raw = message.parsed.delivery_annotations
    given, _ = raw_map(raw, 3) if raw else ({}, 0)
    items = [part for name, value in given.items() for part in (e.symbol(name), value)]
    return e.described(
        DELIVERY_ANNOTATIONS, e.encode_map([*items, _LOCK_TOKEN, b"\x98" + lock_token(token).bytes])
    )


def payload(message: Message, *, locked: bool) -> bytes:
    """The message as it goes to a receiver; as in Azure, the usual state and number go without saying."""
    parsed = message.parsed
    header = [
        b"\x41" if parsed.durable else b"\x40",
        b"\x40" if parsed.priority is None else e.ubyte(parsed.priority),
        b"\x40" if parsed.ttl_ms is None else e.uint(parsed.ttl_ms),
        b"\x40",
        e.uint(message.delivery_count),
    ]
    annotations = [
        _ENQUEUED_TIME,
        e.timestamp(message.enqueued_ms),
        _SEQUENCE_NUMBER,
        e.long(message.sequence),
    ]
    if message.enqueued_sequence != message.sequence:
        annotations += [_ENQUEUE_SEQUENCE_NUMBER, e.long(message.enqueued_sequence)]
    if message.state is not State.ACTIVE:
        annotations += [_STATE, struct.pack(">Bb", 0x54, message.state)]
    if locked:
        annotations += [_LOCKED_UNTIL, e.timestamp(message.locked_until_ms)]
    if message.dead_letter_source is not None:
        annotations += [_DEAD_LETTER_SOURCE, e.string(message.dead_letter_source)]
    for name, value in parsed.annotations.items():
        if name not in _OURS:
            annotations += [e.symbol(name), value]
    return (
        e.described(HEADER, e.encode_list(header))
        + (
            parsed.delivery_annotations
            if message.token is None
            else _delivery_annotations(message, message.token)
        )
        + e.described(ANNOTATIONS, e.encode_map(annotations))
        + parsed.raw[parsed.bare_start :]
    )

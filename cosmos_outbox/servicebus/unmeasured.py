"""A batch whose messages are known to fit encodes each of them once.

The SDK encodes a message twice when it is put into a batch, the first time only to learn its size, and encoding is most
of what the relay does. Sizes are counted before (:func:`cosmos_outbox.servicebus.message.size_at_most`). What is used
here of the SDK's inside can only fail one way: in a version that has it no more, messages are encoded twice again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from azure.core.settings import settings
from azure.servicebus import ServiceBusMessageBatch

_TRANSPORT = "_amqp_transport"


class _Unmeasuring:
    """The SDK's codec, for which every message has no size."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def get_message_encoded_size(self, _message: Any) -> int:
        return 0


@contextmanager
def unmeasured(batch: ServiceBusMessageBatch) -> Iterator[None]:
    """Let messages be added without being measured; not while the SDK traces, since then it makes them larger."""
    transport = getattr(batch, _TRANSPORT, None)
    if transport is None or settings.tracing_implementation() is not None:
        yield
        return
    setattr(batch, _TRANSPORT, _Unmeasuring(transport))
    try:
        yield
    finally:
        setattr(batch, _TRANSPORT, transport)

"""What is logged and traced while a message is handled belongs to the request that caused it."""

from collections.abc import Iterator
from contextlib import contextmanager

from cosmos_outbox.inbox.set_aside import Delivery
from cosmos_outbox.telemetry.correlation import correlated
from cosmos_outbox.telemetry.messaging import SERVICEBUS, processing
from cosmos_outbox.telemetry.tracing import parent


@contextmanager
def handling(
    topic: str, delivery: Delivery, correlation_id: str | None, system: str = SERVICEBUS
) -> Iterator[None]:
    """Log lines and spans that are made meanwhile belong to the request, and the trace, that caused the message."""
    traceparent, tracestate = (
        given if isinstance(given := delivery.properties.get(name), str) else None
        for name in ("traceparent", "tracestate")
    )
    within = parent(traceparent, tracestate)
    with (
        correlated(correlation_id),
        processing(topic, delivery.subscription, delivery.message_id, correlation_id, within, system),
    ):
        yield

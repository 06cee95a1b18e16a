"""Measures and traces sent and received messages by OpenTelemetry's messaging conventions.

https://opentelemetry.io/docs/specs/semconv/messaging/. A message belongs to the span in which its event was created.
A send has many messages, so it is linked to their spans; the handling of a message continues the message's own trace.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice

from opentelemetry.metrics import get_meter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode, get_current_span

from cosmos_outbox.inbox.message import Delivery
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.telemetry.correlation import correlated
from cosmos_outbox.telemetry.tracing import CORRELATION_ID, parent, span

MOST_LINKS = 100
"""The most messages that a send is linked to; the SDK drops links of a span beyond 128."""

SERVICEBUS, STORAGEQUEUE = "servicebus", "storagequeue"
"""Values of ``messaging.system``."""

CANCELLED = "cancelled"
"""The ``error.type`` of a send that was cancelled by its deadline."""

_DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The bucket bounds that the conventions advise, in seconds."""
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)

_meter = get_meter("outbox.messaging")
_sent = _meter.create_counter("messaging.client.sent.messages", "{message}", "Messages handed to the topic")
_duration = _meter.create_histogram(
    "messaging.client.operation.duration",
    "s",
    "Duration of a send",
    explicit_bucket_boundaries_advisory=_DURATIONS,
)
_batch = _meter.create_histogram(
    "outbox.batch.events",
    "{event}",
    "Events in a send that was accepted",
    explicit_bucket_boundaries_advisory=_SIZES,
)


class Attempt:
    """One send; the sender reports its outcome."""

    def __init__(self) -> None:
        self.error_type: str | None = CANCELLED

    def accepted(self) -> None:
        """Note that the topic has all messages."""
        self.error_type = None

    def failed(self, error_type: str) -> None:
        """Note that the topic may not have them; ``error_type`` has few values."""
        self.error_type = error_type


@contextmanager
def sending(
    topic: str, messages: int, traceparents: Iterable[str | None], system: str = SERVICEBUS
) -> Iterator[Attempt]:
    """Measure a send. ``traceparents``: those of its messages, used only if the span is recorded."""
    attributes = _to(topic, system)
    attempt = Attempt()
    began = monotonic()
    more: dict[str, str | int] = {
        "messaging.operation.type": "send",
        "messaging.batch.message_count": messages,
    }
    with span(f"send {topic}", SpanKind.CLIENT, attributes | more) as begun:
        if begun.is_recording():
            for context in islice(_contexts(traceparents), MOST_LINKS):
                begun.add_link(context)
        try:
            yield attempt
        finally:
            if attempt.error_type is not None:
                attributes["error.type"] = attempt.error_type
                begun.set_attribute("error.type", attempt.error_type)
                begun.set_status(StatusCode.ERROR)
            _sent.add(messages, attributes)
            _duration.record(monotonic() - began, attributes)
            if attempt.error_type is None:
                _batch.record(messages)


def no_link(topic: str, messages: int, error_type: str) -> None:
    """Count messages that were not sent because no link to the topic could be opened."""
    _sent.add(messages, _to(topic, SERVICEBUS) | {"error.type": error_type})


def _to(topic: str, system: str) -> dict[str, str | int]:
    return {
        "messaging.system": system,
        "messaging.operation.name": "send",
        "messaging.destination.name": topic,
    }


def _contexts(traceparents: Iterable[str | None]) -> Iterator[SpanContext]:
    """Yields each span context once: the events of one transaction share one."""
    for traceparent in dict.fromkeys(traceparents):
        if (found := parent(traceparent)) is not None:
            yield get_current_span(found).get_span_context()


@contextmanager
def handling(
    topic: str, delivery: Delivery, correlation_id: str | None, system: str = SERVICEBUS
) -> Iterator[None]:
    """A span for handling one message: in the trace in which its event was created, linked to the host's call.

    Log lines inside the context have the correlation id of the request that caused the message.
    """
    traceparent, tracestate = (
        given if isinstance(given := delivery.properties.get(name), str) else None
        for name in ("traceparent", "tracestate")
    )
    within, host = parent(traceparent, tracestate), get_current_span().get_span_context()
    attributes = {
        "messaging.system": system,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": topic,
        "messaging.destination.subscription.name": delivery.subscription,
        "messaging.message.id": delivery.message_id,
    } | ({} if correlation_id is None else {CORRELATION_ID: correlation_id})
    with correlated(correlation_id), span(f"process {topic}", SpanKind.CONSUMER, attributes, within) as begun:
        if within is not None and host.is_valid and begun.is_recording():
            begun.add_link(host)
        yield

"""One trace leads from a request over the stored event and its message to the subscriber's write.

The link between the parts is a W3C ``traceparent``, as text: in the request, in the event's document, in the message. A
trace is continued also where this process records nothing, so that the recording parts find each other. What a span
tells of an error is the error's class: its text may hold what it failed on, which is personal data.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from opentelemetry import context as otel
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode, get_current_span, get_tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from outbox.unit_of_work import Origin

Attributes = Mapping[str, str | int]

CORRELATION_ID = "outbox.correlation_id"
"""Not ``messaging.message.conversation_id``: the exporter to Application Insights drops what begins with messaging."""

LONGEST = f"00-{'0' * 32}-{'0' * 16}-00"
"""As long as any ``traceparent``."""

_tracer = get_tracer("outbox")
_w3c = TraceContextTextMapPropagator()


class Invocation(Protocol):
    """What the Functions host tells of a call: ``azure.functions.Context``."""

    @property
    def trace_context(self) -> "HostTrace": ...


class HostTrace(Protocol):
    """The host's own trace of a call."""

    @property
    def trace_parent(self) -> str | None: ...


def parent(traceparent: str | None) -> Context | None:
    """What a span is begun in to continue this trace; None for what is no trace."""
    found = _w3c.extract({"traceparent": traceparent}, Context()) if traceparent else None
    return found or None


def traceparent_of(span: Span) -> str | None:
    """The text by which others continue a span; None when it is in no trace."""
    carrier: dict[str, str] = {}
    _w3c.inject(carrier, set_span_in_context(span, Context()))
    return carrier.get("traceparent")


def nearest(given: str | None) -> str | None:
    """The trace that a call belongs to: the caller's, of which the host may have a nearer span; else the host's own."""
    hosts = traceparent_of(get_current_span())
    if given is None or hosts is None:
        return given or hosts
    return hosts if hosts.split("-")[1] == given.split("-")[1] else given


@contextmanager
def invoked(invocation: Invocation | None) -> Iterator[None]:
    """What begins meanwhile belongs to the host's span of this call, unless the process has a span of its own."""
    found = None
    if invocation is not None and not get_current_span().get_span_context().is_valid:
        found = parent(getattr(invocation.trace_context, "trace_parent", None))
    if found is None:
        yield
        return
    token = otel.attach(found)
    try:
        yield
    finally:
        otel.detach(token)


@contextmanager
def span(name: str, kind: SpanKind, attributes: Attributes, within: Context | None = None) -> Iterator[Span]:
    """A span, in ``within`` or in what is current; it ends with the body, and an error of the body marks it."""
    with _tracer.start_as_current_span(
        name,
        within,
        kind,
        dict(attributes),
        record_exception=False,
        set_status_on_exception=False,
    ) as begun:
        try:
            yield begun
        except BaseException as error:
            begun.set_attribute("error.type", type(error).__qualname__)
            begun.set_status(StatusCode.ERROR)
            raise


@contextmanager
def committing(origin: Origin) -> Iterator[Origin]:
    """The span in which events are created, for their messages to be found under; the origin that they then carry."""
    attributes = {CORRELATION_ID: origin.correlation_id}
    with span("create events", SpanKind.PRODUCER, attributes, parent(origin.traceparent)) as begun:
        if not begun.is_recording():
            yield origin
        else:
            yield Origin(origin.correlation_id, traceparent_of(begun))


@contextmanager
def writing(what: str) -> Iterator[None]:
    """A write of the subscriber."""
    with span(f"write {what}", SpanKind.CLIENT, {"db.system.name": "azure.cosmosdb"}):
        yield

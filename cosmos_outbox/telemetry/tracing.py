"""Continues one trace from a request over the stored event and its message to the subscriber's write.

The parts are linked by a W3C trace context, ``traceparent`` and ``tracestate``, as text: in the request, in the event's
document, in the message. A trace is continued even if this process records nothing, so that the recording parts are
linked. A span has only the class of an error: its text may quote the data that it failed on, which is personal.
"""

import contextvars
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from opentelemetry import context as otel
from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN,
    ProxyTracerProvider,
    Span,
    SpanKind,
    StatusCode,
    get_current_span,
    get_tracer,
    get_tracer_provider,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate import Origin
from cosmos_outbox.telemetry import correlation

Attributes = Mapping[str, str | int]

CORRELATION_ID = "outbox.correlation_id"
"""Not ``messaging.message.conversation_id``: the Application Insights exporter drops ``messaging.`` attributes."""

LONGEST = f"00-{'0' * 32}-{'0' * 16}-00"
"""A ``traceparent`` of the greatest length."""

LONGEST_STATE = 512
"""The length that must be passed on: https://www.w3.org/TR/trace-context/#tracestate-limits"""

_MEMBERS = 32
_MEMBER = re.compile(
    r"(?P<key>[a-z][_0-9a-z*/-]{0,255}|[a-z0-9][_0-9a-z*/-]{0,240}@[a-z][_0-9a-z*/-]{0,13})="
    r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)

_tracer = get_tracer("outbox")
_w3c = TraceContextTextMapPropagator()


@dataclass(frozen=True)
class Trace:
    """The trace context as text, by which another process continues a trace."""

    parent: str
    """The ``traceparent``."""
    state: str | None = None
    """The ``tracestate``: data that each tracing vendor adds for itself."""


def valid_state(given: object) -> str | None:
    """Returns a ``tracestate`` as it is passed on; None if it is invalid or longer than ``LONGEST_STATE``."""
    text = given if isinstance(given, str) else ""
    members = [member for each in text.split(",") if (member := each.strip(" \t"))]
    keys = {match["key"] for member in members if (match := _MEMBER.fullmatch(member))}
    state = ",".join(members)
    return state if 0 < len(keys) == len(members) <= _MEMBERS and len(state) <= LONGEST_STATE else None


def parent(traceparent: str | None, tracestate: str | None = None) -> Context | None:
    """Returns the context in which a span continues this trace; None if it is invalid."""
    if not traceparent:
        return None
    carrier = {"traceparent": traceparent}
    if state := valid_state(tracestate):  # the library logs a line for each that is not valid
        carrier["tracestate"] = state
    return _w3c.extract(carrier, Context()) or None


def trace_of(span: Span) -> Trace | None:
    """Returns the trace context of a span as text; None if it is in no trace."""
    carrier: dict[str, str] = {}
    _w3c.inject(carrier, set_span_in_context(span, Context()))
    return Trace(carrier["traceparent"], carrier.get("tracestate")) if carrier else None


def nearest(given: Trace | None) -> Trace | None:
    """Returns a call's trace: the caller's, with the host's span if that is in the same trace; else the host's own."""
    hosts = trace_of(get_current_span())
    if given is None or hosts is None:
        return given or hosts
    if hosts.parent.split("-")[1] != given.parent.split("-")[1]:
        return given
    return Trace(hosts.parent, hosts.state or given.state)


@contextmanager
def invoked(invocation: object | None) -> Iterator[None]:
    """Spans inside the context belong to the host's span of this call, unless the process has a current span.

    ``invocation``: the Functions host's description of the call, an ``azure.functions.Context``.
    """
    found = None
    if invocation is not None and not get_current_span().get_span_context().is_valid:
        hosts = getattr(invocation, "trace_context", None)
        found = parent(getattr(hosts, "trace_parent", None), getattr(hosts, "trace_state", None))
    if found is None:
        yield
        return
    token = otel.attach(found)
    try:
        yield
    finally:
        otel.detach(token)


def of_no_request() -> contextvars.Context:
    """Returns a copy of this context without its request, for a task that starts here and belongs to no request."""
    found = contextvars.copy_context()
    found.run(correlation.end)
    found.run(otel.attach, Context())
    return found


@contextmanager
def span(name: str, kind: SpanKind, attributes: Attributes, within: Context | None = None) -> Iterator[Span]:
    """A span, in ``within`` or the current context; it ends with the body, and an error of the body is recorded.

    Where nothing records spans, none is made, and the body runs in ``within``.
    """
    if isinstance(get_tracer_provider(), ProxyTracerProvider):
        token = None if within is None else otel.attach(within)
        try:
            yield INVALID_SPAN
        finally:
            if token is not None:
                otel.detach(token)
        return
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
    """A span for creating events, under which their messages appear; yields the origin that the events carry."""
    attributes = {CORRELATION_ID: origin.correlation_id}
    within = parent(origin.traceparent, origin.tracestate)
    with span("create events", SpanKind.PRODUCER, attributes, within) as begun:
        trace = trace_of(begun) if begun.is_recording() else None
        yield origin if trace is None else replace(origin, traceparent=trace.parent, tracestate=trace.state)


@contextmanager
def writing(what: str) -> Iterator[None]:
    """A span for a write of the subscriber."""
    with span(f"write {what}", SpanKind.CLIENT, {"db.system.name": "azure.cosmosdb"}):
        yield

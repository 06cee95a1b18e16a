"""A collector: takes metrics and spans over OTLP, as protobuf over HTTP, and keeps what came."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue

from tests.support.serving import serving


@dataclass(frozen=True)
class Span:
    """What a process exported of a span."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    links: tuple[str, ...]
    """The ids of the spans that it is linked to."""
    attributes: dict[str, Any] = field(repr=False)


@dataclass
class Collector:
    """What came so far."""

    address: str = ""
    bodies: list[bytes] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    points: list[tuple[str, str, dict[str, Any], float]] = field(default_factory=list)
    """Service, metric, attributes, and the value; of a histogram the number of measurements."""
    metrics: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Kind and unit by name."""

    def take_spans(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = str(_attributes(resource.resource.attributes)["service.name"])
            self.spans += [
                Span(
                    service,
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    tuple(link.span_id.hex() for link in span.links),
                    _attributes(span.attributes),
                )
                for scope in resource.scope_spans
                for span in scope.spans
            ]

    def take_metrics(self, body: bytes) -> None:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            service = str(_attributes(resource.resource.attributes)["service.name"])
            for metric in (one for scope in resource.scope_metrics for one in scope.metrics):
                kind = str(metric.WhichOneof("data"))
                self.metrics[metric.name] = kind, metric.unit
                for point in getattr(metric, kind).data_points:
                    value = point.count if kind == "histogram" else point.as_double or point.as_int
                    self.points.append((service, metric.name, _attributes(point.attributes), float(value)))

    def values(self, name: str) -> list[tuple[dict[str, Any], float]]:
        """Attributes and values of a metric, as they came."""
        return [(attributes, value) for _, metric, attributes, value in self.points if metric == name]


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector on a port of its own, until the block ends."""
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            found.bodies.append(body)
            take = {"/v1/traces": found.take_spans, "/v1/metrics": found.take_metrics}[self.path]
            take(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            pass

    with serving(Handler) as found.address:
        yield found


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair) for pair in pairs}


def _value(pair: KeyValue) -> Any:
    return getattr(pair.value, str(pair.value.WhichOneof("value")))

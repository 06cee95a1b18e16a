"""What the code under test records, kept in memory. The API takes one SDK a process: it records while a test asks."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider, ObservableGauge
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    InMemoryMetricReader,
    NumberDataPoint,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, Sampler, SamplingResult

DELTA = AggregationTemporality.DELTA
Point = tuple[dict[str, Any], float]
"""Attributes and value; of a histogram the number of measurements."""


class _Switch(Sampler):
    """Records nothing while no test asks: other tests of the process must not see spans of their own."""

    on = False

    def should_sample(self, *args: Any, **kwargs: Any) -> SamplingResult:
        return (ALWAYS_ON if self.on else ALWAYS_OFF).should_sample(*args, **kwargs)

    def get_description(self) -> str:
        return "on while a test asks"


@dataclass
class Recorded:
    """What was recorded since the test asked."""

    reader: InMemoryMetricReader
    exporter: InMemorySpanExporter
    switch: _Switch
    _seen: dict[str, list[NumberDataPoint | HistogramDataPoint]] = field(default_factory=dict)

    def spans(self) -> list[ReadableSpan]:
        """Those that have ended, in the order of their ends."""
        return list(self.exporter.get_finished_spans())

    def collect(self) -> None:
        """Read what was recorded since the last time; a test may read often."""
        data = self.reader.get_metrics_data()
        for resource in data.resource_metrics if data else []:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    self._seen.setdefault(metric.name, []).extend(metric.data.data_points)  # type: ignore[arg-type]  # no exponential ones here

    def points(self, name: str) -> list[Point]:
        """The sums of a counter, or the numbers of a histogram's measurements, by attributes."""
        self.collect()
        sums: dict[tuple[tuple[str, Any], ...], float] = {}
        for point in self._seen.get(name, []):
            key = tuple(sorted((point.attributes or {}).items()))
            value = point.count if isinstance(point, HistogramDataPoint) else point.value
            sums[key] = sums.get(key, 0) + value
        return [(dict(key), value) for key, value in sorted(sums.items())]

    def measured(self, name: str) -> float:
        """The sum of a histogram's measurements."""
        self.collect()
        return sum(point.sum for point in self._seen.get(name, []) if isinstance(point, HistogramDataPoint))

    def gauge(self, name: str) -> float | None:
        """What a gauge reports now; None: nothing."""
        self._seen.pop(name, None)
        self.collect()
        points = (each for each in self._seen.get(name, []) if isinstance(each, NumberDataPoint))
        values = [each.value for each in points]
        return values[-1] if values else None

    def names(self) -> set[str]:
        """The metrics that were reported."""
        self.collect()
        return set(self._seen)


@cache
def _sdk() -> Recorded:
    reader = InMemoryMetricReader({Counter: DELTA, Histogram: DELTA, ObservableGauge: DELTA})
    exporter, switch = InMemorySpanExporter(), _Switch()
    metrics.set_meter_provider(MeterProvider([reader], shutdown_on_exit=False))
    tracers = TracerProvider(sampler=switch, shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(tracers)
    return Recorded(reader, exporter, switch)


@contextmanager
def recording() -> Iterator[Recorded]:
    """Record from here on; nothing of before is in it."""
    sdk = _sdk()
    sdk.collect()
    sdk.exporter.clear()
    sdk.switch.on = True
    try:
        yield Recorded(sdk.reader, sdk.exporter, sdk.switch)
    finally:
        sdk.switch.on = False

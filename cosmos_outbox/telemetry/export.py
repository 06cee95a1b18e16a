"""Sets up one set of exporters per process, if a setting asks for them; exports do not wait for each other.

Without a setting nothing of the SDK is imported. If the host's worker, or other code, has set up the SDK before, its
exporters are used and none are added: nothing is sent twice. Metrics and traces are exported here; the host exports
the log lines (decision 20 of ``docs/internals/decisions``). Queues are bounded, exports run in threads of their own,
and an unavailable endpoint costs one log line a minute.
"""

import asyncio
import contextlib
import logging
import os
import threading
from typing import TYPE_CHECKING, Any

from opentelemetry import metrics, trace

from cosmos_outbox.kernel.clock import machine
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.kernel.loops import LogThrottle
from cosmos_outbox.settings.environment import TelemetrySettings
from cosmos_outbox.settings.errors import Misconfigured, needed

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from prometheus_client import CollectorRegistry

FLUSH_SECONDS = 5.0
"""The longest that the end of a process waits for the last export."""

LIBRARIES = ("opentelemetry", "azure.monitor.opentelemetry")
"""The loggers of the exporters."""

OF_ITS_OWN = "STATSBEAT_DISABLED_ALL", "CONTROLPLANE_DISABLED", "SDKSTATS_DISABLED"
"""Settings that turn off the exporter's reports about itself, which go to Microsoft; private networks block them."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Exporting:
    """The SDK of this process."""

    meters: "MeterProvider"
    tracers: "TracerProvider"
    registry: "CollectorRegistry | None" = None
    """The metrics for Prometheus; None: no setting asks for them."""

    async def flush(self) -> None:
        """Send the rest, for at most ``FLUSH_SECONDS``. Raises nothing: telemetry is not worth a failure."""
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def both() -> None:
            try:
                self.meters.force_flush(int(FLUSH_SECONDS * 1000))
                self.tracers.force_flush(int(FLUSH_SECONDS * 1000))
            except Exception as error:  # noqa: BLE001 - any error of an exporter
                _log.warning("the last telemetry is not sent: %s", type(error).__name__)
            finally:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(done.set)

        # A thread that the end of the process does not wait for: an exporter may be in a long attempt.
        threading.Thread(target=both, name="telemetry-flush", daemon=True).start()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                await done.wait()


_exporting: Exporting | None = None


def scraped() -> tuple[bytes, str] | None:
    """Returns this process's metrics as Prometheus reads them, and the content type; None: no setting asks for them."""
    if _exporting is None or _exporting.registry is None:
        return None
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest  # noqa: PLC0415 - optional dependency

    return generate_latest(_exporting.registry), CONTENT_TYPE_LATEST


def export(settings: TelemetrySettings, service: str) -> Exporting | None:
    """Set up the SDK at the first call of the process. None: no setting asks for it, or other code has set it up.

    Raises Misconfigured: the connection string is invalid, or the extra telemetry is not installed.
    """
    global _exporting  # noqa: PLW0603 - the API's providers are the process's as well
    if _exporting is None and settings.wanted:
        _exporting = _set_up(settings, service)
    return _exporting


def _set_up(settings: TelemetrySettings, service: str) -> Exporting | None:
    if settings.otlp or settings.application_insights:
        needed("telemetry")
    if settings.prometheus:
        needed("prometheus")
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415 - slow to import, and mostly not needed
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    if isinstance(trace.get_tracer_provider(), TracerProvider) or isinstance(
        metrics.get_meter_provider(), MeterProvider
    ):
        _log.info("OpenTelemetry is set up in this process already: that exports the telemetry")
        return None
    for library in LIBRARIES:  # an unavailable endpoint logs a line for each attempt
        logging.getLogger(library).addHandler(_OncePerMinute(logging.WARNING))
        logging.getLogger(library).propagate = False
    try:
        resource = Resource.create(_described(service))
        exporters = _exporters(settings)
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        for _, span in exporters:
            tracers.add_span_processor(BatchSpanProcessor(span))
        readers: list[MetricReader] = [PeriodicExportingMetricReader(metric) for metric, _ in exporters]
        registry = _scraped_by(readers) if settings.prometheus else None
        meters = MeterProvider(
            readers,
            resource,
            shutdown_on_exit=False,
        )
    except Misconfigured:
        raise
    except Exception as error:  # noqa: BLE001 - a package that does not fit the host's, a setting OTEL_...: the app goes on
        _log.error("no metrics and traces are exported, since the exporter cannot be made: %s", error)
        return None
    metrics.set_meter_provider(meters)
    if exporters:  # Prometheus reads no traces, and spans without an exporter would only cost time
        trace.set_tracer_provider(tracers)
    return Exporting(meters, tracers, registry)


def _scraped_by(readers: "list[MetricReader]") -> "CollectorRegistry":
    from opentelemetry.exporter.prometheus import PrometheusMetricReader  # noqa: PLC0415
    from prometheus_client import CollectorRegistry  # noqa: PLC0415

    registry = CollectorRegistry()  # not the default one, which has the metrics of other libraries
    readers.append(PrometheusMetricReader(registry=registry))
    return registry


def _exporters(settings: TelemetrySettings) -> "list[tuple[MetricExporter, SpanExporter]]":
    made: list[tuple[MetricExporter, SpanExporter]] = []
    if settings.application_insights:
        for name in OF_ITS_OWN:
            os.environ.setdefault(f"APPLICATIONINSIGHTS_{name}", "true")
        from azure.core.pipeline.policies import SansIOHTTPPolicy  # noqa: PLC0415
        from azure.monitor.opentelemetry.exporter import (  # noqa: PLC0415
            AzureMonitorMetricExporter,
            AzureMonitorTraceExporter,
        )

        # APPLICATIONINSIGHTS_AUTHENTICATION_STRING is read by the exporter: it names the managed identity.
        how: dict[str, Any] = {
            "connection_string": settings.application_insights,
            "disable_offline_storage": True,
            "http_logging_policy": SansIOHTTPPolicy(),  # requests that send telemetry are not logged
        }
        try:
            made.append((AzureMonitorMetricExporter(**how), AzureMonitorTraceExporter(**how)))
        except ValueError:
            raise Misconfigured(
                "APPLICATIONINSIGHTS_CONNECTION_STRING is no connection string of Application Insights: copy the one "
                "of the resource, or remove the setting"
            ) from None
    if settings.otlp:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        # They read their address, and more, from OTEL_EXPORTER_OTLP_...
        made.append((OTLPMetricExporter(), OTLPSpanExporter()))
    return made


def _described(service: str) -> dict[str, str]:
    """Returns the attributes that identify the process in telemetry. OTEL_SERVICE_NAME takes precedence."""
    instance = {"service.instance.id": f"{machine()}-{os.getpid()}"}
    if os.environ.get("OTEL_SERVICE_NAME"):
        return instance
    return instance | {"service.name": os.environ.get("WEBSITE_SITE_NAME") or service}


class _OncePerMinute(logging.Handler):
    """Logs at most one of the exporters' lines a minute."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._throttle = LogThrottle()

    def emit(self, record: logging.LogRecord) -> None:
        if self._throttle.due():
            _log.warning("telemetry: %s", record.getMessage().partition("\n")[0])

"""How a process exports, each time in a process of its own, since the SDK is set up once: real sockets, no Azure."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from tests.support.command import Ended, run_module
from tests.support.otlp import collector
from tests.support.serving import serving

CONNECTED = {
    "COSMOS": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=AA==;",
    "SERVICEBUS": "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=AA==;UseDevelopmentEmulator=true;",
}
WIRED = """
import asyncio, logging, os, sys, threading
logging.basicConfig(level=logging.INFO)
import function_app
from cosmos_outbox.telemetry import tracing
from cosmos_outbox.telemetry.messaging import sending
from cosmos_outbox.outbox import telemetry
from cosmos_outbox.outbox.aggregate import Origin
from infra.bootstrap import service

async def main():
    application = service.wire(os.environ)
    async with application.outbox.resources:
        work()

def work():
    telemetry.stored([("contact", "ContactCreatedEvent")] * 2)
    with tracing.committing(Origin("order-4711", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")) as origin:
        pass
    with sending("events", 2, [origin.traceparent]) as attempt:
        attempt.accepted()
"""


def run(program: str, **settings: str) -> Ended:
    environment = {**os.environ, **CONNECTED, **settings}
    return _good(run_module("tests.support.program", f"{WIRED}\n{program}", environment=environment))


def _good(ended: Ended) -> Ended:
    assert ended.code == 0, ended.err
    return ended


@dataclass
class Ingestion:
    """What Application Insights was sent."""

    connection_string: str = ""
    items: list[dict[str, Any]] = field(default_factory=list)

    def data(self, kind: str) -> list[dict[str, Any]]:
        return [
            item["data"]["baseData"] | {"operation": item["tags"].get("ai.operation.id")}
            for item in self.items
            if item["data"]["baseType"] == kind
        ]


@contextmanager
def ingestion() -> Iterator[Ingestion]:
    found = Ingestion()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            items = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found.items += items
            answer = json.dumps(
                {"itemsReceived": len(items), "itemsAccepted": len(items), "errors": []}
            ).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            pass

    with serving(Handler) as address:
        key = "InstrumentationKey=00000000-0000-0000-0000-000000000001"
        found.connection_string = f"{key};IngestionEndpoint={address}/"
        yield found


def test_application_insights_gets_metrics_and_spans_with_correlation_ids() -> None:
    with ingestion() as found:
        ended = run("asyncio.run(main())", APPLICATIONINSIGHTS_CONNECTION_STRING=found.connection_string)
    metrics = {
        metric["name"]: (metric["value"], data["properties"])
        for data in found.data("MetricData")
        for metric in data["metrics"]
    }
    assert metrics["outbox.events.stored"] == (
        2, {"outbox.aggregate.type": "contact", "outbox.event.type": "ContactCreatedEvent"}
    )  # fmt: skip
    assert metrics["messaging.client.sent.messages"][0] == 2
    assert all(name.startswith(("outbox.", "messaging.", "_OTELRESOURCE_")) for name in metrics), metrics
    create, send = found.data("RemoteDependencyData")
    assert (create["name"], create["operation"]) == ("create events", "0af7651916cd43dd8448eb211c80319c")
    assert create["properties"]["outbox.correlation_id"] == "order-4711"
    assert (send["name"], send["success"]) == ("send events", True)
    [link] = json.loads(send["properties"]["_MS.links"])
    assert link == {"operation_Id": create["operation"], "id": create["id"]}
    assert {item["tags"]["ai.cloud.role"] for item in found.items} == {"contacts"}
    assert "http_logging_policy" not in ended.err, "each export would be some log lines"


def test_an_unreachable_endpoint_is_logged_once_a_minute_and_delays_no_end() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        away = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        ended = run(
            "export = 'telemetry'\n"
            "async def long():\n"
            "    application = service.wire(os.environ)\n"
            "    async with application.outbox.resources:\n"
            "        for _ in range(30):\n"
            "            work(); await asyncio.sleep(0.1)\n"
            "asyncio.run(long())",
            OTEL_EXPORTER_OTLP_ENDPOINT=away,
            APPLICATIONINSIGHTS_CONNECTION_STRING=f"InstrumentationKey={'0' * 8}-0000-0000-0000-000000000001;"
            f"IngestionEndpoint={away}/",
            OTEL_METRIC_EXPORT_INTERVAL="200",
            OTEL_BSP_SCHEDULE_DELAY="200",
            OTEL_EXPORTER_OTLP_TIMEOUT="1",
        )
    logged = [line for line in ended.err.splitlines() if line.strip()]
    assert 1 <= len(logged) <= 2, f"one for each library: {logged}"
    assert all(line.startswith("WARNING:cosmos_outbox.telemetry.export:telemetry: ") for line in logged)


@pytest.mark.parametrize("who", ["metrics", pytest.param("trace", marks=pytest.mark.long)])
def test_what_has_set_up_the_sdk_before_exports_alone(who: str) -> None:
    """As the Functions worker does with PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY."""
    made = {
        "metrics": "from opentelemetry.sdk.metrics import MeterProvider\n"
        "from opentelemetry import metrics\nmetrics.set_meter_provider(MeterProvider())",
        "trace": "from opentelemetry.sdk.trace import TracerProvider\n"
        "from opentelemetry import trace\ntrace.set_tracer_provider(TracerProvider())",
    }
    with collector() as found:
        ended = run(f"{made[who]}\nasyncio.run(main())", OTEL_EXPORTER_OTLP_ENDPOINT=found.address)
    assert found.bodies == []
    assert "OpenTelemetry is set up in this process already" in ended.err


@pytest.mark.long
def test_the_sdk_is_set_up_once_a_process_and_survives_the_end_of_a_loop() -> None:
    with collector() as found:
        run("asyncio.run(main()); asyncio.run(main())", OTEL_EXPORTER_OTLP_ENDPOINT=found.address)
    assert [span.name for span in found.spans] == ["create events", "send events"] * 2
    assert max(value for _, value in found.values("outbox.events.stored")) == 4


@pytest.mark.long
def test_a_bad_connection_string_is_refused_by_the_name_of_its_setting() -> None:
    program = "try:\n    service.wire(os.environ)\nexcept Exception as error:\n    print(type(error).__name__, error)"
    ended = run(program, APPLICATIONINSIGHTS_CONNECTION_STRING="InstrumentationKey=secret-no-uuid")
    assert ended.out.startswith("Misconfigured APPLICATIONINSIGHTS_CONNECTION_STRING is no connection string")
    assert "secret" not in ended.out + ended.err


@pytest.mark.long
def test_the_service_works_despite_a_useless_opentelemetry_setting() -> None:
    ended = run(
        "asyncio.run(main()); print('worked')",
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1",
        OTEL_BSP_MAX_QUEUE_SIZE="0",
    )
    assert ended.out.strip() == "worked"
    assert "APPLICATIONINSIGHTS_CONNECTION_STRING" not in ended.err


SCRAPED = """
from collections import Counter
from cosmos_outbox.operations.relay_status import LeaseStatus, RelayStatus, report
from cosmos_outbox.worker import probes
from cosmos_outbox.worker.relay import health_of
from tests.support.use_cases import wire

async def asked(port, path):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\\r\\n\\r\\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer

class PortOfProbes(logging.Handler):
    def emit(self, record):
        self.port = record.args[1]

async def scraped():
    application = service.wire(os.environ)
    async with application.outbox.resources:
        work()
        report(RelayStatus([LeaseStatus("0", "o", 3, 61, 0.1)], [], Counter()))
        health = health_of(application, asyncio.Event())
        seen = PortOfProbes()
        logging.getLogger("cosmos_outbox.worker.probes").addHandler(seen)
        async with probes.answered(probes.Address("127.0.0.1", 0), health):
            print(await asked(seen.port, "/metrics"))

asyncio.run(scraped())
"""


def test_a_worker_answers_prometheus_where_it_answers_probes() -> None:
    answer = run(SCRAPED, OTEL_METRICS_EXPORTER="prometheus").out
    head, _, body = answer.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK")
    assert "Content-Type: text/plain; version=" in head
    values = {
        line.partition("{")[0]: float(line.rpartition(" ")[2])
        for line in body.splitlines()
        if line and not line.startswith("#")
    }
    assert values["outbox_relay_oldest_waiting_seconds"] == 61
    assert values["outbox_events_stored_total"] == 2
    assert "# TYPE outbox_events_stored_total counter" in body
    assert 'outbox_event_type="ContactCreatedEvent"' in body


@pytest.mark.long
def test_a_worker_without_prometheus_metrics_says_how_to_enable_them() -> None:
    answer = run(SCRAPED).out
    assert answer.startswith("HTTP/1.1 404 ")
    assert "OTEL_METRICS_EXPORTER=prometheus" in answer

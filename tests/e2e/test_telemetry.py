"""Metrics and traces of the whole path reach a collector over a real socket, and nothing personal is in their bytes."""

from collections.abc import Iterator

import aiohttp
import pytest

from devstack.testing import eventually
from tests.e2e.conftest import Stack, stack
from tests.support.otlp import Collector, Span, collector
from tests.support.paths import ROOT

pytestmark = pytest.mark.own_stack

TRACE = "0af7651916cd43dd8448eb211c80319c"
HEADERS = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "x-correlation-id": "order-4711"}
PERSON = {
    "name": {"firstName": "Xanthippe", "lastName": "Quux"},
    "email": "xq@corge.org",
    "company": {"companyName": "Grault", "street": "Garply Alley"},
    "description": "met in Fredville",
}


@pytest.fixture(scope="module")
def received() -> Iterator[Collector]:
    with collector() as found:
        yield found


@pytest.fixture(scope="module")
def traced(received: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The app in the Functions host, whose worker processes export."""
    folder = tmp_path_factory.mktemp("stack")
    quickly = {"OTEL_METRIC_EXPORT_INTERVAL": "500", "OTEL_BSP_SCHEDULE_DELAY": "200"}
    with stack(folder, app=ROOT, OTEL_EXPORTER_OTLP_ENDPOINT=received.address, **quickly) as started:
        yield started


def of_trace(received: Collector, name: str) -> list[Span]:
    return [span for span in received.spans if span.trace == TRACE and span.name.startswith(name)]


@pytest.mark.long
async def test_one_trace_and_the_metrics_of_a_request_reach_the_collector(
    traced: Stack, received: Collector, http: aiohttp.ClientSession
) -> None:
    async with http.post(f"{traced.url}/contacts", json=PERSON, headers=HEADERS) as answer:
        assert answer.status == 201, await answer.text()
        contact_id = (await answer.json())["id"]
    await eventually(lambda: bool(of_trace(received, "process")), what="the subscriber's span")
    [create], [process] = of_trace(received, "create events"), of_trace(received, "process")
    [write] = of_trace(received, "write entry")
    assert (process.parent, write.parent) == (create.id, process.id)
    assert {create.service, process.service} == {"contacts"}

    def sends() -> list[Span]:
        return [span for span in received.spans if span.name.startswith("send") and create.id in span.links]

    await eventually(lambda: bool(sends()), what="the relay's span")
    assert sends()[0].attributes["messaging.batch.message_count"] == 1

    expected = {
        "outbox.events.stored": ("sum", "{event}"),
        "messaging.client.sent.messages": ("sum", "{message}"),
        "messaging.client.operation.duration": ("histogram", "s"),
        "outbox.batch.events": ("histogram", "{event}"),
        "outbox.commit_to_accepted": ("histogram", "s"),
        "outbox.inbox.events": ("sum", "{event}"),
        "outbox.commit_to_applied": ("histogram", "s"),
        "outbox.relay.since_success": ("gauge", "s"),
    }
    await eventually(lambda: received.metrics.keys() >= expected.keys(), what="the metrics")
    assert {name: received.metrics[name] for name in expected} == expected
    applied = {
        "outbox.outcome": "applied",
        "messaging.destination.subscription.name": "contact-directory",
    }
    await eventually(lambda: (applied, 1.0) in received.values("outbox.inbox.events"), what="one is applied")

    everything = b"".join(received.bodies)
    for secret in (b"Xanthippe", b"Quux", b"corge", b"Grault", b"Garply", b"Fredville"):
        assert secret not in everything
    of_metrics = {str(value) for _, _, attributes, _ in received.points for value in attributes.values()}
    assert contact_id not in of_metrics
    assert "order-4711" not in of_metrics

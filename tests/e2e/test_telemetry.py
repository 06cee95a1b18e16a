"""Metrics and traces of the whole path reach a collector over a real socket, and nothing personal is in their bytes."""

import re
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from devstack.testing import eventually
from tests.e2e.conftest import Stack, stack
from tests.support.command import worker
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


@pytest.mark.long  # the host's worker exports in the first one
async def test_the_workers_export_the_same_and_what_is_left_when_they_end(
    traced: Stack, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    """The intervals are an hour: what comes was sent by the flush at the end."""
    async with http.post(
        f"{traced.url}/contacts", json=PERSON, headers={"x-correlation-id": "order-4712"}
    ) as answer:
        assert answer.status == 201
    with collector() as received:
        settings = {
            "COSMOS": traced.cosmos.connection_string,
            "COSMOS_DATABASE": traced.database,
            "SERVICEBUS": traced.servicebus.connection_string,
            "SERVICEBUS_TOPIC": traced.topic.name,
            "OTEL_EXPORTER_OTLP_ENDPOINT": received.address,
            "OTEL_METRIC_EXPORT_INTERVAL": "3600000",
            "OTEL_BSP_SCHEDULE_DELAY": "3600000",
        }
        # Each reads from the beginning, beside the app: a lease prefix and a subscription of its own.
        relay = worker("relay", settings | {"RELAY_LEASE_PREFIX": "own-"}, tmp_path / "relay.log")
        subscriber = worker(
            "subscriber",
            settings | {"SERVICEBUS_SUBSCRIPTION": traced.topic.subscription},
            tmp_path / "subscriber.log",
        )
        try:
            log = tmp_path / "subscriber.log"
            # A line of the worker carries the id of its request, as one of the app does.
            received_it = re.compile(r"received ContactCreatedEvent .* \[order-4712\]")
            await eventually(lambda: bool(received_it.search(log.read_text())))
            await eventually(lambda: "forwarded" in (tmp_path / "relay.log").read_text())
        finally:
            codes = [process.terminate() for process in (relay, subscriber)]
        assert codes == [0, 0]
        names = received.metrics.keys()
        assert names >= {
            "messaging.client.sent.messages",
            "outbox.inbox.events",
            "outbox.relay.since_success",
        }
        assert {span.name.partition(" ")[0] for span in received.spans} >= {"send", "process"}

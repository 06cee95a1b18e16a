"""One trace from the HTTP request to the subscriber's write, through devstack; what was recorded is kept in memory."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import azure.functions as func
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id

from cosmos_outbox.inbox.message import Delivery
from cosmos_outbox.outbox.aggregate import Origin
from cosmos_outbox.telemetry import tracing
from cosmos_outbox.telemetry.messaging import MOST_LINKS, handling, sending
from cosmos_outbox.worker import relay as relay_worker
from cosmos_outbox.worker import subscriber as subscriber_worker
from devstack.testing import Service, eventually
from tests.support.azure import Topic, contacts_database
from tests.support.contacts import DETAILS_JSON
from tests.support.functions import functions
from tests.support.telemetry import Recorded, recording
from tests.support.use_cases import contacts_of, wire

TRACE, CALLERS, HOSTS = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{CALLERS}-01"
SUBSCRIPTION = "directory"
STATE = "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
"""What the vendors before the caller want to find again."""


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    with recording() as found:
        yield found


@pytest.fixture
async def topic(
    cosmos_server: Service, servicebus_server: Service, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Topic]:
    """With the app's settings in the environment."""
    made = Topic(servicebus_server)
    await made.create(SUBSCRIPTION)
    async with contacts_database(cosmos_server) as database:
        for name, value in {
            "COSMOS": cosmos_server.connection_string,
            "COSMOS_DATABASE": database.id,
            "SERVICEBUS": servicebus_server.connection_string,
            "SERVICEBUS_TOPIC": made.name,
            "SERVICEBUS_SUBSCRIPTION": SUBSCRIPTION,
        }.items():
            monkeypatch.setenv(name, value)
        yield made
    await made.delete()


@asynccontextmanager
async def workers() -> AsyncIterator[None]:
    """Both, each with clients of its own."""
    stop = asyncio.Event()
    running = [
        asyncio.create_task(relay_worker.run(wire(os.environ), stop)),
        asyncio.create_task(subscriber_worker.run(wire(os.environ), stop, slots=2)),
    ]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*running)


async def post(traceparent: str | None, host: str | None) -> str:
    """A request as the host hands it over; the contact's id."""
    headers = {"Content-Type": "application/json", "x-correlation-id": "order-4711"}
    request = func.HttpRequest(
        "POST",
        "http://localhost/api/contacts",
        headers=headers | ({"traceparent": traceparent, "tracestate": STATE} if traceparent else {}),
        body=json.dumps(DETAILS_JSON).encode(),
    )
    context = SimpleNamespace(trace_context=SimpleNamespace(trace_parent=host))
    answer = await functions()["create_contact"].get_user_function()(req=request, context=context)
    assert answer.status_code == 201
    return str(json.loads(answer.get_body())["id"])


def context(span: ReadableSpan) -> tuple[str, str]:
    assert span.context is not None
    return format_trace_id(span.context.trace_id), format_span_id(span.context.span_id)


def state(span: ReadableSpan) -> str:
    assert span.context is not None
    return str(span.context.trace_state.to_header())


def parent(span: ReadableSpan) -> tuple[str, str] | None:
    found = span.parent
    return None if found is None else (format_trace_id(found.trace_id), format_span_id(found.span_id))


def links(span: ReadableSpan) -> list[tuple[str, str]]:
    return [
        (format_trace_id(link.context.trace_id), format_span_id(link.context.span_id)) for link in span.links
    ]


@pytest.mark.parametrize(
    ("given", "host", "nearest"),
    [
        (GIVEN, f"00-{TRACE}-{HOSTS}-01", HOSTS),
        (GIVEN, None, CALLERS),
    ],
    ids=["host continues the caller's", "no host"],
)
async def test_one_trace_leads_from_the_request_to_the_subscribers_write(
    recorded: Recorded, topic: Topic, given: str | None, host: str | None, nearest: str
) -> None:
    async with workers():
        contact_id = await post(given, host)
        await eventually(lambda: len(recorded.spans()) >= 4, what="four spans have ended")
    [create, send, write, process] = sorted(recorded.spans(), key=lambda span: span.name != "create events")
    assert [span.name for span in (create, send, write, process)] == [
        "create events", f"send {topic.name}", "write entry", f"process {topic.name}"
    ]  # fmt: skip
    assert [span.kind for span in (create, send, write, process)] == [
        SpanKind.PRODUCER, SpanKind.CLIENT, SpanKind.CLIENT, SpanKind.CONSUMER
    ]  # fmt: skip
    assert parent(create) == (TRACE, nearest)
    assert context(create)[0] == TRACE
    assert (parent(send), links(send)) == (None, [context(create)])
    assert parent(process) == context(create)
    assert parent(write) == context(process)
    assert {span.status.status_code for span in recorded.spans()} == {StatusCode.UNSET}
    asked = "outbox.correlation_id"
    assert [(span.attributes or {}).get(asked) for span in (create, process)] == ["order-4711"] * 2

    [message] = await topic.receive(contact_id, 1)
    properties: Any = message.application_properties
    assert properties[b"traceparent"].decode() == f"00-{TRACE}-{context(create)[1]}-01"
    assert properties.get(b"tracestate", b"").decode() == (STATE if given else "")
    assert [state(span) for span in (create, process)] == [STATE if given else ""] * 2
    assert json.loads(str(message))["traceparent"] == properties[b"traceparent"].decode()


async def test_a_process_that_records_nothing_passes_the_trace_on(topic: Topic) -> None:
    async with workers():
        contact_id = await post(GIVEN, None)
        [message] = await topic.receive(contact_id, 1)
    properties: Any = message.application_properties
    assert properties[b"traceparent"].decode() == GIVEN
    assert properties[b"tracestate"].decode() == STATE
    assert json.loads(str(message))["tracestate"] == STATE


async def test_the_workers_report_the_gauges_as_the_timers_do(
    recorded: Recorded, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_worker, "UPKEEP_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(subscriber_worker, "WATCH_SECONDS", 0.05)
    await post(None, None)
    names = {
        "outbox.relay.backlog", "outbox.relay.oldest_waiting", "outbox.relay.ttl_used", "outbox.relay.since_success",
        "outbox.parked.aggregates", "outbox.parked.oldest", "outbox.set_aside.messages", "outbox.set_aside.oldest",
    }  # fmt: skip
    async with workers():
        await eventually(lambda: recorded.names() >= names, what="each gauge was reported")
        await eventually(lambda: recorded.gauge("outbox.relay.backlog") == 0, what="all is forwarded")


async def test_a_commit_that_stores_nothing_makes_no_span(recorded: Recorded, topic: Topic) -> None:
    async with wire(os.environ).outbox.resources:
        await post(GIVEN, None)
        recorded.exporter.clear()
        app = wire(os.environ)
        async with app.outbox.resources:
            contact = (await contacts_of(app).page(1, None, Origin("c"))).items[0]
            uow = app.aggregates.open_unit_of_work(Origin("c"))
            await uow.get(type(contact), contact.aggregate_id)
            await uow.commit()
    assert recorded.spans() == []


def test_a_send_is_linked_to_a_bounded_number_of_spans_each_once(recorded: Recorded) -> None:
    many = [f"00-{TRACE}-{number:016x}-01" for number in range(1, 1_000)]
    with sending("events", 1_002, [GIVEN, GIVEN, None, "no trace", *many]) as attempt:
        attempt.accepted()
    [span] = recorded.spans()
    assert len(links(span)) == MOST_LINKS
    assert links(span)[:2] == [(TRACE, CALLERS), (TRACE, f"{1:016x}")]


def test_a_message_is_linked_to_its_call_and_a_failure_has_its_class_only(recorded: Recorded) -> None:
    call = SimpleNamespace(trace_context=SimpleNamespace(trace_parent=f"00-{'1' * 32}-{HOSTS}-01"))
    with (
        pytest.raises(ZeroDivisionError),
        tracing.invoked(call),
        handling("events", Delivery("directory", "m-1", 1, b"", {"traceparent": GIVEN}), "order-4711"),
    ):
        raise ZeroDivisionError("johndoe@contoso.com")
    [span] = recorded.spans()
    assert (parent(span), links(span)) == ((TRACE, CALLERS), [("1" * 32, HOSTS)])
    assert (span.status.status_code, span.status.description, span.events) == (StatusCode.ERROR, None, ())
    assert dict(span.attributes or {}) == {
        "messaging.system": "servicebus",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "events",
        "messaging.destination.subscription.name": "directory",
        "messaging.message.id": "m-1",
        "outbox.correlation_id": "order-4711",
        "error.type": "ZeroDivisionError",
    }

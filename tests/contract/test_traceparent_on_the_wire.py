"""A message has one traceparent, its event's own: by the bytes that go to Service Bus, whatever the SDK traces."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

import pytest
from azure.core.settings import settings
from azure.core.tracing.ext.opentelemetry_span import OpenTelemetrySpan
from azure.servicebus.aio import ServiceBusClient

from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.publisher import Accepted, CloudEvents
from cosmos_outbox.servicebus.publisher import ServiceBusPublisher
from devstack.testing import Service
from tests.support.azure import Topic
from tests.support.publishing import event, publish
from tests.support.telemetry import recording

pytestmark = pytest.mark.needs_a_socket("a proxy that reads the frames")

NAMED = re.compile(rb"\xa1.(traceparent|Diagnostic-Id|tracestate)\xa1\x37(.{55})", re.DOTALL)
"""An application property in AMQP: a short string, and a short string of 55 bytes."""


def traced(contact: str, sequence: int) -> OutboxEvent:
    number = f"{sequence:016x}"
    return replace(event(contact, sequence), traceparent=f"00-0af7651916cd43dd8448eb211c80319c-{number}-01")


@dataclass
class Line:
    """A TCP line to the server that keeps what was sent."""

    port: int = 0
    sent: bytearray = field(default_factory=bytearray)

    def properties(self) -> list[tuple[str, str]]:
        return [(name.decode(), value.decode()) for name, value in NAMED.findall(bytes(self.sent))]


@asynccontextmanager
async def line_to(port: int) -> AsyncIterator[Line]:
    line = Line()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, keep: bytearray) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                keep += data
                writer.write(data)
                await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(
            pass_on(reader, there_writer, line.sent), pass_on(there_reader, writer, bytearray())
        )

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    line.port = server.sockets[0].getsockname()[1]
    async with server:
        yield line


@pytest.fixture(params=["the SDK traces", "the SDK does not trace"])
def sdk_traces(request: pytest.FixtureRequest) -> Iterator[bool]:
    traces = request.param == "the SDK traces"
    settings.tracing_implementation = OpenTelemetrySpan if traces else None
    try:
        with recording():
            yield traces
    finally:
        settings.tracing_implementation.unset_value()


async def test_a_message_has_its_events_traceparent_and_no_other(
    servicebus_server: Service, sdk_traces: bool
) -> None:
    topic = Topic(servicebus_server)
    await topic.create()
    address = urlsplit(re.findall(r"Endpoint=([^;]+)", servicebus_server.connection_string)[0])
    assert address.port is not None
    async with line_to(address.port) as line:
        connection = servicebus_server.connection_string.replace(f":{address.port}", f":{line.port}")
        async with ServiceBusClient.from_connection_string(connection) as client:
            publisher = ServiceBusPublisher(
                client, topic.name, service=CloudEvents("/t"), partitioned=False, senders=2
            )
            batch, alone = [traced("a", 1), traced("a", 2)], [traced("b", 3)]
            assert [*await publish(publisher, batch), *await publish(publisher, alone)] == [Accepted()] * 2
            await publisher.close()

    named = ["traceparent", "Diagnostic-Id"] if sdk_traces else ["traceparent"]
    expected = [(name, each.traceparent) for each in (*batch, *alone) for name in named]
    assert sorted(line.properties()) == sorted(expected)
    assert line.sent.count(b"traceparent") == 3
    [message] = await topic.receive("b", 1)
    assert message.application_properties is not None
    assert message.application_properties[b"traceparent"] == alone[0].traceparent.encode()  # type: ignore[union-attr]
    await topic.delete()

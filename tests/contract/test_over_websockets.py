"""Service Bus over AMQP on WebSockets, as a network needs it that closes port 5671: sent, received and checked."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import pytest
from aiohttp import WSMsgType, web
from azure.servicebus._pyamqp.aio import _connection_async

from cosmos_outbox.composition.transports import publisher, queues
from cosmos_outbox.inbox.message import Delivery
from cosmos_outbox.operations.subscriber import Queues
from cosmos_outbox.outbox.publisher import Accepted
from cosmos_outbox.preflight.checks import check
from cosmos_outbox.preflight.plan import plan_for
from cosmos_outbox.telemetry.liveness import SlotHealth
from devstack.testing import Service
from examples.fastapi.app import service as people
from tests.contract.conftest import service_bus
from tests.support.azure import Topic
from tests.support.publishing import event, publish

pytestmark = [
    pytest.mark.long,
    pytest.mark.needs_a_socket("the bridge is a socket"),
    # Without TLS, as an emulator is, the SDK gives aiohttp an old form, and leaves its session open.
    pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Unclosed:ResourceWarning"),
]


@asynccontextmanager
async def bridge(to_port: int) -> AsyncIterator[tuple[int, list[str]]]:
    """A server of ``/$servicebus/websocket`` before a broker that speaks AMQP alone; what was asked for there."""
    asked: list[str] = []

    async def forward(request: web.Request) -> web.WebSocketResponse:
        asked.append(request.path)
        socket = web.WebSocketResponse(protocols=["AMQPWSB10"])
        await socket.prepare(request)
        reader, writer = await asyncio.open_connection("127.0.0.1", to_port)

        async def back() -> None:
            while part := await reader.read(65_536):
                await socket.send_bytes(part)

        returning = asyncio.create_task(back())
        async for message in socket:
            if message.type is WSMsgType.BINARY:
                writer.write(message.data)
                await writer.drain()
        returning.cancel()
        writer.close()
        with contextlib.suppress(asyncio.CancelledError, ConnectionError):
            await returning
        return socket

    app = web.Application()
    app.router.add_get("/$servicebus/websocket", forward)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1], asked
    finally:
        await runner.cleanup()


async def received(of: Queues) -> str:
    """The id of the first message that a worker gets."""
    found, stop = list[str](), asyncio.Event()

    async def receive(delivery: Delivery) -> None:
        found.append(delivery.message_id)
        stop.set()

    async with asyncio.timeout(30):
        await of.sessions.serve(receive, stop, SlotHealth(), slots=1)
    return found[0]


async def test_one_setting_takes_relay_worker_and_preflight_over_websockets(
    servicebus_server: Service, cosmos_server: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        service_bus(Topic(servicebus_server)) as broker,
        bridge(servicebus_server.port) as (port, asked),
        AsyncExitStack() as resources,
    ):
        monkeypatch.setattr(_connection_async, "WEBSOCKET_PORT", port)  # 443 in Azure
        given = {
            "COSMOS": cosmos_server.connection_string,
            "SERVICEBUS": servicebus_server.connection_string,
            "SERVICEBUS_TOPIC": broker.topic.name,
            "SERVICEBUS_WEBSOCKETS": "true",
        }
        settings = people.settings(given)
        sent = await publish(publisher(settings, "/test", resources), [event("a", 1)])
        assert sent == [Accepted()]
        of_relay = len(asked)
        assert of_relay > 0
        assert await received(queues(settings, resources, broker.topic.subscription)) == "a-1"
        of_worker = len(asked)
        assert of_worker > of_relay
        plan = plan_for(
            people, given, other_subscriptions=(broker.topic.subscription,), survive=timedelta(minutes=1), as_app=True,
            emulator_port=int(servicebus_server.addresses[1].rpartition(":")[2]),
        )  # fmt: skip
        lines = [str(each) for each in await check(plan, None)]
        assert any(f"topic {broker.topic.name}: may be used" in line for line in lines), lines
        assert len(asked) > of_worker

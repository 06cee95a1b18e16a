"""A client of Service Bus goes to the namespace of its setting, by TLS, and by what it is told of an emulator alone."""

import asyncio
import contextlib
import importlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import certifi
import pytest
from azure.core.pipeline.transport import AioHttpTransport

import cosmos_outbox.servicebus
from cosmos_outbox.servicebus import client as clients
from cosmos_outbox.servicebus.administration import administration_client
from cosmos_outbox.servicebus.client import servicebus_client
from cosmos_outbox.servicebus.errors import SDK_ERRORS
from cosmos_outbox.servicebus.inspection import ServiceBusInspection, SubscriptionState
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.credentials import Credential
from cosmos_outbox.settings.errors import Misconfigured
from tests.support.certificates import self_signed, served_with

NAMESPACE = "orders.servicebus.windows.net"
KEY = "SharedAccessKeyName=n;SharedAccessKey=k"
SIGNED_IN = cast(Credential, SimpleNamespace(get_token=None))

CONNECTIONS = [
    (Connection(address=NAMESPACE), NAMESPACE),
    (Connection(f"Endpoint=sb://{NAMESPACE}/;{KEY}"), NAMESPACE),
]


@pytest.mark.parametrize(("connection", "namespace"), CONNECTIONS)
async def test_messages_go_to_the_namespace_of_the_setting(connection: Connection, namespace: str) -> None:
    async with servicebus_client(connection, SIGNED_IN) as client:
        assert client.fully_qualified_namespace == namespace


@pytest.mark.parametrize(
    ("connection", "namespace"),
    [
        *CONNECTIONS,
        (Connection(f"Endpoint=sb://127.0.0.1:5672;{KEY};UseDevelopmentEmulator=true"), "127.0.0.1:5300"),
        (Connection(f"Endpoint=sb://127.0.0.1;{KEY};usedevelopmentemulator=True;"), "127.0.0.1:5300"),
    ],
)
async def test_an_emulator_alone_is_managed_at_a_port_of_its_own(
    connection: Connection, namespace: str
) -> None:
    async with administration_client(connection, SIGNED_IN, 5300) as client:
        assert client.fully_qualified_namespace == namespace


@pytest.mark.parametrize(
    ("emulator", "began"),
    [(";UseDevelopmentEmulator=true", "http://127.0.0.1:5300/t"), ("", "https://127.0.0.1/t")],
)
async def test_an_emulator_alone_is_managed_without_tls(
    monkeypatch: pytest.MonkeyPatch, emulator: str, began: str
) -> None:
    """Emulators have none for it, whatever the SDK asks for."""

    async def asked(_: object, request: Any, **__: object) -> None:
        raise LookupError(request.url)

    monkeypatch.setattr(AioHttpTransport, "send", asked)
    async with administration_client(
        Connection(f"Endpoint=sb://127.0.0.1;{KEY}{emulator}"), None, 5300
    ) as client:
        with pytest.raises(LookupError, match=f"^{began}\\?"):
            await client.get_topic("t")


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A certificate that is among those of certifi."""
    file = self_signed(tmp_path)
    monkeypatch.setattr(certifi, "where", lambda: str(file))
    clients._trusted.cache_clear()  # a process reads them once
    yield file
    clients._trusted.cache_clear()


async def test_the_broker_is_reached_by_tls_with_a_certificate_that_certifi_knows(
    trusted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    came: asyncio.Future[bytes] = loop.create_future()

    async def broker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.set_result(await reader.read(4))
        writer.close()

    connect = loop.create_connection
    server = await asyncio.start_server(broker, "127.0.0.1", 0, ssl=served_with(trusted))
    at = server.sockets[0].getsockname()[1]

    async def elsewhere(factory: Any, host: str, port: int, **options: Any) -> Any:
        assert port == 5671, "the SDK asks for no other"
        return await connect(factory, host, at, **options)

    monkeypatch.setattr(loop, "create_connection", elsewhere)
    async with servicebus_client(Connection(f"Endpoint=sb://localhost/;{KEY}"), None, retries=0) as client:
        with contextlib.suppress(*SDK_ERRORS):
            async with asyncio.timeout(5), client.get_topic_sender("t"):
                pass
    server.close()
    assert came.done()
    assert came.result() == b"AMQP"


def test_where_the_sdk_is_not_installed_the_extra_that_brings_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cosmos_outbox.settings.extras.find_spec", lambda _: None)
    with pytest.raises(
        Misconfigured, match=r"azure-servicebus, certifi: not installed.*cosmos-outbox\[servicebus\]"
    ):
        importlib.reload(cosmos_outbox.servicebus)


@pytest.mark.parametrize(("told", "forwards_to"), [("other-topic", "other-topic"), ("", None), (None, None)])
async def test_where_a_subscription_forwards_its_messages_is_told(
    told: str | None, forwards_to: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def get_subscription(*_: str) -> Any:
        return SimpleNamespace(
            status="Active", requires_session=True, max_delivery_count=10, forward_to=told,
            dead_lettering_on_message_expiration=True, auto_delete_on_idle=timedelta(days=4000),
        )  # fmt: skip

    async def list_rules(*_: str) -> Any:
        for each in list[Any]():
            yield each

    inspection = ServiceBusInspection(Connection(address=NAMESPACE), SIGNED_IN, emulator_port=5300)
    async with inspection:
        monkeypatch.setattr(inspection._admin, "get_subscription", get_subscription)
        monkeypatch.setattr(inspection._admin, "list_rules", list_rules)
        assert await inspection.subscription("t", "s") == SubscriptionState(
            active=True, has_sessions=True, max_delivery_count=10, dead_letters_expired=True,
            forwards_to=forwards_to, deleted_when_idle_for=None, takes_all=False,
        )  # fmt: skip

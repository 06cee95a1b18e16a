"""How tests reach a devstack Service Bus: connection strings, administration over http, entities of their own."""

import contextlib
import ssl
import uuid
from collections.abc import AsyncIterator
from typing import Any

from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from devstack.administration import PlainHttpTransport
from devstack.testing import Service

KEY_NAME, KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"


def connection_string(port: int, *, key_name: str = KEY_NAME, key: str = KEY) -> str:
    return (
        f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName={key_name};SharedAccessKey={key};"
        "UseDevelopmentEmulator=true;"
    )


def admin_port(service: Service) -> int:
    return int(service.addresses[1].rpartition(":")[2])


def administration(service: Service, **credentials: str) -> ServiceBusAdministrationClient:
    """An administration client; close it (``async with``)."""
    text = connection_string(admin_port(service), **credentials)
    return ServiceBusAdministrationClient.from_connection_string(
        text, transport=PlainHttpTransport(), retry_total=0
    )


_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""The SDK would read all certificates for each connection, which has no use for them here."""


def client(service: Service, **options: Any) -> ServiceBusClient:
    """A client with few and quick retries; close it (``async with``)."""
    options = {"retry_total": 1, "retry_backoff_factor": 0.05, "ssl_context": _NO_TLS, **options}
    return ServiceBusClient.from_connection_string(connection_string(service.port), **options)


def unique(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


@contextlib.asynccontextmanager
async def new_queue(service: Service, **properties: Any) -> AsyncIterator[str]:
    """The name of a queue that exists for one test."""
    name = unique("queue")
    async with administration(service) as admin:
        await admin.create_queue(name, **properties)
        try:
            yield name
        finally:
            await admin.delete_queue(name)


@contextlib.asynccontextmanager
async def new_topic(service: Service, **properties: Any) -> AsyncIterator[str]:
    """The name of a topic that exists for one test, with what is under it."""
    name = unique("topic")
    async with administration(service) as admin:
        await admin.create_topic(name, **properties)
        try:
            yield name
        finally:
            await admin.delete_topic(name)


@contextlib.asynccontextmanager
async def new_subscription(
    service: Service, topic_properties: dict[str, Any] | None = None, **properties: Any
) -> AsyncIterator[tuple[str, str]]:
    """A topic and its subscription ``all``."""
    async with new_topic(service, **(topic_properties or {})) as topic, administration(service) as admin:
        await admin.create_subscription(topic, "all", **properties)
        yield topic, "all"

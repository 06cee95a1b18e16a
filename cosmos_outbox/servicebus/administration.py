"""The management API of a real namespace is called over TLS; the management API of an emulator without TLS.

``UseDevelopmentEmulator=true`` switches TLS off only for the AMQP side of azure-servicebus 7.15. The SDK's management
requests always go to ``https://``, but emulators serve them without TLS, on a port of their own
(https://learn.microsoft.com/azure/service-bus-messaging/overview-emulator).
"""

import re
from typing import Any

from azure.core.pipeline.transport import AioHttpTransport
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from cosmos_outbox.settings.connections import Connection, Credential

_ENDPOINT = re.compile(r"(?P<host>Endpoint=sb://[^:/;]+)(:\d+)?/?", re.IGNORECASE)
_RETRIES = 1


class _PlainHttp(AioHttpTransport):  # type: ignore[misc]  # azure.core exports the class without its type
    """Sends ``https://`` requests as ``http://``: an emulator's key is public, so nothing is given away."""

    async def send(self, request: Any, **options: Any) -> Any:
        request.url = request.url.replace("https://", "http://", 1)
        return await super().send(request, **options)


def administration_client(
    connection: Connection, credential: Credential | None, emulator_port: int
) -> ServiceBusAdministrationClient:
    """A new client; the caller closes it. Raises ValueError for a connection string without its parts."""
    text = connection.connection_string
    if text is None:
        assert credential is not None
        return ServiceBusAdministrationClient(connection.address, credential, retry_total=_RETRIES)
    if "usedevelopmentemulator=true" not in text.lower():
        return ServiceBusAdministrationClient.from_connection_string(text, retry_total=_RETRIES)
    return ServiceBusAdministrationClient.from_connection_string(
        _ENDPOINT.sub(rf"\g<host>:{emulator_port}", text), transport=_PlainHttp(), retry_total=_RETRIES
    )

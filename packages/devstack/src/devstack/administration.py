"""The SDK's administration client reaches an emulator: the SDK speaks only TLS to the management API, emulators none.

``UseDevelopmentEmulator=true`` in a connection string takes TLS off the AMQP side of azure-servicebus 7.15 alone; its
management requests always go to ``https://``.
"""

from typing import Any

from azure.core.pipeline.transport import AioHttpTransport
from azure.servicebus.aio.management import ServiceBusAdministrationClient


class PlainHttpTransport(AioHttpTransport):  # type: ignore[misc]  # azure.core exports it without its type
    """Sends ``https://`` requests as ``http://``: for an address on this machine only."""

    async def send(self, request: Any, **options: Any) -> Any:
        """Send the request without TLS. Raises as its base does."""
        request.url = request.url.replace("https://", "http://", 1)
        return await super().send(request, **options)


def administration_client(connection: str) -> ServiceBusAdministrationClient:
    """A client of the emulator whose management port the connection string names; close it."""
    return ServiceBusAdministrationClient.from_connection_string(connection, transport=PlainHttpTransport())

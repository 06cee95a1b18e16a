"""The Service Bus client, made from a connection setting without any I/O but the reading of the trusted certificates.

They are read once, for all clients: the SDK would read them for each connection, 15 ms on the event loop, also where no
TLS is used.
"""

import ssl
from functools import cache

import certifi
from azure.servicebus.aio import ServiceBusClient

from cosmos_outbox.settings.connections import Connection, Credential


def servicebus_client(
    connection: Connection, credential: Credential | None, *, retries: int = 3
) -> ServiceBusClient:
    """A client that opens no connection until something is sent; ``retries``: how often it repeats what failed."""
    if connection.connection_string:
        return ServiceBusClient.from_connection_string(
            connection.connection_string, retry_total=retries, ssl_context=_trusted()
        )
    assert credential is not None
    return ServiceBusClient(connection.address, credential, retry_total=retries, ssl_context=_trusted())


@cache
def _trusted() -> ssl.SSLContext:
    """As the SDK makes it for each connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certifi.where())
    return context

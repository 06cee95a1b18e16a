"""The Service Bus client, made from a connection setting without any I/O."""

from azure.servicebus.aio import ServiceBusClient

from infra.connections import Connection
from infra.credentials import Credential


def servicebus_client(connection: Connection, credential: Credential | None) -> ServiceBusClient:
    """A client that opens no connection until something is sent."""
    if connection.connection_string:
        return ServiceBusClient.from_connection_string(connection.connection_string)
    assert credential is not None
    return ServiceBusClient(connection.address, credential)

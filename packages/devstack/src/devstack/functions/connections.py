"""The clients of the triggers: one for each connection setting, which means what it means to the real host."""

import contextlib
import os
import ssl
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from azure.cosmos.aio import CosmosClient
from azure.servicebus.aio import ServiceBusClient

from devstack.connection_settings import COSMOS_ADDRESS, SERVICEBUS_ADDRESS, Connection, find_connection
from devstack.service import CannotStart

if TYPE_CHECKING:
    from azure.identity.aio import DefaultAzureCredential, ManagedIdentityCredential
    from azure.storage.queue.aio import QueueServiceClient


STORAGE_CONNECTION = "Storage"
"""Which with its prefix is the host's own, ``AzureWebJobsStorage``."""


def cosmos_connection(setting: str, *, where: str) -> Connection:
    """The connection named ``setting``. Raises CannotStart when the settings do not hold it."""
    return _find(setting, COSMOS_ADDRESS, where)


def servicebus_connection(setting: str, *, where: str) -> Connection:
    """The connection named ``setting``. Raises CannotStart when the settings do not hold it."""
    return _find(setting, SERVICEBUS_ADDRESS, where)


def _find(setting: str, address_name: str, where: str) -> Connection:
    try:
        connection = find_connection(os.environ, setting, address_name)
    except CannotStart as refused:
        raise CannotStart(f"functions: {where} uses the connection {setting}; {refused}") from refused
    if connection is None:
        raise CannotStart(
            f"functions: {where} uses the connection {setting}; "
            f"set {setting} or {setting}__{address_name} in the settings"
        )
    return connection


@contextlib.contextmanager
def _connection_errors(connection: Connection) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError) as error:
        # Not the error's own text, which may hold the key.
        raise CannotStart(
            f"functions: the connection {connection.setting} cannot be used; compare it with the sample settings"
        ) from error


class _Closable(Protocol):
    async def close(self) -> None: ...


class Clients:
    """One client per connection, made when it is first needed, inside the running loop; closed by
    :meth:`close`.
    """

    def __init__(self, *, queue_options: Mapping[str, Any] | None = None) -> None:
        """``queue_options``: of the SDK for queues, in the place of ours and beside them."""
        self._queue_options = {"retry_total": 0, **(queue_options or {})}
        """As the Service Bus client's: the listeners retry by themselves."""
        self._cosmos: dict[Connection, CosmosClient] = {}
        self._servicebus: dict[Connection, ServiceBusClient] = {}
        self._queues: dict[Connection, QueueServiceClient] = {}
        self._credentials: list[DefaultAzureCredential | ManagedIdentityCredential] = []

    def cosmos(self, connection: Connection) -> CosmosClient:
        """Connects to nothing yet. Raises CannotStart for a connection string that is none."""
        if connection not in self._cosmos:
            with _connection_errors(connection):
                self._cosmos[connection] = self._make_cosmos(connection)
        return self._cosmos[connection]

    def servicebus(self, connection: Connection) -> ServiceBusClient:
        """Connects to nothing yet. Raises CannotStart for a connection string that is none."""
        if connection not in self._servicebus:
            with _connection_errors(connection):
                self._servicebus[connection] = self._make_servicebus(connection)
        return self._servicebus[connection]

    def queues(self, connection: Connection) -> "QueueServiceClient":
        """Connects to nothing yet. Raises CannotStart for a connection string that is none."""
        if connection not in self._queues:
            with _connection_errors(connection):
                self._queues[connection] = self._make_queues(connection)
        return self._queues[connection]

    async def close(self) -> None:
        clients: list[_Closable] = [*self._cosmos.values(), *self._servicebus.values()]
        for client in (*clients, *self._queues.values(), *self._credentials):
            await client.close()

    def _make_cosmos(self, connection: Connection) -> CosmosClient:
        if connection.connection_string is not None:
            return CosmosClient.from_connection_string(connection.connection_string)
        return CosmosClient(connection.address, self._credential(connection))

    def _make_servicebus(self, connection: Connection) -> ServiceBusClient:
        options: dict[str, Any] = {
            # The listeners retry by themselves, for ever and with a pause that suits a machine next to them.
            "retry_total": 0,
            # Without one, the SDK reads all certificates for each connection, TLS or not: most of its cost.
            "ssl_context": ssl.create_default_context(),
        }
        if connection.connection_string is not None:
            return ServiceBusClient.from_connection_string(connection.connection_string, **options)
        return ServiceBusClient(connection.address, self._credential(connection), **options)

    def _make_queues(self, connection: Connection) -> "QueueServiceClient":
        from azure.storage.queue.aio import QueueServiceClient  # noqa: PLC0415 - for apps with a queue trigger alone

        if connection.connection_string is not None:
            return QueueServiceClient.from_connection_string(
                connection.connection_string, **self._queue_options
            )
        return QueueServiceClient(connection.address, self._credential(connection), **self._queue_options)

    def _credential(self, connection: Connection) -> "DefaultAzureCredential | ManagedIdentityCredential":
        from azure.identity.aio import (  # noqa: PLC0415 - slow to import, and not needed with connection strings
            DefaultAzureCredential,
            ManagedIdentityCredential,
        )

        credential = (
            ManagedIdentityCredential(client_id=connection.client_id)
            if connection.managed_identity
            else DefaultAzureCredential(managed_identity_client_id=connection.client_id)
        )
        self._credentials.append(credential)
        return credential

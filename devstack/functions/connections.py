"""A connection setting means here what it means to the real host: same names, same forms, same precedence.

https://learn.microsoft.com/azure/azure-functions/functions-reference#connections: an exact name beats the
prefix of the identity-based form; a name is also looked up with ``AzureWebJobs`` before it.
"""

import contextlib
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from azure.cosmos.aio import CosmosClient
from azure.servicebus.aio import ServiceBusClient

from devstack.service import CannotStart

if TYPE_CHECKING:
    from azure.identity.aio import DefaultAzureCredential, ManagedIdentityCredential


@dataclass(frozen=True)
class Connection:
    """Either a connection string, or an address to which the host's identity is sent."""

    setting: str
    connection_string: str | None = None
    address: str | None = None
    managed_identity: bool = False
    client_id: str | None = None


def cosmos_connection(setting: str, *, where: str) -> Connection:
    """The connection named ``setting``. Raises CannotStart when the settings do not hold it."""
    return _find(setting, "accountEndpoint", where)


def servicebus_connection(setting: str, *, where: str) -> Connection:
    """The connection named ``setting``. Raises CannotStart when the settings do not hold it."""
    return _find(setting, "fullyQualifiedNamespace", where)


def _find(setting: str, address_name: str, where: str) -> Connection:
    for name in (f"AzureWebJobs{setting}", setting):
        if value := os.environ.get(name):
            return Connection(name, connection_string=value)
        if address := os.environ.get(f"{name}__{address_name}"):
            return Connection(
                name,
                address=address,
                managed_identity=os.environ.get(f"{name}__credential", "").lower() == "managedidentity",
                client_id=os.environ.get(f"{name}__clientId"),
            )
    raise CannotStart(
        f"functions: {where} uses the connection {setting}; set {setting} or {setting}__{address_name} in the settings"
    )


@contextlib.contextmanager
def _connection_errors(connection: Connection) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError) as error:
        # Not the error's own text, which may hold the key.
        raise CannotStart(
            f"functions: the connection {connection.setting} cannot be used; compare it with the sample settings"
        ) from error


class Clients:
    """One client per connection, made when it is first needed, inside the running loop; closed by
    :meth:`close`.
    """

    def __init__(self) -> None:
        self._cosmos: dict[Connection, CosmosClient] = {}
        self._servicebus: dict[Connection, ServiceBusClient] = {}
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

    async def close(self) -> None:
        for client in (*self._cosmos.values(), *self._servicebus.values(), *self._credentials):
            await client.close()

    def _make_cosmos(self, connection: Connection) -> CosmosClient:
        if connection.connection_string is not None:
            return CosmosClient.from_connection_string(connection.connection_string)
        assert connection.address is not None
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
        assert connection.address is not None
        return ServiceBusClient(connection.address, self._credential(connection), **options)

    def _credential(self, connection: Connection) -> "DefaultAzureCredential | ManagedIdentityCredential":
        from azure.identity.aio import (  # noqa: PLC0415 - slow to import, and not needed with connection strings
            DefaultAzureCredential,
            ManagedIdentityCredential,
        )

        credential = (
            ManagedIdentityCredential(client_id=connection.client_id)
            if connection.managed_identity
            else DefaultAzureCredential()
        )
        self._credentials.append(credential)
        return credential

"""A connection setting means here what it means to the real host: same names, same forms, same precedence.

``AzureWebJobs<name>`` beats ``<name>``; under one name a connection string beats the form for an identity; an empty
value counts as not set (https://learn.microsoft.com/azure/azure-functions/functions-reference#connections).
``<name>__connectionString``, which neither extension of the host reads, is refused: an app that took it would run
while its triggers do not.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from devstack.service import CannotStart

COSMOS_ADDRESS, SERVICEBUS_ADDRESS = "accountEndpoint", "fullyQualifiedNamespace"
"""What follows ``<name>__`` in the form for an identity."""


@dataclass(frozen=True)
class Connection:
    """Either a connection string, or an address to which the host's identity is sent; found under ``setting``."""

    setting: str
    connection_string: str | None = None
    address: str | None = None
    managed_identity: bool = False
    client_id: str | None = None


def find_connection(values: Mapping[str, str], name: str, address_part: str) -> Connection | None:
    """The connection ``name`` in the settings; None when it is not set.

    Raises :class:`CannotStart` for a form that the real host does not read.
    """
    for setting in (f"AzureWebJobs{name}", name):
        if connection := values.get(setting):
            return Connection(setting, connection_string=connection)
        if address := values.get(f"{setting}__{address_part}"):
            return Connection(
                setting,
                address=address,
                managed_identity=values.get(f"{setting}__credential", "").lower() == "managedidentity",
                client_id=values.get(f"{setting}__clientId") or None,
            )
        if values.get(f"{setting}__connectionString"):
            raise CannotStart(
                f"{setting}__connectionString is not read by the Functions host; "
                f"set {name} to the connection string, or {name}__{address_part} to the address"
            )
    return None

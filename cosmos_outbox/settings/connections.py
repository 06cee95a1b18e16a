"""Reads connection settings as the Functions host does; a setting that the host reads otherwise is refused.

The extensions of the Functions host connect the triggers, the clients of this app connect the API, and both read the
same settings. All of them read these forms alike:

* ``NAME``: a connection string; it wins over every setting below the name;
* ``NAME__<address>``: the service's address, used with an identity; ``NAME__credential=managedidentity`` asks for the
  managed identity, and ``NAME__clientId`` beside that for a user-assigned one;
* the same with ``AzureWebJobs`` before ``NAME``, in place of ``NAME`` and not beside it: the Service Bus extension and
  newer Cosmos DB extensions prefer the name without the prefix, older Cosmos DB extensions the name with the prefix.

As in .NET, ``:`` may stand for ``__``, upper and lower case are the same, and an empty value counts as not set.
https://learn.microsoft.com/azure/azure-functions/functions-reference#connections
"""

import re
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import field
from typing import NamedTuple, Protocol, TypeVar

from azure.core.credentials_async import AsyncTokenCredential

from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.settings.errors import Misconfigured

_PORTAL = re.compile(r"[a-z]+connstr_(?P<name>.+)", re.IGNORECASE)
"""The variables that Azure creates from "Connection strings" in the portal; .NET reads ``ConnectionStrings__NAME``."""


@dataclass(frozen=True)
class Connection:
    """A connection to a service: a connection string (emulators), or an address with an identity."""

    connection_string: str | None = field(default=None, repr=False)
    address: str = ""
    managed_identity_only: bool = False
    """False: any available sign-in is used, including a developer's own."""
    client_id: str | None = None
    """The client id of a user-assigned managed identity; None: the system-assigned one."""
    websockets: bool = False
    """Of Service Bus: AMQP over WebSockets, port 443, where a network closes port 5671."""


class _Setting(NamedTuple):
    variable: str
    """The name as it is spelled in the environment."""
    value: str


def resolve(environment: Mapping[str, str], name: str, address: str) -> Connection:
    """Returns the connection ``name``; ``address``: the last part of its address setting, as ``accountEndpoint``.

    Raises:
        Misconfigured: no setting gives the connection, or the Functions host would read the settings in another way.
    """
    _refuse_connection_strings(environment, name)
    prefixed = f"AzureWebJobs{name}"
    plain, other = _parts(environment, name), _parts(environment, prefixed)
    if plain and other:
        raise Misconfigured(
            f"both {prefixed} and {name} are set, and the triggers do not agree which of them to use: "
            f"remove every setting that begins with {prefixed}, empty ones too"
        )
    return _connection(prefixed, other, address) if other else _connection(name, plain, address)


def _parts(environment: Mapping[str, str], name: str) -> dict[str, _Setting]:
    """Returns the settings of a name by the part after the name, in lower case; the name's own value under ""."""
    found: dict[str, _Setting] = {}
    for variable, value in environment.items():
        owner, _, part = variable.replace("__", ":").lower().partition(":")
        if owner == name.lower():
            same = found.setdefault(part, _Setting(variable, value))
            if same.value != value:
                raise Misconfigured(
                    f"{same.variable} and {variable} are one setting to the triggers, with two values: "
                    "remove one of them"
                )
    return found


def _refuse_connection_strings(environment: Mapping[str, str], name: str) -> None:
    names = (name.lower(), f"azurewebjobs{name.lower()}")
    for part, setting in _parts(environment, "ConnectionStrings").items():
        if part.partition(":")[0] in names:
            raise Misconfigured(
                f"{setting.variable} is read only by the triggers: "
                f"remove {setting.variable} and set {name} to its value"
            )
    for variable in environment:
        portal = _PORTAL.fullmatch(variable)
        if portal and portal["name"].lower() in names:
            raise Misconfigured(
                f'{variable} comes from "Connection strings" in the portal, which only the triggers read: '
                f"remove that connection string and set the app setting {name} to its value"
            )


def _connection(name: str, parts: Mapping[str, _Setting], address: str) -> Connection:
    said = {part: setting for part, setting in parts.items() if setting.value.strip()}
    if text := said.get(""):
        return Connection(connection_string=text.value)
    if wrong := said.get("connectionstring"):
        raise Misconfigured(
            f"{wrong.variable} is not read by the triggers: remove {wrong.variable} and set {name} to its value"
        )
    if place := said.pop(address.lower(), None):
        return _with_identity(name, said, place)
    if said:
        first = min(setting.variable for setting in said.values())
        raise Misconfigured(
            f"{first} is set, but {name}__{address} is not: set {name}__{address} to the service's address, "
            f"or remove {first}"
        )
    raise Misconfigured(
        f"neither {name} nor {name}__{address} is set: set {name}__{address} to use an identity, "
        f"or {name} to a connection string (for emulators; local.settings.sample.json has one)"
    )


def _with_identity(name: str, said: dict[str, _Setting], address: _Setting) -> Connection:
    kind, client = said.pop("credential", None), said.pop("clientid", None)
    if kind and kind.value.lower() != "managedidentity":
        raise Misconfigured(f"{kind.variable} is {kind.value!r}: set it to managedidentity, or remove it")
    if client and not kind:
        raise Misconfigured(
            f"{client.variable} alone is not read by all versions of the triggers: "
            f"set {name}__credential to managedidentity too"
        )
    if said:
        other = min(setting.variable for setting in said.values())
        raise Misconfigured(
            f"{other} is not read by the app, and may give the triggers another identity: remove it "
            f"({name}__credential and {name}__clientId choose the identity)"
        )
    return Connection(
        address=address.value, managed_identity_only=bool(kind), client_id=client.value if client else None
    )


Credential = AsyncTokenCredential


def credential_for(connection: Connection) -> Credential | None:
    """Returns the credential of a connection, created without I/O; None if it has a connection string."""
    if connection.connection_string:
        return None
    from azure.identity.aio import (  # noqa: PLC0415 - slow to import, and not needed with connection strings
        DefaultAzureCredential,
        ManagedIdentityCredential,
    )

    if connection.managed_identity_only:
        return ManagedIdentityCredential(client_id=connection.client_id)
    return DefaultAzureCredential()


class _Closes(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=_Closes)


def connected(
    resources: AsyncExitStack,
    connection: Connection,
    called: tuple[str, str],
    make: Callable[[Connection, Credential | None], C],
) -> C:
    """Returns a client that ``resources`` closes; ``called``: the names of the connection and service. Opens nothing.

    Raises Misconfigured: the SDK cannot use the connection.
    """
    name, service = called
    credential = credential_for(connection)
    try:
        client = make(connection, credential)
    except (ValueError, KeyError) as error:
        raise Misconfigured(
            f"the connection {name} cannot be one of {service} ({type(error).__name__}): copy the whole connection "
            "string or the address from the service"
        ) from error
    if credential:
        resources.push_async_callback(credential.close)
    resources.push_async_callback(client.close)
    return client

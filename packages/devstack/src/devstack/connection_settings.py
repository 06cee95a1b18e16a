"""A connection setting means to devstack what it means to the real Functions host, or it is refused.

What the supervisor starts and what the triggers connect to is decided here, by the same rules. These forms are read
alike by the Cosmos DB and the Service Bus extension of the real host, in all their versions:

* ``NAME``: a connection string, used whatever else is set below the name;
* ``NAME__<address>``: the service's address, used with an identity; ``NAME__credential=managedidentity`` asks for the
  managed identity, and ``NAME__clientId`` beside that for a user-assigned one;
* the same with ``AzureWebJobs`` before ``NAME``, in place of ``NAME`` and not beside it: the Service Bus extension and
  newer Cosmos DB extensions prefer the name without the prefix, older Cosmos DB extensions the one with it.

As in .NET, ``:`` may stand for ``__``, upper and lower case are the same, and an empty value says nothing.
https://learn.microsoft.com/azure/azure-functions/functions-reference#connections
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from devstack.service import CannotStart

COSMOS_ADDRESS, SERVICEBUS_ADDRESS = "accountEndpoint", "fullyQualifiedNamespace"
"""What follows ``NAME__`` in the form for an identity."""

_PORTAL = re.compile(r"[a-z]+connstr_(?P<name>.+)", re.IGNORECASE)
"""How Azure hands over what the portal calls "Connection strings"; .NET reads them as ``ConnectionStrings__NAME``."""


@dataclass(frozen=True)
class Connection:
    """How to reach a service: with a connection string, or at an address with the host's identity."""

    setting: str
    """The setting that decides; a connection string in it would beat the address."""
    connection_string: str | None = field(default=None, repr=False)
    address: str = ""
    managed_identity: bool = False
    """False: use whatever sign-in is found, a developer's own included."""
    client_id: str | None = None
    """The client id of a user-assigned managed identity; None: the system-assigned one."""


class _Setting(NamedTuple):
    variable: str
    """As it is spelled in the environment."""
    value: str


def find_connection(environment: Mapping[str, str], name: str, address: str) -> Connection | None:
    """The connection ``name``, or None when nothing is set for it; ``address`` is the part that names its service.

    Raises CannotStart when the extensions of the Functions host would not read alike what is set.
    """
    _refuse_connection_strings(environment, name)
    prefixed = f"AzureWebJobs{name}"
    plain, other = _parts(environment, name), _parts(environment, prefixed)
    if plain and other:
        raise CannotStart(
            f"settings are there for {prefixed} and for {name}, and the triggers do not agree which to use: "
            f"remove those that begin with {prefixed}, empty ones too"
        )
    return _connection(prefixed, other, address) if other else _connection(name, plain, address)


def _parts(environment: Mapping[str, str], name: str) -> dict[str, _Setting]:
    """What is set for a name: the value of its own under "", others by the part after the name, in lower case."""
    found: dict[str, _Setting] = {}
    for variable, value in environment.items():
        owner, _, part = variable.replace("__", ":").lower().partition(":")
        if owner == name.lower():
            same = found.setdefault(part, _Setting(variable, value))
            if same.value != value:
                raise CannotStart(
                    f"{same.variable} and {variable} mean the same to the triggers, and differ: remove one of them"
                )
    return found


def _refuse_connection_strings(environment: Mapping[str, str], name: str) -> None:
    names = (name.lower(), f"azurewebjobs{name.lower()}")
    for part, setting in _parts(environment, "ConnectionStrings").items():
        if part.partition(":")[0] in names:
            raise CannotStart(
                f"{setting.variable} is not read by devstack: set {name} to its value in place of it"
            )
    for variable in environment:
        portal = _PORTAL.fullmatch(variable)
        if portal and portal["name"].lower() in names:
            raise CannotStart(
                f'{variable} comes from "Connection strings" in the portal, which devstack does not read: '
                f"make it the app setting {name} in place of that"
            )


def _connection(name: str, parts: Mapping[str, _Setting], address: str) -> Connection | None:
    said = {part: setting for part, setting in parts.items() if setting.value.strip()}
    if text := said.get(""):
        return Connection(text.variable, connection_string=text.value)
    if wrong := said.get("connectionstring"):
        raise CannotStart(
            f"{wrong.variable} is not read by the triggers: set {name} to its value in place of it"
        )
    if place := said.pop(address.lower(), None):
        return _with_identity(name, said, place, setting=parts[""].variable if "" in parts else name)
    if said:
        first = min(setting.variable for setting in said.values())
        raise CannotStart(
            f"{first} is set and {name}__{address} is not: set {name}__{address} to the service's address, "
            f"or remove {first}"
        )
    return None


def _with_identity(name: str, said: dict[str, _Setting], address: _Setting, *, setting: str) -> Connection:
    kind, client = said.pop("credential", None), said.pop("clientid", None)
    if kind and kind.value.lower() != "managedidentity":
        raise CannotStart(f"{kind.variable} is {kind.value!r}: set it to managedidentity, or remove it")
    if client and not kind:
        raise CannotStart(
            f"{client.variable} alone is not read by all versions of the triggers: "
            f"set {name}__credential to managedidentity too"
        )
    if said:
        other = min(setting.variable for setting in said.values())
        raise CannotStart(
            f"{other} is not read by devstack, and may give the triggers another identity in Azure: remove it "
            f"({name}__credential and {name}__clientId choose the identity)"
        )
    return Connection(
        setting,
        address=address.value,
        managed_identity=bool(kind),
        client_id=client.value if client else None,
    )

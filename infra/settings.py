"""Settings come from the environment, once, into a frozen object; a missing or wrong one is named.

A connection is read in the forms that the Functions host accepts for its triggers, so both always use the same one:
``NAME`` holds a connection string, or ``NAME__accountEndpoint`` / ``NAME__fullyQualifiedNamespace`` an address that is
used with an identity. The exact name beats the prefix, and ``AzureWebJobsNAME`` beats ``NAME``, as in the host.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.errors import Misconfigured

TTL_MAX = 2_147_483_647
"""Cosmos DB's own limit for ``ttl``, in seconds."""


@dataclass(frozen=True)
class Connection:
    """How to reach a service: with a connection string (emulators), or at an address with an identity."""

    connection_string: str | None = field(default=None, repr=False)
    address: str = ""
    client_id: str | None = None
    """The client id of a user-assigned identity; None: the system-assigned one, or a developer's own sign-in."""
    managed_identity_only: bool = False


@dataclass(frozen=True)
class Settings:
    """Everything that differs between one deployment and another."""

    cosmos: Connection
    cosmos_database: str
    cosmos_container: str
    cosmos_lease_container: str
    cosmos_parked_container: str
    servicebus: Connection
    servicebus_topic: str
    servicebus_topic_partitioned: bool
    event_ttl_seconds: int
    """How long event documents, and the tombstones of deleted contacts, are kept: longer than any outage."""
    idempotency_ttl_seconds: int
    """How long the repetition of a request with an ``Idempotency-Key`` gets the first answer."""


def load(environment: Mapping[str, str]) -> Settings:
    """The settings in ``environment``. Raises Misconfigured, naming the setting that is missing or wrong."""
    return Settings(
        cosmos=_connection(environment, "COSMOS", "accountEndpoint"),
        cosmos_database=environment.get("COSMOS_DATABASE") or "contacts",
        cosmos_container=environment.get("COSMOS_CONTAINER") or "contacts",
        cosmos_lease_container=environment.get("COSMOS_LEASE_CONTAINER") or "leases",
        cosmos_parked_container=environment.get("COSMOS_PARKED_CONTAINER") or "parked-events",
        servicebus=_connection(environment, "SERVICEBUS", "fullyQualifiedNamespace"),
        servicebus_topic=environment.get("SERVICEBUS_TOPIC") or "contact-events",
        servicebus_topic_partitioned=_flag(environment, "SERVICEBUS_TOPIC_PARTITIONED"),
        event_ttl_seconds=_seconds(environment, "EVENT_TTL_SECONDS", default=864_000),
        idempotency_ttl_seconds=_seconds(environment, "IDEMPOTENCY_TTL_SECONDS", default=86_400),
    )


def _connection(environment: Mapping[str, str], name: str, address: str) -> Connection:
    for prefix in (f"AzureWebJobs{name}", name):
        text = environment.get(prefix) or environment.get(f"{prefix}__connectionString")
        if text:
            return Connection(connection_string=text)
        if value := environment.get(f"{prefix}__{address}"):
            kind = environment.get(f"{prefix}__credential", "")
            if kind.lower() not in ("", "managedidentity"):
                raise Misconfigured(
                    f"{prefix}__credential is {kind!r}: set it to managedidentity, or leave it out"
                )
            return Connection(
                address=value,
                client_id=environment.get(f"{prefix}__clientId") or None,
                managed_identity_only=bool(kind),
            )
    raise Misconfigured(
        f"neither {name} nor {name}__{address} is set: set {name}__{address} to use an identity, "
        f"or {name} to a connection string (for emulators; local.settings.sample.json has one)"
    )


def _flag(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "").lower()
    if text not in ("", "true", "false"):
        raise Misconfigured(f"{name} is {text!r}: set it to true or false")
    return text == "true"


def _seconds(environment: Mapping[str, str], name: str, *, default: int) -> int:
    text = environment.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= TTL_MAX):
        raise Misconfigured(f"{name} is {text!r}: set it to a number of seconds from 1 to {TTL_MAX}")
    return int(text)

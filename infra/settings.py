"""Settings are read from the environment once, into a frozen object; an error names the missing or wrong setting."""

from collections.abc import Mapping
from dataclasses import dataclass

from infra.connections import Connection, resolve
from infra.errors import Misconfigured

TTL_MAX = 2_147_483_647
"""Cosmos DB's own limit for ``ttl``, in seconds."""


@dataclass(frozen=True)
class Settings:
    """The values that differ between one deployment and another."""

    cosmos: Connection
    cosmos_database: str
    cosmos_container: str
    cosmos_lease_container: str
    cosmos_parked_container: str
    cosmos_directory_container: str
    cosmos_set_aside_container: str
    servicebus: Connection
    servicebus_topic: str
    servicebus_topic_partitioned: bool
    servicebus_subscription: str
    event_ttl_seconds: int
    """How long event documents, and the tombstones of deleted aggregates, are kept: longer than any outage."""
    idempotency_ttl_seconds: int
    """How long the repetition of a request with an ``Idempotency-Key`` gets the first answer."""


def load(environment: Mapping[str, str]) -> Settings:
    """The settings in ``environment``. Raises Misconfigured, naming the setting that is missing or wrong."""
    return Settings(
        cosmos=resolve(environment, "COSMOS", "accountEndpoint"),
        cosmos_database=environment.get("COSMOS_DATABASE") or "contacts",
        cosmos_container=environment.get("COSMOS_CONTAINER") or "contacts",
        cosmos_lease_container=environment.get("COSMOS_LEASE_CONTAINER") or "leases",
        cosmos_parked_container=environment.get("COSMOS_PARKED_CONTAINER") or "parked-events",
        cosmos_directory_container=environment.get("COSMOS_DIRECTORY_CONTAINER") or "directory",
        cosmos_set_aside_container=environment.get("COSMOS_SET_ASIDE_CONTAINER") or "set-aside",
        servicebus=resolve(environment, "SERVICEBUS", "fullyQualifiedNamespace"),
        servicebus_topic=environment.get("SERVICEBUS_TOPIC") or "contact-events",
        servicebus_topic_partitioned=_flag(environment, "SERVICEBUS_TOPIC_PARTITIONED"),
        servicebus_subscription=environment.get("SERVICEBUS_SUBSCRIPTION") or "contact-directory",
        event_ttl_seconds=_seconds(environment, "EVENT_TTL_SECONDS", default=864_000),
        idempotency_ttl_seconds=_seconds(environment, "IDEMPOTENCY_TTL_SECONDS", default=86_400),
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

"""Settings are read from the environment once, into a frozen object; an error names the missing or wrong setting."""

from collections.abc import Mapping
from dataclasses import dataclass

from infra.connections import Connection, resolve
from infra.errors import Misconfigured
from outbox.claims import LONGEST_REQUEST_SECONDS

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
    cosmos_claim_container: str
    servicebus: Connection
    servicebus_topic: str
    servicebus_topic_partitioned: bool
    servicebus_subscription: str
    event_ttl_seconds: int
    """How long event documents, and the tombstones of deleted aggregates, are kept: longer than any outage."""
    parked_max_age_seconds: int
    """How long an event that cannot be sent is kept before it is discarded."""
    relay_send_seconds: int
    """How long the relay sends before it looks again for parked events; a discarding waits as long."""
    idempotency_ttl_seconds: int
    """How long the repetition of a request with an ``Idempotency-Key`` gets the first answer."""
    idempotency_old_records: bool
    """Whether repetitions of requests that a version before 2026-11-22 has answered get that answer."""
    platform_authenticates: bool
    """Whether App Service authentication is on, so that callers cannot write the headers of a principal."""


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
        cosmos_claim_container=environment.get("COSMOS_CLAIM_CONTAINER") or "claims",
        servicebus=resolve(environment, "SERVICEBUS", "fullyQualifiedNamespace"),
        servicebus_topic=environment.get("SERVICEBUS_TOPIC") or "contact-events",
        servicebus_topic_partitioned=_flag(environment, "SERVICEBUS_TOPIC_PARTITIONED"),
        servicebus_subscription=environment.get("SERVICEBUS_SUBSCRIPTION") or "contact-directory",
        event_ttl_seconds=_seconds(environment, "EVENT_TTL_SECONDS", default=864_000),
        parked_max_age_seconds=_seconds(environment, "PARKED_MAX_AGE_SECONDS", default=2_592_000),
        relay_send_seconds=_seconds(environment, "RELAY_SEND_SECONDS", default=60),
        idempotency_ttl_seconds=_seconds(
            environment, "IDEMPOTENCY_TTL_SECONDS", default=86_400, least=2 * int(LONGEST_REQUEST_SECONDS)
        ),
        idempotency_old_records=_flag(environment, "IDEMPOTENCY_OLD_RECORDS"),
        platform_authenticates=environment.get("WEBSITE_AUTH_ENABLED", "").lower() == "true",
    )


def _flag(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "").lower()
    if text not in ("", "true", "false"):
        raise Misconfigured(f"{name} is {text!r}: set it to true or false")
    return text == "true"


def _seconds(environment: Mapping[str, str], name: str, *, default: int, least: int = 1) -> int:
    text = environment.get(name) or str(default)
    if not (text.isascii() and text.isdigit() and least <= int(text) <= TTL_MAX):
        raise Misconfigured(f"{name} is {text!r}: set it to a number of seconds from {least} to {TTL_MAX}")
    return int(text)

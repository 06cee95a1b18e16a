"""Settings are read from the environment once, into a frozen object; an error names the missing or wrong setting."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cosmos_outbox.outbox.idempotency import LONGEST_REQUEST_SECONDS
from cosmos_outbox.settings.connections import Connection, resolve
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.names import Named, Names, number
from cosmos_outbox.settings.transports import Declared, Transport, load_transport

TTL_MAX = 2_147_483_647
"""Cosmos DB's own limit for ``ttl``, in seconds."""

EVENT_TTL_SECONDS = 864_000

LEAST_SEND_SECONDS = 5
"""One more than a call of the store may take (:data:`cosmos_outbox.cosmos.store.container.DEADLINE_SECONDS`): in less,
the time could be over each time before the parked events are read and a connection is open, and nothing would ever be
sent."""

LONGEST_SEND_SECONDS = 120
"""Less than a page of the feed is given in all (:data:`cosmos_outbox.cosmos.relay.forwarding.FORWARD_SECONDS`): a page
that is cut off there begins anew, while a page that has sent for its time goes on with what is left."""

_ABSOLUTE_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9\-._~:/?@!$&'()*+,;=%]+")
"""RFC 3986, 4.3: what CloudEvents takes as ``dataschema``."""


@dataclass(frozen=True)
class FeedSettings:
    """How the relay reads the change feed. Apart from the others, since the host needs them to list the functions."""

    lease_prefix: str
    """Another reader of the container needs another prefix: with one prefix, each change goes to one of the two."""
    max_items: int
    """Items in a page; a page may hold more, because a transaction is never split."""
    poll_delay_ms: int
    """The pause after the feed had nothing new."""


@dataclass(frozen=True)
class TelemetrySettings:
    """Where metrics and traces go to; nowhere, unless a setting says so."""

    application_insights: str | None = field(repr=False)
    """The connection string of Application Insights."""
    otlp: bool
    """Whether OTEL_EXPORTER_OTLP_ENDPOINT is set: the exporter reads it, and the others of its kind, itself."""
    prometheus: bool = False
    """Whether OTEL_METRICS_EXPORTER names prometheus: then a worker answers GET /metrics where it answers probes."""

    @property
    def wanted(self) -> bool:
        """Whether anything is to be exported."""
        return self.otlp or self.prometheus or bool(self.application_insights)


@dataclass(frozen=True)
class SubscriberSettings:
    """What every service needs that subscribes; of one that publishes too see :class:`Settings`."""

    transport: Transport
    """What events are sent over, and received from."""
    event_ttl_seconds: int
    """How long event documents, and the tombstones of deleted aggregates, are kept: longer than any outage. A message
    that cannot be applied is tried for as long."""
    parked_max_age_seconds: int
    """How long an event that cannot be sent is kept before it is discarded."""
    telemetry: TelemetrySettings
    named: Mapping[str, str]
    """The values of the settings that name what the subscribers use."""

    def name(self, named: Named) -> str:
        """What a subscription or container is called. Raises KeyError: the service does not declare it."""
        return self.named[named.setting]


@dataclass(frozen=True)
class Settings(SubscriberSettings):
    """The values that differ between one deployment and another."""

    cosmos: Connection
    cosmos_database: str
    cosmos_container: str
    cosmos_lease_container: str
    cosmos_parked_container: str
    cosmos_set_aside_container: str
    cosmos_claim_container: str
    event_schemas: str | None
    """The URI under which the schemas of the events are published, without a slash at the end; None: they are not."""
    feed: FeedSettings
    relay_senders: int
    """How many batches are under way at once; each takes a connection to Service Bus."""
    relay_send_seconds: int
    """How long the relay sends before it looks again for parked events; a discarding waits as long."""
    idempotency_ttl_seconds: int
    """How long the repetition of a request with an ``Idempotency-Key`` gets the first answer."""
    shed_load_after_seconds: int | None
    """From which age of the oldest waiting event on changes are refused; None: never."""
    platform_authenticates: bool
    """Whether App Service authentication is on, so that callers cannot write the headers of a principal."""


def load(
    environment: Mapping[str, str],
    names: Names,
    also: Iterable[Named] = (),
    transport: Declared | None = None,
) -> Settings:
    """The settings in ``environment``, for a service with these names; ``also``: those of its subscribers.

    ``transport``: None: Service Bus.

    Raises Misconfigured, naming the setting that is missing or wrong.
    """
    called = names.resolve(environment)
    return Settings(
        cosmos=resolve(environment, "COSMOS", "accountEndpoint"),
        cosmos_database=called["database"],
        cosmos_container=called["container"],
        cosmos_lease_container=called["leases"],
        cosmos_parked_container=called["parked"],
        cosmos_set_aside_container=called["set_aside"],
        cosmos_claim_container=called["claims"],
        **vars(load_subscriber(environment, transport or Declared(names.topic_named), also)),
        event_schemas=_uri(environment, "EVENT_SCHEMAS"),
        feed=load_feed(environment),
        relay_senders=number(environment, "RELAY_SENDERS", default=6, lowest=1, highest=100),
        relay_send_seconds=_send_seconds(environment),
        idempotency_ttl_seconds=load_seconds(
            environment, "IDEMPOTENCY_TTL_SECONDS", default=86_400, least=2 * int(LONGEST_REQUEST_SECONDS)
        ),
        shed_load_after_seconds=_shed_load_after(environment),
        platform_authenticates=environment.get("WEBSITE_AUTH_ENABLED", "").lower() == "true",
    )


def load_telemetry(environment: Mapping[str, str]) -> TelemetrySettings:
    """Where metrics and traces go to."""
    return TelemetrySettings(
        application_insights=environment.get("APPLICATIONINSIGHTS_CONNECTION_STRING") or None,
        otlp=bool(environment.get("OTEL_EXPORTER_OTLP_ENDPOINT")),
        prometheus="prometheus" in environment.get("OTEL_METRICS_EXPORTER", "").replace(" ", "").split(","),
    )


def shown(settings: Settings) -> dict[str, str | int | bool | None]:
    """The settings that an operator may see, by their names: each is listed here, and none holds a secret."""
    return {
        "COSMOS__accountEndpoint": settings.cosmos.address or "(a connection string)",
        "COSMOS_DATABASE": settings.cosmos_database,
        "COSMOS_CONTAINER": settings.cosmos_container,
        "COSMOS_LEASE_CONTAINER": settings.cosmos_lease_container,
        "COSMOS_PARKED_CONTAINER": settings.cosmos_parked_container,
        "TRANSPORT": settings.transport.name,
        **settings.transport.shown(),
        **settings.named,
        "EVENT_SCHEMAS": settings.event_schemas,
        "EVENT_TTL_SECONDS": settings.event_ttl_seconds,
        "PARKED_MAX_AGE_SECONDS": settings.parked_max_age_seconds,
        "IDEMPOTENCY_TTL_SECONDS": settings.idempotency_ttl_seconds,
        "RELAY_LEASE_PREFIX": settings.feed.lease_prefix,
        "RELAY_MAX_ITEMS": settings.feed.max_items,
        "RELAY_POLL_DELAY_MS": settings.feed.poll_delay_ms,
        "RELAY_SENDERS": settings.relay_senders,
        "RELAY_SEND_SECONDS": settings.relay_send_seconds,
        "SHED_LOAD_AFTER_SECONDS": settings.shed_load_after_seconds,
    }


def _shed_load_after(environment: Mapping[str, str]) -> int | None:
    if environment.get("SHED_LOAD_AFTER_SECONDS", "0") in ("", "0"):
        return None
    highest = load_seconds(environment, "EVENT_TTL_SECONDS", default=EVENT_TTL_SECONDS)
    return number(environment, "SHED_LOAD_AFTER_SECONDS", default=0, lowest=5, highest=highest)


def _send_seconds(environment: Mapping[str, str]) -> int:
    seconds = number(environment, "RELAY_SEND_SECONDS", default=60, lowest=1, highest=LONGEST_SEND_SECONDS)
    if seconds < LEAST_SEND_SECONDS:
        raise Misconfigured(
            f"RELAY_SEND_SECONDS is {seconds}: set it to {LEAST_SEND_SECONDS} or more. In less time the store may "
            "not have told which events are parked, or no connection to the topic may be open, and then nothing is "
            "ever sent"
        )
    return seconds


def _uri(environment: Mapping[str, str], name: str) -> str | None:
    text = environment.get(name, "")
    if text and not _ABSOLUTE_URI.fullmatch(text):
        raise Misconfigured(
            f"{name} is {text!r}: set it to an absolute URI without a fragment, such as "
            "https://schemas.example.com/events, or remove it"
        )
    return text.rstrip("/") or None


def load_feed(environment: Mapping[str, str]) -> FeedSettings:
    """How the relay reads the feed. Raises Misconfigured, naming the setting that is wrong."""
    prefix = environment.get("RELAY_LEASE_PREFIX") or "relay-"
    if not re.fullmatch(r"[\w.-]{1,50}", prefix, re.ASCII):
        raise Misconfigured(
            f"RELAY_LEASE_PREFIX is {prefix!r}: set it to at most 50 letters, digits, dots, dashes and underscores"
        )
    return FeedSettings(
        lease_prefix=prefix,
        max_items=number(environment, "RELAY_MAX_ITEMS", default=1_000, lowest=1, highest=5_000),
        poll_delay_ms=number(environment, "RELAY_POLL_DELAY_MS", default=500, lowest=10, highest=60_000),
    )


def load_seconds(environment: Mapping[str, str], name: str, *, default: int, least: int = 1) -> int:
    """A time, as the store can keep it. Raises Misconfigured."""
    return number(environment, name, default=default, lowest=least, highest=TTL_MAX)


def load_subscriber(
    environment: Mapping[str, str], transport: Declared, also: Iterable[Named]
) -> SubscriberSettings:
    """The settings in ``environment``. Raises Misconfigured, naming the setting that is missing or wrong."""
    return SubscriberSettings(
        transport=load_transport(environment, transport),
        event_ttl_seconds=load_seconds(environment, "EVENT_TTL_SECONDS", default=EVENT_TTL_SECONDS),
        parked_max_age_seconds=load_seconds(environment, "PARKED_MAX_AGE_SECONDS", default=1_728_000),
        telemetry=load_telemetry(environment),
        named={each.setting: each.resolve(environment) for each in also},
    )

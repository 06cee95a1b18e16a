"""Reads the settings from the environment once, into a frozen object; errors name the missing or wrong setting."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import field

from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate import LONGEST_REQUEST_SECONDS
from cosmos_outbox.settings.connections import Connection, resolve
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.names import Named, Names, number
from cosmos_outbox.settings.transports import Declared, Transport, load_transport

LEASE_ACQUIRE_MS = 3_000
LEASE_RENEW_MS = 4_000
LEASE_EXPIRATION_MS = 15_000
"""The lifetime of leases, alike in a Functions app and in a worker, so either can take over, in milliseconds, as in the
trigger. A crashed instance's events wait until its leases expire; the trigger's default is 60 s."""

TTL_MAX = 2_147_483_647
"""Cosmos DB's own limit for ``ttl``, in seconds."""

EVENT_TTL_SECONDS = 864_000

LEAST_SEND_SECONDS = 5
"""One more than a call of the store may take (:data:`cosmos_outbox.cosmos.store.container.DEADLINE_SECONDS`). With less
time, reading the parked events and opening a connection could use all of it each time, and nothing would ever be
sent."""

LONGEST_SEND_SECONDS = 120
"""Less than the whole time of a page of the feed (:data:`cosmos_outbox.cosmos.relay.forwarding.FORWARD_SECONDS`): a
page that is cancelled there begins again, while a page that ends its sending in time continues with the rest."""

_ABSOLUTE_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9\-._~:/?@!$&'()*+,;=%]+")
"""A URI as CloudEvents takes it as ``dataschema``: RFC 3986, 4.3."""


@dataclass(frozen=True)
class FeedSettings:
    """The relay's settings of the change feed. Kept apart because the host needs them to list the functions."""

    lease_prefix: str
    """The prefix of the leases. Another reader of the container needs another one, or the two share the changes."""
    max_items: int
    """The number of items in a page; a page may hold more, because a transaction is never split."""
    poll_delay_ms: int
    """The pause after the feed returned nothing new."""


@dataclass(frozen=True)
class TelemetrySettings:
    """The targets of metrics and traces; none unless a setting names one."""

    application_insights: str | None = field(repr=False)
    """The connection string of Application Insights."""
    otlp: bool
    """Whether OTEL_EXPORTER_OTLP_ENDPOINT is set: the exporter reads it and its related settings itself."""
    prometheus: bool = False
    """Whether OTEL_METRICS_EXPORTER names prometheus: then a worker serves GET /metrics where it serves probes."""

    @property
    def wanted(self) -> bool:
        """Whether anything is exported."""
        return self.otlp or self.prometheus or bool(self.application_insights)


@dataclass(frozen=True)
class SubscriberSettings:
    """The settings of every service that subscribes; for one that also publishes see :class:`Settings`."""

    transport: Transport
    """The transport over which events are sent and received."""
    event_ttl_seconds: int
    """How long event documents and the tombstones of deleted aggregates are kept: longer than any outage. A message
    that cannot be applied is retried for as long."""
    parked_max_age_seconds: int
    """How long an event that cannot be sent is kept before it is discarded."""
    telemetry: TelemetrySettings
    named: Mapping[str, str]
    """The values of the settings that name subscriptions and containers of the subscribers."""

    def name(self, named: Named) -> str:
        """Returns the name of a subscription or container. Raises KeyError: the service does not declare it."""
        return self.named[named.setting]

    @property
    def records_seconds(self) -> int:
        """How long a message's record lives: an event may wait stored, parked, set aside, and for its dead letter.

        Raises Misconfigured: longer than a store keeps anything.
        """
        from cosmos_outbox.inbox.receiver import MARGIN  # noqa: PLC0415 - not where nothing is received

        seconds = 3 * self.event_ttl_seconds + self.parked_max_age_seconds + int(MARGIN.total_seconds())
        if seconds > TTL_MAX:
            raise Misconfigured(
                f"the records of handled messages have to be kept for {seconds} s, and the store keeps nothing longer "
                f"than {TTL_MAX} s: lower EVENT_TTL_SECONDS or PARKED_MAX_AGE_SECONDS"
            )
        return seconds


@dataclass(frozen=True)
class Settings(SubscriberSettings):
    """The settings that differ between deployments."""

    cosmos: Connection
    cosmos_database: str
    cosmos_container: str
    cosmos_lease_container: str
    cosmos_parked_container: str
    cosmos_set_aside_container: str
    cosmos_claim_container: str
    event_schemas: str | None
    """The URI under which the events' schemas are published, without a final slash; None: they are not published."""
    feed: FeedSettings
    relay_senders: int
    """The number of batches that are sent at once; each uses a connection to Service Bus."""
    relay_send_seconds: int
    """How long the relay sends before it checks the parked events again; discarding an event waits as long."""
    idempotency_ttl_seconds: int
    """How long a repeated request with an ``Idempotency-Key`` gets the first answer."""
    shed_load_after_seconds: int | None
    """The age of the oldest waiting event from which changes are refused; None: never."""
    platform_authenticates: bool
    """Whether App Service authentication is on, so that callers cannot set the headers of a principal."""


def load(
    environment: Mapping[str, str],
    names: Names,
    also: Iterable[Named] = (),
    transport: Declared | None = None,
) -> Settings:
    """Returns the settings in ``environment``, for a service with these names; ``also``: those of its subscribers.

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
        relay_send_seconds=number(
            environment,
            "RELAY_SEND_SECONDS",
            default=60,
            lowest=LEAST_SEND_SECONDS,
            highest=LONGEST_SEND_SECONDS,
        ),
        idempotency_ttl_seconds=load_seconds(
            environment, "IDEMPOTENCY_TTL_SECONDS", default=86_400, least=2 * int(LONGEST_REQUEST_SECONDS)
        ),
        shed_load_after_seconds=_shed_load_after(environment),
        platform_authenticates=environment.get("WEBSITE_AUTH_ENABLED", "").lower() == "true",
    )


def load_telemetry(environment: Mapping[str, str]) -> TelemetrySettings:
    """Returns the targets of metrics and traces."""
    return TelemetrySettings(
        application_insights=environment.get("APPLICATIONINSIGHTS_CONNECTION_STRING") or None,
        otlp=bool(environment.get("OTEL_EXPORTER_OTLP_ENDPOINT")),
        prometheus="prometheus" in environment.get("OTEL_METRICS_EXPORTER", "").replace(" ", "").split(","),
    )


def shown(settings: Settings) -> dict[str, str | int | bool | None]:
    """Returns the settings that an operator may see, by name: each is listed here, and none holds a secret."""
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


def _uri(environment: Mapping[str, str], name: str) -> str | None:
    text = environment.get(name, "")
    if text and not _ABSOLUTE_URI.fullmatch(text):
        raise Misconfigured(
            f"{name} is {text!r}: set it to an absolute URI without a fragment, such as "
            "https://schemas.example.com/events, or remove it"
        )
    return text.rstrip("/") or None


def load_feed(environment: Mapping[str, str]) -> FeedSettings:
    """Returns the relay's settings of the feed. Raises Misconfigured, naming the setting that is wrong."""
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
    """Returns a time in seconds that the store supports. Raises Misconfigured."""
    return number(environment, name, default=default, lowest=least, highest=TTL_MAX)


def load_subscriber(
    environment: Mapping[str, str], transport: Declared, also: Iterable[Named]
) -> SubscriberSettings:
    """Returns the settings in ``environment``. Raises Misconfigured, naming the setting that is missing or wrong."""
    return SubscriberSettings(
        transport=load_transport(environment, transport),
        event_ttl_seconds=load_seconds(environment, "EVENT_TTL_SECONDS", default=EVENT_TTL_SECONDS),
        parked_max_age_seconds=load_seconds(environment, "PARKED_MAX_AGE_SECONDS", default=1_728_000),
        telemetry=load_telemetry(environment),
        named={each.setting: each.resolve(environment) for each in also},
    )

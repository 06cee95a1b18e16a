"""The settings of a service that only subscribes: a connection to the broker, and what its own store asks for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cosmos_outbox.settings.environment import (
    EVENT_TTL_SECONDS,
    TelemetrySettings,
    load_seconds,
    load_telemetry,
)
from cosmos_outbox.settings.names import Named
from cosmos_outbox.settings.transports import Declared, Transport, load_transport


@dataclass(frozen=True)
class SubscriberSettings:
    """The values that differ between one deployment and another."""

    transport: Transport
    """What messages are received from."""
    event_ttl_seconds: int
    """How long the publisher keeps its events, and how long a message that cannot be applied is tried here."""
    parked_max_age_seconds: int
    """How long the publisher keeps an event that it cannot send."""
    telemetry: TelemetrySettings
    named: Mapping[str, str]
    """The values of the settings that name what the subscribers use."""

    @property
    def transports(self) -> Sequence[Transport]:
        """The only one."""
        return [self.transport]

    def name(self, named: Named) -> str:
        """What a subscription is called. Raises KeyError: the service does not declare it."""
        return self.named[named.setting]


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

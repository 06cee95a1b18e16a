"""What is to be checked: the settings, what the service needs, and the outage that its deployment must survive."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from cosmos_outbox.cosmos.inbox.store import CosmosDatabase
from cosmos_outbox.preflight import containers
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.settings.subscribing import SubscriberSettings
from cosmos_outbox.wiring.located import AnyService
from cosmos_outbox.wiring.reactions import ReactionOf
from cosmos_outbox.wiring.service import Service


@dataclass(frozen=True)
class Cosmos:
    """The account to check, and what the service needs there."""

    connection: Connection
    database: str
    needed: tuple[containers.Needed, ...]


@dataclass(frozen=True)
class Plan:
    """The settings to check, and the outage that the deployment must survive."""

    settings: Settings | SubscriberSettings
    service: AnyService
    cosmos: Cosmos | None
    """None: the service has no store there."""
    other_subscriptions: tuple[str, ...]
    """Subscriptions beside those of the service, which are checked in the same way."""
    survive: timedelta
    as_app: bool
    """True: the run uses the app's own identity, and also tries what the app does."""
    emulator_port: int
    """The port of an emulator's management API; a real namespace does not use it."""

    @property
    def subscriptions(self) -> tuple[tuple[str, str], ...]:
        """Those of the service, each after what its messages are sent to."""
        own, name = self.settings.transport, self.settings.name
        return tuple(
            (
                (
                    own.beside(name(each.topic)) if isinstance(each, ReactionOf) and each.topic else own
                ).destination,
                name(each.subscription),
            )
            for each in self.service.subscribers
        )


def plan_for(service: AnyService, values: Mapping[str, str], **others: Any) -> Plan:
    """What is to be checked of a service with these settings. Raises Misconfigured."""
    if isinstance(service, Service):
        settings = service.settings(values)
        needed = containers.needed(settings, service)
        return Plan(settings, service, Cosmos(settings.cosmos, settings.cosmos_database, needed), **others)
    cosmos = None
    if isinstance(service.store, CosmosDatabase):
        names = service.store.names(values)
        needed = containers.needed_by_subscriber(names, service)
        cosmos = Cosmos(names.connection, names.database, needed)
    return Plan(service.settings(values), service, cosmos, **others)

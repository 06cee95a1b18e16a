"""A service has a canary where the setting CANARY says so: a subscriber of its own that nobody declares."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from cosmos_outbox.cosmos.inbox.heard import CosmosHeard
from cosmos_outbox.inbox.canary import Listener
from cosmos_outbox.inbox.reading import MessageReader
from cosmos_outbox.outbox.canary import TYPE
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.settings.names import Named
from cosmos_outbox.telemetry import gauges
from cosmos_outbox.wiring.outbox import Outbox
from cosmos_outbox.wiring.subscription import Subscription, wire_subscriber

T = TypeVar("T")


@dataclass(frozen=True)
class CanaryOf:
    """What listens to the canary."""

    subscription: Named
    name: str = TYPE
    aggregate_type: str = TYPE

    def wire(self, settings: Settings, outbox: Outbox) -> Subscription:
        """Its subscriber. Opens no connection."""
        subscription, reader = self.subscription.resolve({}), MessageReader(TYPE)
        records = outbox.container(settings.cosmos_set_aside_container)
        listener = Listener(CosmosHeard(records, subscription), gauges.canary)
        return Subscription(wire_subscriber(settings, outbox, subscription, reader.read, listener.handle))


def with_canary(subscribers: Sequence[T], canary: str | None) -> list[T | CanaryOf]:
    """The subscribers of a service and, where there is a canary, what listens to it at the subscription ``canary``."""
    return [*subscribers, *([CanaryOf(Named("CANARY_SUBSCRIPTION", canary))] if canary else [])]

"""Connects a simulated process to its transport by the service's own code, over the double of the other side."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from cosmos_outbox.composition import transports
from cosmos_outbox.composition.transports import Clients
from cosmos_outbox.operations.subscriber import Queues
from cosmos_outbox.outbox.publisher import CloudEvents, Publisher
from cosmos_outbox.settings.environment import Settings, SubscriberSettings
from cosmos_outbox.settings.transports import Name, StorageQueue, Webhook, servicebus_of
from devstack.settings import SERVICEBUS_CONNECTION
from outbox_simulation.engine import storage_queues, webhook_double
from outbox_simulation.engine.bus import Bus
from outbox_simulation.engine.bus_client import queues as bus_queues
from outbox_simulation.engine.bus_publisher import BusPublisher
from outbox_simulation.engine.bus_queue import Rules
from outbox_simulation.engine.fault_injection import FaultyTransport
from outbox_simulation.engine.storage_queues import StorageQueues
from outbox_simulation.engine.webhook_double import Posts, TakesPosts

SETTINGS: Mapping[Name, Mapping[str, str]] = {
    "servicebus": {"SERVICEBUS": SERVICEBUS_CONNECTION.format("bus.invalid")},
    "storagequeue": {"STORAGEQUEUE": storage_queues.CONNECTION},
    "webhook": {"WEBHOOK_URL": webhook_double.URL, "WEBHOOK_SECRETS": webhook_double.SECRET},
}
"""The doubles by transport."""

_NO_WINDOW = Rules(duplicate_window_seconds=0.0)


def settings_over(transport: Name) -> dict[str, str]:
    """Returns the transport's settings in a process's environment."""
    return {"TRANSPORT": transport, **SETTINGS[transport]}


def other_side(
    settings: Settings,
    *subscriptions: str,
    rules: Rules,
    receiver: Callable[[], TakesPosts] | None,
    **base: Any,
) -> FaultyTransport:
    """Returns the double of the settings' transport. ``receiver``: of a webhook."""
    if isinstance(settings.transport, StorageQueue):
        return StorageQueues(*subscriptions, rules=_NO_WINDOW, **base)
    if isinstance(settings.transport, Webhook):
        assert receiver is not None, "a service that is simulated over a webhook has a receiver"
        return Posts(receiver(), rules=_NO_WINDOW, **base)
    return Bus(*subscriptions, rules=rules, **base)


def clients_of(bus: FaultyTransport) -> Clients:
    """Returns one process's clients of it."""
    match bus:
        case Bus():
            return Clients(
                publisher=lambda settings, source, _: BusPublisher(
                    bus,
                    source=source,
                    sessions=servicebus_of(settings.transport).sessions,
                ),
                queues=lambda _settings, _resources, subscription: bus_queues(bus, subscription),
            )
        case StorageQueues():
            return Clients(publisher=partial(_to_queues, bus), queues=partial(_from_queues, bus))
        case Posts():
            return Clients(publisher=partial(_to_receiver, bus))
        case _:
            return Clients()


def _to_receiver(bus: Posts, settings: Settings, source: str, resources: AsyncExitStack) -> Publisher:
    assert isinstance(settings.transport, Webhook)
    service = CloudEvents(source, settings.event_schemas)
    return transports.webhook_publisher(settings.transport, settings, service, resources, bus.session())


def _to_queues(bus: StorageQueues, settings: Settings, source: str, resources: AsyncExitStack) -> Publisher:
    assert isinstance(settings.transport, StorageQueue)
    service = CloudEvents(source, settings.event_schemas)
    return transports.storagequeue_publisher(settings.transport, settings, service, resources, bus.http)


def _from_queues(
    bus: StorageQueues, settings: SubscriberSettings, resources: AsyncExitStack, subscription: str
) -> Queues:
    assert isinstance(settings.transport, StorageQueue)
    return transports.storagequeue_queues(settings.transport, resources, subscription, bus.http)


def import_all() -> None:
    """Imports lazily imported modules before the run: an import opens files, and takes time."""
    from cosmos_outbox.servicebus import publisher, sessions  # noqa: F401, PLC0415
    from cosmos_outbox.storagequeue import receiver  # noqa: F401, PLC0415
    from cosmos_outbox.webhook import publisher as webhooks  # noqa: F401, PLC0415
    from cosmos_outbox.worker import relay, subscriber  # noqa: F401, PLC0415

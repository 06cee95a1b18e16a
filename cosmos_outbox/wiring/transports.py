"""Each transport has one row here: how its publisher is made, its messages are received, and its state is looked at.

The row is found by the name of the settings' transport; nothing else chooses by it but the trigger
(``cosmos_outbox/functions/receiving.py``) and the checks before a start (``cosmos_outbox/preflight``).
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from cosmos_outbox.outbox.cloud_events import CloudEvents
from cosmos_outbox.outbox.publisher import Publisher
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.settings.extras import needed
from cosmos_outbox.settings.transports import Name, Transport
from cosmos_outbox.wiring import servicebus, storagequeue, webhook
from cosmos_outbox.wiring.receiving import Queues, Received

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TransportKind:
    """What is made of a transport's settings, which are the first argument of each call."""

    service: str
    """What operators call it."""
    extra: str
    """What has to be installed."""
    publisher: Callable[[Any, Settings, CloudEvents, AsyncExitStack], Publisher]
    """Opens nothing; ``resources`` closes what it makes."""
    queues: Callable[[Any, AsyncExitStack, str], Queues]
    """What receives the messages of a subscription. Opens nothing."""
    check: Callable[[Any], Awaitable[float | None]]
    """As of :class:`cosmos_outbox.operations.dependencies.Dependency`."""


KINDS: Mapping[Name, TransportKind] = {
    "storagequeue": TransportKind(
        "Storage queues", "storagequeue", storagequeue.publisher, storagequeue.queues, storagequeue.check
    ),
    "servicebus": TransportKind(
        "Service Bus", "servicebus", servicebus.publisher, servicebus.queues, servicebus.check
    ),
    "webhook": TransportKind("The receiver", "webhook", webhook.publisher, webhook.queues, webhook.check),
}


def kind_of(transport: Transport) -> TransportKind:
    """The row of a transport."""
    return KINDS[transport.name]


def needed_over(name: Name) -> None:
    """Returns if the transport's packages are installed. Raises Misconfigured, which says what to install."""
    needed(KINDS[name].extra)


def publisher(settings: Settings, source: str, resources: AsyncExitStack) -> Publisher:
    """What sends the events of the service ``source``. Raises Misconfigured: a package is missing."""
    kind = kind_of(settings.transport)
    needed(kind.extra)
    made = kind.publisher(
        settings.transport, settings, CloudEvents(source, settings.event_schemas), resources
    )
    for missing in made.guarantees.left_to_subscribers():
        _log.warning("%s", missing)
    return made


def queues(settings: Received, resources: AsyncExitStack, subscription: str) -> Queues:
    """What receives the messages of a subscription. Raises Misconfigured: a package is missing."""
    kind = kind_of(settings.transport)
    needed(kind.extra)
    return kind.queues(settings.transport, resources, subscription)


async def check(transport: Transport) -> float | None:
    """Returns if the broker can be used. Raises an OutboxError or an InfraError."""
    return await kind_of(transport).check(transport)

"""Lists the transports: how each makes its publisher, receives its messages, and checks its state.

The row is found by the name of the settings' transport; nothing else chooses by it but the trigger
(``cosmos_outbox/functions/subscription.py``) and the checks before a start (``cosmos_outbox/preflight``). An SDK is
slow to import, so it is imported where something is first needed of it.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from cosmos_outbox.cosmos.store.client import CosmosClient, cosmos_client
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.kernel.lazy_imports import loading
from cosmos_outbox.operations.health import LOOK_SECONDS
from cosmos_outbox.outbox.publisher import AggregateEvents, CloudEvents, Guarantees, Outcome, Publisher
from cosmos_outbox.settings.connections import Connection, Credential, connected, credential_for
from cosmos_outbox.settings.environment import Settings, SubscriberSettings
from cosmos_outbox.settings.errors import needed
from cosmos_outbox.settings.transports import (
    Name,
    OwnPublisher,
    ServiceBus,
    StorageQueue,
    Transport,
    Webhook,
    not_received,
)

if TYPE_CHECKING:
    from aiohttp import ClientSession

    from cosmos_outbox.operations.subscriber import Queues
    from cosmos_outbox.storagequeue.client import Http, QueueServiceClient

_log = logging.getLogger(__name__)


def servicebus_publisher(
    of: ServiceBus, settings: Settings, service: CloudEvents, resources: AsyncExitStack
) -> Publisher:
    """See :class:`TransportKind`."""
    from cosmos_outbox.servicebus.client import servicebus_client  # noqa: PLC0415
    from cosmos_outbox.servicebus.publisher import ServiceBusPublisher  # noqa: PLC0415

    client = connected(resources, of.connection, ("SERVICEBUS", "Service Bus"), servicebus_client)
    made = ServiceBusPublisher(
        client, of.topic, service=service, partitioned=of.partitioned, senders=settings.relay_senders,
        sessions=of.sessions,
    )  # fmt: skip
    resources.push_async_callback(made.close)
    _log.info("at most %d connection(s) to Service Bus: RELAY_SENDERS", settings.relay_senders)
    return made


def servicebus_queues(of: ServiceBus, resources: AsyncExitStack, subscription: str) -> "Queues":
    """See :class:`TransportKind`."""
    from cosmos_outbox.operations.subscriber import Queues  # noqa: PLC0415
    from cosmos_outbox.servicebus.client import servicebus_client  # noqa: PLC0415
    from cosmos_outbox.servicebus.sessions import DeadLetters, Sessions  # noqa: PLC0415

    called = "SERVICEBUS", "Service Bus"
    client = connected(resources, of.connection, called, servicebus_client)
    waiting = connected(
        resources, of.connection, called, partial(servicebus_client, retries=0)
    )  # see Sessions
    return Queues(
        DeadLetters(client, of.topic, subscription, is_queue=of.is_queue),
        Sessions(waiting, of.topic, subscription, is_queue=of.is_queue),
    )


async def _check_servicebus(of: ServiceBus) -> float | None:
    from cosmos_outbox.servicebus.inspection import try_sending  # noqa: PLC0415

    async with _signed_in(of.connection) as credential:
        return await try_sending(
            of.connection, credential, of.topic, seconds=LOOK_SECONDS, is_queue=of.is_queue
        )


def storagequeue_publisher(
    of: StorageQueue,
    settings: Settings,
    service: CloudEvents,
    resources: AsyncExitStack,
    http: "Http | None" = None,
) -> Publisher:
    """See :class:`TransportKind`."""
    from cosmos_outbox.storagequeue.publisher import StorageQueuePublisher  # noqa: PLC0415

    return StorageQueuePublisher(
        _storage(of, resources, http), of.queues, service=service, encoded=of.encoded,
        senders=settings.relay_senders,
    )  # fmt: skip


def storagequeue_queues(
    of: StorageQueue, resources: AsyncExitStack, subscription: str, http: "Http | None" = None
) -> "Queues":
    """See :class:`TransportKind`: the subscription is the name of a queue."""
    from cosmos_outbox.operations.subscriber import Queues  # noqa: PLC0415
    from cosmos_outbox.storagequeue.receiver import POISON, PoisonQueue, QueueReceiver  # noqa: PLC0415

    storage = _storage(of, resources, http)
    queue, poison = (storage.get_queue_client(f"{subscription}{end}") for end in ("", POISON))
    return Queues(PoisonQueue(poison, subscription), QueueReceiver(queue, poison))


async def _check_storagequeue(of: StorageQueue) -> float | None:
    from cosmos_outbox.storagequeue.client import look  # noqa: PLC0415

    async with _signed_in(of.connection) as credential:
        return await look(of.connection, credential, of.queues, seconds=LOOK_SECONDS)


def _storage(of: StorageQueue, resources: AsyncExitStack, http: "Http | None") -> "QueueServiceClient":
    from cosmos_outbox.storagequeue.client import queue_service  # noqa: PLC0415

    called = "STORAGEQUEUE", "a storage account"
    return connected(resources, of.connection, called, partial(queue_service, http=http))


def webhook_publisher(
    of: Webhook,
    _: Settings,
    service: CloudEvents,
    resources: AsyncExitStack,
    session: "ClientSession | None" = None,
) -> Publisher:
    """See :class:`TransportKind`."""
    from cosmos_outbox.webhook.publisher import WebhookPublisher  # noqa: PLC0415

    made = WebhookPublisher(of, service=service, session=session)
    resources.push_async_callback(made.close)
    return made


def own_publisher(
    of: OwnPublisher, _: Settings, service: CloudEvents, resources: AsyncExitStack
) -> Publisher:
    """See :class:`TransportKind`."""
    return of.make(of.environment, service, resources)


async def _check_webhook(of: Webhook) -> float | None:
    from cosmos_outbox.webhook.session import reach  # noqa: PLC0415

    return await reach(of, seconds=LOOK_SECONDS)


@asynccontextmanager
async def _signed_in(connection: Connection) -> AsyncIterator[Credential | None]:
    credential = credential_for(connection)
    try:
        yield credential
    finally:
        if credential:
            await credential.close()


@dataclass(frozen=True)
class TransportKind:
    """The parts that are made of a transport's settings, which are the first argument of each call."""

    service: str
    """The name that operators have for it."""
    publisher: Callable[[Any, Settings, CloudEvents, AsyncExitStack], Publisher]
    """Opens nothing; ``resources`` closes what it makes."""
    queues: "Callable[[Any, AsyncExitStack, str], Queues] | None"
    """Makes the receivers of a subscription's messages, and opens nothing; None: nothing waits to be received."""
    check: Callable[[Any], Awaitable[float | None]] | None
    """As of :class:`cosmos_outbox.operations.health.Dependency`; None: only the relay's sends show its state."""


KINDS: Mapping[Name, TransportKind] = {
    "storagequeue": TransportKind(
        "Storage queues", storagequeue_publisher, storagequeue_queues, _check_storagequeue
    ),
    "servicebus": TransportKind("Service Bus", servicebus_publisher, servicebus_queues, _check_servicebus),
    "webhook": TransportKind("The receiver", webhook_publisher, None, _check_webhook),
    "own": TransportKind("The broker", own_publisher, None, None),
}


def kind_of(transport: Transport) -> TransportKind:
    """The row of a transport."""
    return KINDS[transport.name]


def publisher(settings: Settings, source: str, resources: AsyncExitStack) -> Publisher:
    """Returns the publisher of the service ``source``'s events. Raises Misconfigured: a package is missing."""
    kind = kind_of(settings.transport)
    needed(settings.transport.name)
    service = CloudEvents(source, settings.event_schemas)
    made = kind.publisher(settings.transport, settings, service, resources)
    for missing in made.guarantees.left_to_subscribers():
        _log.warning("%s", missing)
    return made


def queues(settings: SubscriberSettings, resources: AsyncExitStack, subscription: str) -> "Queues":
    """Returns the receivers of a subscription's messages. Raises Misconfigured: a package is missing."""
    kind = kind_of(settings.transport)
    needed(settings.transport.name)
    if kind.queues is None:
        raise not_received(subscription, settings.transport.name)
    return kind.queues(settings.transport, resources, subscription)


class LazyPublisher:
    """A publisher that is made when it is first needed: a process that answers HTTP alone starts without the SDK.

    See :class:`cosmos_outbox.outbox.publisher.Publisher`.
    """

    def __init__(self, make: Callable[[], Publisher]) -> None:
        self._make = make

    @property
    def guarantees(self) -> Guarantees:
        """Those of the publisher."""
        return self._publisher.guarantees

    async def publish(self, page: Sequence[AggregateEvents], until: float) -> Sequence[Outcome]:
        """As the publisher does."""
        return await self._publisher.publish(page, until)

    @cached_property
    def _publisher(self) -> Publisher:
        with loading():
            return self._make()


@dataclass(frozen=True)
class Clients:
    """How a service reaches the store and the broker. Each is called when it is first needed, and opens nothing."""

    cosmos: Callable[[Connection, Credential | None], CosmosClient] = cosmos_client
    container: Callable[..., Container] = Container
    publisher: Callable[[Settings, str, AsyncExitStack], Publisher] = publisher
    queues: "Callable[[SubscriberSettings, AsyncExitStack, str], Queues]" = queues

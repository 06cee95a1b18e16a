"""What a service reaches is made in one place: the SDKs' clients, or what stands for them in a simulation."""

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cosmos_outbox.cosmos.store.client import CosmosClient, cosmos_client
from cosmos_outbox.outbox.archive import Archive
from cosmos_outbox.outbox.publisher import Publisher
from cosmos_outbox.settings.connections import Connection
from cosmos_outbox.settings.credentials import Credential, credential_for
from cosmos_outbox.settings.environment import ArchiveSettings, Settings
from cosmos_outbox.settings.extras import needed

if TYPE_CHECKING:
    from cosmos_outbox.servicebus.dead_letters import DeadLetters
    from cosmos_outbox.servicebus.sessions import Sessions

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Queues:
    """What the broker holds for one subscription."""

    dead_letters: "DeadLetters"
    sessions: "Sessions"
    """For a subscriber outside Functions, which has no trigger."""


class Received(Protocol):
    """The settings by which messages are received."""

    @property
    def servicebus(self) -> Connection: ...
    @property
    def servicebus_topic(self) -> str: ...
    @property
    def event_ttl_seconds(self) -> int: ...


def _publisher(settings: Settings, source: str, resources: AsyncExitStack) -> Publisher:
    from cosmos_outbox.servicebus.client import servicebus_client  # noqa: PLC0415 - slow to import: see LatePublisher
    from cosmos_outbox.servicebus.message import CloudEvents  # noqa: PLC0415
    from cosmos_outbox.servicebus.publisher import ServiceBusPublisher  # noqa: PLC0415

    credential = credential_for(settings.servicebus)
    client = servicebus_client(settings.servicebus, credential)
    publisher = ServiceBusPublisher(
        client,
        settings.servicebus_topic,
        service=CloudEvents(source, settings.event_schemas),
        partitioned=settings.servicebus_topic_partitioned,
        senders=settings.relay_senders,
        sessions=settings.servicebus_sessions,
    )
    if credential:
        resources.push_async_callback(credential.close)
    resources.push_async_callback(client.close)
    resources.push_async_callback(publisher.close)
    _log.info("at most %d connection(s) to Service Bus: RELAY_SENDERS", settings.relay_senders)
    for missing in publisher.guarantees.left_to_subscribers():
        _log.warning("%s", missing)
    return publisher


def _queues(settings: Received, resources: AsyncExitStack, subscription: str) -> Queues:
    from cosmos_outbox.servicebus.client import servicebus_client  # noqa: PLC0415 - slow to import: see Subscriber.queues
    from cosmos_outbox.servicebus.dead_letters import DeadLetters  # noqa: PLC0415
    from cosmos_outbox.servicebus.sessions import Sessions  # noqa: PLC0415

    credential = credential_for(settings.servicebus)
    client = servicebus_client(settings.servicebus, credential)
    waiting = servicebus_client(settings.servicebus, credential, retries=0)  # see Sessions
    if credential:
        resources.push_async_callback(credential.close)
    for each in (client, waiting):
        resources.push_async_callback(each.close)
    return Queues(
        DeadLetters(client, settings.servicebus_topic, subscription),
        Sessions(waiting, settings.servicebus_topic, subscription),
    )


def _archive(settings: ArchiveSettings, resources: AsyncExitStack) -> Archive:
    needed("archive")
    from cosmos_outbox.blobs.archive import BlobArchive  # noqa: PLC0415 - slow to import, and mostly not needed

    credential = credential_for(settings.connection)
    if credential:
        resources.push_async_callback(credential.close)
    return BlobArchive(settings.connection, settings.container, credential, resources)


@dataclass(frozen=True)
class Clients:
    """How a service reaches the store and the broker. Each is called when it is first needed, and opens nothing."""

    cosmos: Callable[[Connection, Credential | None], CosmosClient] = cosmos_client
    publisher: Callable[[Settings, str, AsyncExitStack], Publisher] = _publisher
    queues: Callable[[Received, AsyncExitStack, str], Queues] = _queues
    archive: Callable[[ArchiveSettings, AsyncExitStack], Archive] = _archive


SDKS = Clients()
"""Those of a deployed service."""

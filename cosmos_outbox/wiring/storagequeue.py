"""What reaches the queues of a storage account for a service. The SDK is imported when it is first needed."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from cosmos_outbox.operations.dependencies import LOOK_SECONDS
from cosmos_outbox.outbox.cloud_events import CloudEvents
from cosmos_outbox.outbox.publisher import Publisher
from cosmos_outbox.settings.connections import usable
from cosmos_outbox.settings.credentials import credential_for
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.settings.transports import StorageQueue
from cosmos_outbox.wiring.receiving import Queues

if TYPE_CHECKING:
    from cosmos_outbox.storagequeue.client import Http, QueueServiceClient


def publisher(
    of: StorageQueue,
    settings: Settings,
    service: CloudEvents,
    resources: AsyncExitStack,
    http: "Http | None" = None,
) -> Publisher:
    """See :class:`cosmos_outbox.wiring.transports.TransportKind`."""
    from cosmos_outbox.storagequeue.publisher import StorageQueuePublisher  # noqa: PLC0415 - slow to import

    return StorageQueuePublisher(
        _service(of, resources, http), of.queues, service=service, encoded=of.encoded,
        senders=settings.relay_senders,
    )  # fmt: skip


def queues(
    of: StorageQueue, resources: AsyncExitStack, subscription: str, http: "Http | None" = None
) -> Queues:
    """See :class:`cosmos_outbox.wiring.transports.TransportKind`: the subscription is the name of a queue."""
    from cosmos_outbox.storagequeue.messages import POISON, Messages, PoisonQueue  # noqa: PLC0415 - slow to import

    service = _service(of, resources, http)
    queue, poison = (
        service.get_queue_client(subscription),
        service.get_queue_client(f"{subscription}{POISON}"),
    )
    return Queues(PoisonQueue(poison, subscription), Messages(queue, poison))


async def check(of: StorageQueue) -> float | None:
    """See :class:`cosmos_outbox.wiring.transports.TransportKind`."""
    from cosmos_outbox.storagequeue.inspection import look  # noqa: PLC0415 - slow to import: see LatePublisher

    credential = credential_for(of.connection)
    try:
        return await look(of.connection, credential, of.queues, seconds=LOOK_SECONDS)
    finally:
        if credential:
            await credential.close()


def _service(of: StorageQueue, resources: AsyncExitStack, http: "Http | None" = None) -> "QueueServiceClient":
    from cosmos_outbox.storagequeue.client import queue_service  # noqa: PLC0415 - slow to import

    credential = credential_for(of.connection)
    with usable("STORAGEQUEUE", "a storage account"):
        client = queue_service(of.connection, credential, http)
    if credential:
        resources.push_async_callback(credential.close)
    resources.push_async_callback(client.close)
    return client

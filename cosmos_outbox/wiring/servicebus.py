"""What reaches Service Bus for a service. The SDK is imported when something is first needed of it."""

import logging
from contextlib import AsyncExitStack

from cosmos_outbox.operations.dependencies import LOOK_SECONDS
from cosmos_outbox.outbox.cloud_events import CloudEvents
from cosmos_outbox.outbox.publisher import Publisher
from cosmos_outbox.settings.connections import usable
from cosmos_outbox.settings.credentials import credential_for
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.settings.transports import ServiceBus
from cosmos_outbox.wiring.receiving import Queues

_log = logging.getLogger(__name__)


def publisher(
    of: ServiceBus, settings: Settings, service: CloudEvents, resources: AsyncExitStack
) -> Publisher:
    """See :class:`cosmos_outbox.wiring.transports.TransportKind`."""
    from cosmos_outbox.servicebus.client import servicebus_client  # noqa: PLC0415 - slow to import: see LatePublisher
    from cosmos_outbox.servicebus.publisher import ServiceBusPublisher  # noqa: PLC0415

    credential = credential_for(of.connection)
    with usable("SERVICEBUS", "Service Bus"):
        client = servicebus_client(of.connection, credential)
    made = ServiceBusPublisher(
        client,
        of.topic,
        service=service,
        partitioned=of.partitioned,
        senders=settings.relay_senders,
        sessions=of.sessions,
    )
    if credential:
        resources.push_async_callback(credential.close)
    resources.push_async_callback(client.close)
    resources.push_async_callback(made.close)
    _log.info("at most %d connection(s) to Service Bus: RELAY_SENDERS", settings.relay_senders)
    return made


def queues(of: ServiceBus, resources: AsyncExitStack, subscription: str) -> Queues:
    """See :class:`cosmos_outbox.wiring.transports.TransportKind`."""
    from cosmos_outbox.servicebus.client import servicebus_client  # noqa: PLC0415 - slow to import: see Subscriber.queues
    from cosmos_outbox.servicebus.dead_letters import DeadLetters  # noqa: PLC0415
    from cosmos_outbox.servicebus.sessions import Sessions  # noqa: PLC0415

    credential = credential_for(of.connection)
    with usable("SERVICEBUS", "Service Bus"):
        client = servicebus_client(of.connection, credential)
        waiting = servicebus_client(of.connection, credential, retries=0)  # see Sessions
    if credential:
        resources.push_async_callback(credential.close)
    for each in (client, waiting):
        resources.push_async_callback(each.close)
    return Queues(
        DeadLetters(client, of.topic, subscription, is_queue=of.is_queue),
        Sessions(waiting, of.topic, subscription, is_queue=of.is_queue),
    )


async def check(of: ServiceBus) -> float | None:
    """See :class:`cosmos_outbox.wiring.transports.TransportKind`."""
    from cosmos_outbox.servicebus.inspection import try_sending  # noqa: PLC0415 - slow to import: see LatePublisher

    credential = credential_for(of.connection)
    try:
        return await try_sending(
            of.connection, credential, of.topic, seconds=LOOK_SECONDS, is_queue=of.is_queue
        )
    finally:
        if credential:
            await credential.close()

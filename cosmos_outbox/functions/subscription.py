"""Registers a subscriber's functions: the trigger, and the timers that continue pending work.

Messages of all triggers are handled in the same way. A failure that affects all messages is raised after a pause: the
host redelivers a message immediately, and counts each delivery.
"""

import asyncio
import logging
import os
from typing import TYPE_CHECKING

import azure.functions as func

from cosmos_outbox import composition
from cosmos_outbox.composition.declarations import ReactionDeclaration, ReadModelDeclaration, Subscriber
from cosmos_outbox.functions.relay import log_outage_briefly
from cosmos_outbox.service import Service
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.names import Named
from cosmos_outbox.settings.transports import named, not_received
from cosmos_outbox.telemetry.tracing import invoked

if TYPE_CHECKING:
    from cosmos_outbox.operations import subscriber as operations

WALK_SECONDS = 200.0
"""The maximum duration of one run of the walk, less than ``functionTimeout``; the next run continues there."""


def subscription_functions(service: Service, of: Subscriber) -> func.Blueprint:
    """Messages -> what the subscriber keeps or does; the timers that go on with what waits. Raises Misconfigured."""
    app = func.Blueprint()  # type: ignore[no-untyped-call]  # the library does not annotate its constructor
    name = of.name.replace("-", "_")

    topic = of.topic if isinstance(of, ReactionDeclaration) else None
    add_trigger(app, service, of.name, of.subscription, topic)

    @app.function_name(f"watch_{name}")
    @app.timer_trigger(arg_name="timer", schedule="30 * * * * *")
    async def watch(timer: func.TimerRequest) -> None:
        """Every minute: collects dead letters, and retries messages that were set aside."""
        with log_outage_briefly("what was set aside waits"):
            await service().subscriptions[of.name].subscriber.watch()

    if isinstance(of, ReadModelDeclaration) and of.has_source:

        @app.function_name(f"walk_{name}")
        @app.timer_trigger(arg_name="timer", schedule="30 0 * * * *")
        async def walk(timer: func.TimerRequest) -> None:
            """Every hour: begins or continues the walk of this day."""
            healing = service().subscriptions[of.name].healing
            assert healing is not None, "a read model with a source has a walk"
            with log_outage_briefly("the walk waits"):
                await healing.run(seconds=WALK_SECONDS)

    return app


_log = logging.getLogger(__name__)


def add_trigger(
    app: func.Blueprint, service: Service, of: str, subscription: Named, topic: Named | None
) -> None:
    """Registers the function that receives a subscriber's messages from the transport. Raises Misconfigured.

    ``topic``: that of another team; None: the service's own.
    """
    queue = None if topic else os.environ.get("SERVICEBUS_QUEUE")
    name, called = of.replace("-", "_"), subscription.resolve(os.environ)
    match named(os.environ, service.transport):
        case "servicebus" if queue:

            @app.function_name(name)
            @app.service_bus_queue_trigger(
                arg_name="message", connection="SERVICEBUS", queue_name=queue, is_sessions_enabled=True
            )
            async def receive_from_bus(message: func.ServiceBusMessage, context: func.Context) -> None:
                """As ``receive_message``, from a queue."""
                await receive(service, of, message, context)

        case "servicebus":

            @app.function_name(name)
            @app.service_bus_topic_trigger(
                arg_name="message",
                connection="SERVICEBUS",
                topic_name=(topic or service.names.topic_named).resolve(os.environ),
                subscription_name=called,
                is_sessions_enabled=True,
            )
            async def receive_message(message: func.ServiceBusMessage, context: func.Context) -> None:
                """Returns once the event is applied or set aside; raises after a pause if the store is unavailable."""
                await receive(service, of, message, context)

        case "storagequeue":

            @app.function_name(name)
            @app.queue_trigger(arg_name="message", connection="STORAGEQUEUE", queue_name=called)
            async def receive_queued(message: func.QueueMessage, context: func.Context) -> None:
                """As ``receive_message``. The host moves a message delivered too often to the poison queue."""
                await receive_from_queue(service, of, message, context)

        case "webhook" | "own" as transport:
            raise not_received(called, transport)


async def receive(service: Service, of: str, message: func.ServiceBusMessage, context: func.Context) -> None:
    """Apply a message or set it aside. Raises StoreUnavailable, or Misconfigured when the service cannot be wired.

    Both are raised after a pause: the host redelivers the message immediately, and counts each delivery.
    """
    subscriber = await _subscriber(service, of)
    delivery = composition.delivery_of(message, message.get_body(), subscriber.subscription)
    with invoked(context), composition.handling(subscriber.topic, delivery, message.correlation_id):
        await subscriber.receiver.receive(delivery)


async def receive_from_queue(
    service: Service, of: str, message: func.QueueMessage, context: func.Context
) -> None:
    """As :func:`receive`, for a Storage queue."""
    subscriber = await _subscriber(service, of)
    found = composition.arrived(message.get_body(), str(message.id), subscriber.subscription)
    handled = composition.handling(
        subscriber.subscription, found.delivery, found.correlation_id, composition.STORAGEQUEUE
    )
    with invoked(context), handled:
        await subscriber.receiver.receive(found.delivery)


async def _subscriber(service: Service, of: str) -> "operations.Subscriber":
    try:
        return service().subscriptions[of].subscriber
    except Misconfigured as error:
        _log.error("messages wait: %s", error)
        await asyncio.sleep(composition.WAIT_SECONDS)
        raise

"""A subscriber's triggers: a message is completed only after its event is applied, or durably set aside.

What goes wrong for everybody is waited for before it is raised: the host brings a message back at once, and counts a
delivery each time.
"""

import asyncio
import logging
import os

import azure.functions as func

from cosmos_outbox.functions.timers import told_in_a_line
from cosmos_outbox.inbox.receiver import WAIT_SECONDS
from cosmos_outbox.servicebus.received import delivery_of, handling
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.names import Named
from cosmos_outbox.telemetry.tracing import invoked
from cosmos_outbox.wiring.canary import CanaryOf
from cosmos_outbox.wiring.declared import EffectOf, ReadModelOf, Subscriber
from cosmos_outbox.wiring.located import AnyService
from cosmos_outbox.wiring.reactions import ReactionOf
from cosmos_outbox.wiring.subscribing import ForeignReadModel, ForeignSubscriber

SWEEP_SECONDS = 120.0
"""What a run of a timer may take; the next run goes on from there."""

_EACH_MINUTE, _HOURLY = "30 * * * * *", "30 0 * * * *"

AnySubscriber = Subscriber | ForeignSubscriber | CanaryOf

_log = logging.getLogger(__name__)


def subscription_functions(service: AnyService, of: AnySubscriber) -> func.Blueprint:
    """Topic -> what the subscriber keeps or does, and the timers that go on with what waits. Raises Misconfigured."""
    app = func.Blueprint()  # type: ignore[no-untyped-call]  # the library does not annotate its constructor
    name = of.name.replace("-", "_")

    @app.function_name(name)
    @app.service_bus_topic_trigger(
        arg_name="message",
        connection="SERVICEBUS",
        topic_name=_topic_of(service, of).resolve(os.environ),
        subscription_name=of.subscription.resolve(os.environ),
        is_sessions_enabled=True,
    )
    async def receive_message(message: func.ServiceBusMessage, context: func.Context) -> None:
        """Returns when the event is applied, handled or set aside; raises after a wait, if the store is away."""
        await receive(service, of.name, message, context)

    @app.function_name(f"watch_{name}")
    @app.timer_trigger(arg_name="timer", schedule=_HOURLY if isinstance(of, CanaryOf) else _EACH_MINUTE)
    async def watch(timer: func.TimerRequest) -> None:
        """Every minute (the canary's: every hour): collects dead letters, and tries again what was set aside."""
        with told_in_a_line("what was set aside waits"):
            await service().subscriptions[of.name].subscriber.watch()

    if isinstance(of, ReadModelOf | EffectOf) or (isinstance(of, ForeignReadModel) and of.has_source):
        _add_sweep(app, service, of.name, name)
    return app


def _topic_of(service: AnyService, of: AnySubscriber) -> Named:
    return (of.topic if isinstance(of, ReactionOf) else None) or service.names.all["topic"]


def _add_sweep(app: func.Blueprint, service: AnyService, of: str, name: str) -> None:
    @app.function_name(f"sweep_{name}")
    @app.timer_trigger(arg_name="timer", schedule="0 */10 * * * *")
    async def sweep(timer: func.TimerRequest) -> None:
        """Every ten minutes: finds in the sources what no event has told."""
        wanted = service().subscriptions[of].sweep
        assert wanted is not None, "a subscriber with a source has a sweep"
        with told_in_a_line("the sweep waits"):
            await wanted.run(seconds=SWEEP_SECONDS)


async def receive(
    service: AnyService, of: str, message: func.ServiceBusMessage, context: func.Context
) -> None:
    """Apply a message or set it aside. Raises StoreAway, or Misconfigured when the service cannot be wired.

    Each is raised after a wait: the host brings the message back at once, and counts a delivery.
    """
    try:
        subscriber = service().subscriptions[of].subscriber
    except Misconfigured as error:
        _log.error("messages wait: %s", error)
        await asyncio.sleep(WAIT_SECONDS)
        raise
    delivery = delivery_of(message, message.get_body(), subscriber.subscription)
    with invoked(context), handling(subscriber.topic, delivery, message.correlation_id):
        await subscriber.receiver.receive(delivery)

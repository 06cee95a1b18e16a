"""A subscriber, wired: how its messages are received, tried again, and collected from the dead letters.

Whatever the aggregate: a service gives the function that reads its messages, and the one that applies an event.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import azure.functions as func

from inbox.effect_upkeep import EffectUpkeep
from inbox.event import Event
from inbox.receiver import WAIT_SECONDS, Handle, Read, Receiver
from inbox.retrier import Retrier
from inbox.sweep import Sweep
from infra.correlation import correlated, current
from infra.cosmos.set_aside import CosmosSetAside
from infra.credentials import credential_for
from infra.errors import Misconfigured
from infra.servicebus.received import delivery_of, handling
from infra.settings import Settings
from infra.telemetry import gauges
from infra.telemetry.tracing import invoked
from infra.wiring import Outbox

if TYPE_CHECKING:
    from infra.servicebus.dead_letters import Collected, DeadLetters
    from infra.servicebus.sessions import Sessions

RETRY_SECONDS, COLLECT_SECONDS = 40.0, 15.0
"""What a run of the timer may take: it runs every minute."""


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Queues:
    """What the broker holds for one subscription."""

    dead_letters: "DeadLetters"
    sessions: "Sessions"
    """For a subscriber outside Functions, which has no trigger."""


@dataclass(frozen=True)
class Subscriber:
    """One subscription and its records."""

    topic: str
    subscription: str
    receiver: Receiver
    retrier: Retrier
    queues: "Callable[[], Queues]"
    """Made when they are first needed: a process that answers HTTP alone starts without the broker's SDK."""

    async def receive(self, message: func.ServiceBusMessage, context: func.Context) -> None:
        """Apply a message or set it aside. Raises StoreAway, having waited."""
        delivery = delivery_of(message, message.get_body(), self.subscription)
        with invoked(context), handling(self.topic, delivery, message.correlation_id):
            await self.receiver.receive(delivery)

    async def collect(self) -> "Collected":
        """Move the dead letters into records. Raises StoreAway."""
        return await self.queues().dead_letters.collect(self.receiver.keep, seconds=COLLECT_SECONDS)

    async def watch(self) -> None:
        """Collect the dead letters, and try what waits. Raises StoreAway."""
        results = await asyncio.gather(
            self.collect(), self.retrier.run(seconds=RETRY_SECONDS), return_exceptions=True
        )
        await self._measure()
        for result in results:  # one does not stop the other
            if isinstance(result, BaseException):
                raise result

    async def _measure(self) -> None:
        """Raises StoreAway."""
        oldest = (await self.retrier.page(1, None)).items
        ages = [(self.retrier.now() - record.set_aside_at).total_seconds() for record in oldest]
        counts = await self.retrier.counts() if oldest else {}
        gauges.set_aside(self.subscription, sum(counts.values()), max(0.0, *ages) if ages else 0.0)


@dataclass(frozen=True)
class Subscription:
    """A subscriber, and what timers do for it beside :meth:`Subscriber.watch`: the worker does all of it."""

    subscriber: Subscriber
    sweep: Sweep[Any] | None = None
    """Of a state."""
    upkeep: EffectUpkeep | None = None
    """Of effects."""


async def receive(
    subscriber: Callable[[], Subscriber], message: func.ServiceBusMessage, context: func.Context
) -> None:
    """As :meth:`Subscriber.receive`, by a subscriber that is made at the first message.

    Raises StoreAway, or Misconfigured when it cannot be made, each after a wait: the host brings the message back at
    once, and counts a delivery.
    """
    try:
        made = subscriber()
    except Misconfigured as error:
        _log.error("messages wait: %s", error)
        await asyncio.sleep(WAIT_SECONDS)
        raise
    await made.receive(message, context)


def wire_subscriber(
    settings: Settings, outbox: Outbox, read: Read, handle: Handle, subscription: str | None = None
) -> Subscriber:
    """Build a subscriber from settings; one with effects is built by :func:`infra.effects.wire_effects`.

    Opens no connection: the first use opens it. ``subscription``: of a service that has several; the others are those
    of the settings.
    """
    subscription = subscription or settings.servicebus_subscription
    records = CosmosSetAside(
        outbox.container(settings.cosmos_set_aside_container),
        subscription,
        f"{settings.cosmos.address}/{settings.cosmos_database}/{settings.cosmos_set_aside_container}/{subscription}",
        closed_ttl_seconds=settings.event_ttl_seconds,
    )
    limit = timedelta(seconds=settings.event_ttl_seconds)

    async def traced(event: Event) -> None:
        """So that what the timer tries again is told under the id of its request too."""
        given = event.data.get("correlationId")
        with correlated(current() or (given if isinstance(given, str) else None)):
            await handle(event)

    return Subscriber(
        settings.servicebus_topic,
        subscription,
        Receiver(read, handle, records),
        Retrier(read, traced, records, limit),
        cache(lambda: _queues(settings, outbox, subscription)),
    )


def _queues(settings: Settings, outbox: Outbox, subscription: str) -> Queues:
    from infra.servicebus.client import servicebus_client  # noqa: PLC0415 - slow to import: see Subscriber.queues
    from infra.servicebus.dead_letters import DeadLetters  # noqa: PLC0415
    from infra.servicebus.sessions import Sessions  # noqa: PLC0415

    credential = credential_for(settings.servicebus)
    client = servicebus_client(settings.servicebus, credential)
    waiting = servicebus_client(settings.servicebus, credential, retries=0)  # see Sessions
    if credential:
        outbox.resources.push_async_callback(credential.close)
    for each in (client, waiting):
        outbox.resources.push_async_callback(each.close)
    return Queues(
        DeadLetters(client, settings.servicebus_topic, subscription),
        Sessions(waiting, settings.servicebus_topic, subscription),
    )

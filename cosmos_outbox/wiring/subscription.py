"""A subscriber, wired: how its messages are received, tried again, and collected from the dead letters.

Whatever the aggregate: a service gives the function that reads its messages, and the one that applies an event.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel

from cosmos_outbox.cosmos.inbox.set_aside import CosmosSetAside
from cosmos_outbox.inbox.event import Event
from cosmos_outbox.inbox.form import Listing
from cosmos_outbox.inbox.healing import Healing
from cosmos_outbox.inbox.receiver import MARGIN, Handle, Read, Receiver
from cosmos_outbox.inbox.retrier import OnRequest, Retrier
from cosmos_outbox.inbox.set_aside import SetAside
from cosmos_outbox.inbox.shows import shows
from cosmos_outbox.inbox.state import StateInbox
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.settings.environment import TTL_MAX, Settings, SubscriberSettings
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.telemetry import gauges
from cosmos_outbox.telemetry.correlation import correlated, current
from cosmos_outbox.wiring.outbox import SDKS, Clients, Outbox
from cosmos_outbox.wiring.transports import Queues

if TYPE_CHECKING:
    from cosmos_outbox.inbox.set_aside import Collected


S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True)
class ReadModel(Generic[S]):
    """A read model of one service."""

    inbox: StateInbox[S]
    healing: Healing[S] | None
    """None: it has no source that its entries could be compared with."""
    listing: Listing[S]

    async def shows(self, key: AggregateKey, sequence: int) -> bool:
        """Whether it holds the aggregate's events up to this one, after a wait of two seconds at most."""
        return await shows(self.inbox.entries, key, sequence)


RETRY_SECONDS, COLLECT_SECONDS = 40.0, 15.0
"""What a run of the timer may take: it runs every minute."""


@dataclass(frozen=True)
class Subscriber:
    """One subscription and its records."""

    topic: str
    subscription: str
    receiver: Receiver
    retrier: Retrier
    queues: "Callable[[], Queues]"
    """Made when they are first needed: a process that answers HTTP alone starts without the broker's SDK."""

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
        aside, age = sum(counts.values()), max(0.0, *ages) if ages else 0.0
        gauges.set_aside(self.subscription, aside, age)

    def asking(self, inbox: OnRequest) -> "Subscription":
        """With an inbox that keeps a record of each message: operators go the message's way."""
        return Subscription(replace(self, retrier=replace(self.retrier, asked=inbox)))


@dataclass(frozen=True)
class Subscription:
    """A subscriber, and what timers and operators do for it beside :meth:`Subscriber.watch`."""

    subscriber: Subscriber
    read_model: ReadModel[Any] | None = None
    """None: it keeps no state."""

    @property
    def healing(self) -> Healing[Any] | None:
        """What finds the changes of which no event came."""
        return self.read_model.healing if self.read_model else None


def records_seconds(settings: SubscriberSettings) -> int:
    """How long the record of a message lives: an event may wait stored, parked, set aside, and for its dead letter.

    Raises Misconfigured: longer than a store keeps anything.
    """
    seconds = 3 * settings.event_ttl_seconds + settings.parked_max_age_seconds + int(MARGIN.total_seconds())
    if seconds > TTL_MAX:
        raise Misconfigured(
            f"the records of handled messages have to be kept for {seconds} s, and the store keeps nothing longer than "
            f"{TTL_MAX} s: lower EVENT_TTL_SECONDS or PARKED_MAX_AGE_SECONDS"
        )
    return seconds


def wire_subscriber(  # noqa: PLR0913, PLR0917 - what a subscriber is made of
    settings: Settings,
    outbox: Outbox,
    subscription: str,
    read: Read,
    handle: Handle,
    check: Callable[[], Awaitable[None]] | None = None,
    *,
    in_order: bool = False,
) -> Subscriber:
    """Build what receives the messages of one subscription. Opens no connection: the first use opens it.

    ``check``, ``in_order``: as of :class:`cosmos_outbox.inbox.receiver.Receiver`.
    """
    records = CosmosSetAside(
        outbox.container(settings.cosmos_set_aside_container),
        subscription,
        f"{settings.cosmos.address}/{settings.cosmos_database}/{settings.cosmos_set_aside_container}/{subscription}",
        closed_ttl_seconds=settings.event_ttl_seconds,
    )
    return subscriber_over(
        records,
        settings,
        outbox.resources,
        subscription,
        read,
        handle,
        outbox.clients,
        check=check,
        in_order=in_order,
    )


def subscriber_over(  # noqa: PLR0913, PLR0917 - what a subscriber is made of
    records: SetAside,
    settings: SubscriberSettings,
    resources: AsyncExitStack,
    subscription: str,
    read: Read,
    handle: Handle,
    clients: Clients = SDKS,
    *,
    check: Callable[[], Awaitable[None]] | None = None,
    in_order: bool = False,
) -> Subscriber:
    """As :func:`wire_subscriber`, over records in any store."""
    limit = timedelta(seconds=settings.event_ttl_seconds)

    async def handle_traced(event: Event) -> None:
        """So that what the timer tries again is told under the id of its request too."""
        given = event.data.get("correlationId")
        with correlated(current() or (given if isinstance(given, str) else None)):
            await handle(event)

    return Subscriber(
        settings.transport.destination,
        subscription,
        Receiver(read, handle, records, check=check, in_order=in_order),
        Retrier(read, handle_traced, records, limit),
        cache(lambda: clients.queues(settings, resources, subscription)),
    )

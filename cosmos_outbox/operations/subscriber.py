"""Collects the dead letters of a subscription, tries what was set aside, and measures what waits."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from opentelemetry.metrics import get_meter
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from cosmos_outbox.inbox.errors import StoreUnavailable
from cosmos_outbox.inbox.healing import Counts, Healing
from cosmos_outbox.inbox.read_model import StateInbox
from cosmos_outbox.inbox.receiver import Receiver
from cosmos_outbox.inbox.retrier import Retrier
from cosmos_outbox.inbox.set_aside import Collected, Keep, Receive
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.clock import monotonic
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.lists.listing import Listing
from cosmos_outbox.outbox.telemetry import OFTEN, GaugeReading
from cosmos_outbox.telemetry.liveness import SlotHealth

S = TypeVar("S", bound=BaseModel)

RETRY_SECONDS, COLLECT_SECONDS = 40.0, 15.0
"""The times that a run of the timer may take: it runs every minute."""


PATIENCE_SECONDS = 2.0
_PAUSE_SECONDS = 0.1


@dataclass
class _OfSubscriptions:
    """The number and the oldest of waiting messages, over the subscriptions whose values are fresh."""

    number: GaugeReading = field(default_factory=lambda: GaugeReading(OFTEN))
    oldest: GaugeReading = field(default_factory=lambda: GaugeReading(OFTEN))
    _read: dict[str, tuple[int, float, float]] = field(default_factory=dict, repr=False)
    """The number, the oldest and the time of the read, one for each subscriber of the process."""

    def set(self, subscription: str, number: int, oldest_seconds: float) -> None:
        now = monotonic()
        self._read[subscription] = number, oldest_seconds, now
        fresh = [each for each in self._read.values() if now - each[2] <= 2 * OFTEN]  # a run may take long
        self.number.set(sum(each for each, _, _ in fresh))
        self.oldest.set(max(oldest for _, oldest, _ in fresh))


_set_aside = _OfSubscriptions()
_meter = get_meter("outbox.upkeep")
_meter.create_observable_gauge(
    "outbox.set_aside.messages", [_set_aside.number], "{message}", "Messages that are set aside"
)
_meter.create_observable_gauge(
    "outbox.set_aside.oldest", [_set_aside.oldest], "s", "The age of the oldest message that is set aside"
)


class DeadLettered(Protocol):
    """The messages of a subscription that the broker has given up."""

    async def collect(self, keep: Keep, *, seconds: float) -> Collected:
        """Move what is there into records; receives nothing more after so many seconds. Raises StoreUnavailable."""


class Arriving(Protocol):
    """The messages of a subscription."""

    async def serve(self, receive: Receive, stop: asyncio.Event, health: SlotHealth, *, slots: int) -> None:
        """Handle messages until ``stop`` is set; then return as soon as the messages in hand are handled."""


@dataclass(frozen=True)
class Queues:
    """The queues that the broker holds for one subscription."""

    dead_letters: DeadLettered
    sessions: Arriving
    """For a subscriber outside Functions, which has no trigger."""


@dataclass(frozen=True)
class ReadModel(Generic[S]):
    """A read model of one service."""

    inbox: StateInbox[S]
    healing: Healing[S] | None
    """None: it has no source that its entries could be compared with."""
    listing: Listing[S]

    async def shows(self, key: AggregateKey, sequence: int, *, seconds: float = PATIENCE_SECONDS) -> bool:
        """Whether it holds the aggregate's events up to this one, after a wait. An unavailable store counts as not.

        An entry never goes back: a list that this client reads later shows at least the state that one read has shown.
        """
        until = monotonic() + seconds
        while True:
            try:
                found = await self.inbox.entries.read(key)
            except StoreUnavailable:
                found = None
            if found is not None and found.entry.last_sequence >= sequence:
                return True
            if monotonic() + _PAUSE_SECONDS > until:
                return False
            await asyncio.sleep(_PAUSE_SECONDS)


@dataclass(frozen=True)
class Subscriber:
    """One subscription and its records."""

    topic: str
    subscription: str
    receiver: Receiver
    retrier: Retrier
    queues: Callable[[], Queues]
    """Made when they are first needed: a process that answers HTTP alone starts without the broker's SDK."""

    async def collect(self) -> Collected:
        """Move the dead letters into records. Raises StoreUnavailable."""
        return await self.queues().dead_letters.collect(self.receiver.keep, seconds=COLLECT_SECONDS)

    async def watch(self) -> None:
        """Collect the dead letters, and try what waits. Raises StoreUnavailable."""
        results = await asyncio.gather(
            self.collect(), self.retrier.run(seconds=RETRY_SECONDS), return_exceptions=True
        )
        await self._measure()
        for result in results:  # one does not stop the other
            if isinstance(result, BaseException):
                raise result

    async def _measure(self) -> None:
        """Raises StoreUnavailable."""
        oldest = (await self.retrier.page(1, None)).items
        ages = [(self.retrier.now() - record.set_aside_at).total_seconds() for record in oldest]
        counts = await self.retrier.counts() if oldest else {}
        aside, age = sum(counts.values()), max(0.0, *ages) if ages else 0.0
        _set_aside.set(self.subscription, aside, age)


@dataclass(frozen=True)
class Subscription:
    """A subscriber, and what timers and operators do for it beside :meth:`Subscriber.watch`."""

    subscriber: Subscriber
    read_model: ReadModel[Any] | None = None
    """None: it keeps no state."""

    @property
    def healing(self) -> Healing[Any] | None:
        """The walk that finds the changes of which no event came."""
        return self.read_model.healing if self.read_model else None

    async def view(self, name: str) -> Mapping[str, Any]:
        """As JSON: what waits by state, what the last walk found, and the walk under way. Raises StoreUnavailable."""
        waiting = await self.subscriber.retrier.counts()
        walk = await self.healing.progress() if self.healing else None
        last, under_way = walk and walk.last_counts, walk if walk and walk.side else None
        return {
            "name": name,
            "setAside": {state.value: count for state, count in waiting.items()},
            "lastWalk": last and walk and _found(last, "endedAt", walk.last_ended_at),
            "walk": under_way and _found(under_way.counts, "beganAt", under_way.began_at),
        }


def _found(counts: Counts, name: str, at: datetime | None) -> Mapping[str, Any]:
    found = {to_camel(field): count for field, count in asdict(counts).items()}
    return {name: at.isoformat() if at else None, **found}

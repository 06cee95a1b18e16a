"""A service over stores in memory: the same declaration and the same decisions, without Azure and without a socket.

What a store alone can prove is not proven here: see :mod:`cosmos_outbox.testing.documents`. What is not there in memory
(the relay, the operators' views) says so and names what has it.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar, overload

from pydantic import BaseModel

from cosmos_outbox.cosmos.store.container import Write
from cosmos_outbox.cosmos.store.partition_key import Item, Value
from cosmos_outbox.outbox.aggregates import Aggregates
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.outbox.unit_of_work import ETag
from cosmos_outbox.settings.names import Named
from cosmos_outbox.testing.clock import Clock
from cosmos_outbox.testing.deliveries import Deliveries, timed
from cosmos_outbox.testing.documents import Documents, MemoryContainer
from cosmos_outbox.testing.faults import Faults
from cosmos_outbox.testing.publisher import api_in_memory
from cosmos_outbox.testing.store import MemoryStore, StoreInMemory
from cosmos_outbox.testing.wired import (
    MemoryWired,
    MemoryWiredSubscriber,
    Subscribers,
    outbox_in_memory,
)
from cosmos_outbox.wiring.reactions import ReactionOf
from cosmos_outbox.wiring.service import Service, Wired
from cosmos_outbox.wiring.subscribing import ForeignEffect, SubscriberService, WiredSubscriber

S = TypeVar("S", bound=BaseModel)

_NOWHERE = {
    "TRANSPORT": "servicebus",  # whatever the service declares: nothing is sent, and its settings are not asked for
    "COSMOS": "AccountEndpoint=http://localhost:1/;AccountKey=bm93aGVyZQ==;",
    "SERVICEBUS": "Endpoint=sb://localhost;SharedAccessKeyName=nobody;SharedAccessKey=bm93aGVyZQ==",
}


class InMemory(Deliveries):
    """A service that publishes, over a store in memory: see :func:`in_memory`.

    Example::

        @pytest.fixture
        async def memory() -> AsyncIterator[InMemory]:
            async with in_memory(service) as made:
                yield made
    """

    def __init__(self, wired: Wired, documents: Documents, faults: Faults, clock: Clock) -> None:
        super().__init__(wired.subscriptions, clock)
        self.wired = wired
        self.faults = faults
        """What the store does to the service's next calls."""
        self._documents = documents

    @property
    def events(self) -> Sequence[OutboxEvent]:
        """Every event that was stored, in the order of the transactions."""
        read = (self.wired.outbox.events.event(item) for item in self._documents.written)
        return [event for event in read if isinstance(event, OutboxEvent)]

    @property
    def documents(self) -> Sequence[Item]:
        """Every document that is stored now, the events among them."""
        return list(self._documents.all())

    def read(self, item_id: str, partition_key: Value | Sequence[Value]) -> Item | None:
        """A document as the service's own client would read it; None: there is none."""
        return self._documents.read(item_id, self._documents.paths.key(partition_key))

    def put(self, document: Mapping[str, Any]) -> ETag:
        """Store a document whatever is there, as somebody beside the service does. Returns its version."""
        key = self._documents.paths.of(document)
        if key is None:
            raise ValueError(f"the document has no partition key at {', '.join(self._documents.paths.paths)}")
        return self._documents.execute(key, [Write.upsert(dict(document))])[0]

    async def upkeep(self) -> None:
        """What the timers do: let happen what is due, by :attr:`clock`, then as in :class:`Deliveries`."""
        if self.wired.outbox.deadlines is not None:
            await self.wired.outbox.deadlines.meet()
        await super().upkeep()

    def _stored(self) -> Sequence[OutboxEvent]:
        return self.events


class InMemorySubscriber(Deliveries):
    """Another team's service, with its own store in memory: see :func:`in_memory`.

    Example::

        async def moved(memory: InMemorySubscriber) -> None:
            memory.publisher["7"] = {"title": "A table", "seats": 3, "sequence": 3}
            await memory.deliver(message(("booking", "7"), "SeatsChanged", 3, data={"seats": 3}))

        async with in_memory(subscriber) as memory:
            await moved(memory)
            assert (await memory.entry(subscribed, "7")).last_sequence == 3
    """

    def __init__(self, wired: WiredSubscriber, publisher: dict[str, Mapping[str, Any]], clock: Clock) -> None:
        super().__init__(wired.subscriptions, clock)
        self.wired = wired
        self.publisher = publisher
        """What the publisher's API answers of each aggregate, by its id; of others, that they are gone."""


@overload
def in_memory(
    service: Service, *, now: datetime | None = ..., environment: Mapping[str, str] | None = ...
) -> AbstractAsyncContextManager[InMemory]: ...


@overload
def in_memory(
    service: SubscriberService, *, now: datetime | None = ..., environment: Mapping[str, str] | None = ...
) -> AbstractAsyncContextManager[InMemorySubscriber]: ...


def in_memory(
    service: Service | SubscriberService,
    *,
    now: datetime | None = None,
    environment: Mapping[str, str] | None = None,
) -> AbstractAsyncContextManager[InMemory | InMemorySubscriber]:
    """A service of its own for one test: inside the block ``service()`` is over stores in memory.

    ``now``: when the test's clock begins. ``environment``: settings on top of what the service declares.

    Example::

        async with in_memory(service) as memory:
            booking = Booking.create(title="A table")
            await service().aggregates.create(booking, Origin("request-1"))
            assert [(event.action, event.sequence) for event in memory.events] == [("BookingCreated", 1)]

            assert await memory.deliver() == []
            entry = await memory.entry(board, booking.aggregate_id)
            assert (entry.state.title, entry.last_sequence) == ("A table", 1)

            memory.faults.throttled()
            with pytest.raises(Throttled):
                await service().aggregates.read(Booking, booking.aggregate_id, Origin("request-2"))
    """
    clock = Clock(now)
    if isinstance(service, SubscriberService):
        return _subscribing(service, clock, environment or {})
    return _publishing(service, clock, environment or {})


@asynccontextmanager
async def _publishing(
    service: Service, clock: Clock, environment: Mapping[str, str]
) -> AsyncIterator[InMemory]:
    given = {**_NOWHERE, **_unnamed(_names(service)), **environment}
    documents, faults = Documents(service.paths, clock), Faults()
    wired = service.wire(given)
    own, source = MemoryContainer(documents, faults), MemoryContainer(documents)
    outbox = outbox_in_memory(service, wired, own, clock)
    subscribers = Subscribers(MemoryStore(clock), wired.settings, wired.resources, clock)
    subscriptions = {  # the faults are those of the service's calls, and of its reactions, which change it
        each.name: subscribers.of(each, own if isinstance(each, ReactionOf) else source, outbox.on_commit)
        for each in service.subscribers
    }
    aggregates = Aggregates(outbox.open_unit_of_work, outbox.claims)
    made = MemoryWired(service, wired.settings, outbox, aggregates, subscriptions)
    async with made.resources:
        with service.taken_from(made):
            yield InMemory(made, documents, faults, clock)


@asynccontextmanager
async def _subscribing(
    service: SubscriberService, clock: Clock, environment: Mapping[str, str]
) -> AsyncIterator[InMemorySubscriber]:
    names = [Named("SERVICEBUS_TOPIC", service.topic), *(each.subscription for each in service.subscribers)]
    given = {**_NOWHERE, **_unnamed(names), **environment}
    publisher: dict[str, Mapping[str, Any]] = {}
    declared = replace(service, store=StoreInMemory(clock))
    declared.subscribers.extend(service.subscribers)
    wired = declared.wire(given)
    store = wired.store
    assert isinstance(store, MemoryStore), "it was opened in memory"
    subscribers = Subscribers(store, wired.settings, wired.resources, clock)
    subscriptions = {
        each.name: subscribers.effect(each)
        if isinstance(each, ForeignEffect)
        else timed(replace(each, source=api_in_memory(each.source, publisher)).wire(wired), clock)
        for each in service.subscribers
    }
    made = MemoryWiredSubscriber(
        service, wired.settings, store, wired.check, wired.resources, given, made=subscriptions
    )
    async with made.resources:
        with service.taken_from(made):
            yield InMemorySubscriber(made, publisher, clock)


def _names(service: Service) -> Iterator[Named]:
    yield from service.names.all.values()
    for each in service.subscribers:
        yield each.subscription
        if each.container is not None:
            yield each.container
        if isinstance(each, ReactionOf) and each.topic is not None:
            yield each.topic


def _unnamed(names: Sequence[Named] | Iterator[Named]) -> dict[str, str]:
    """A name for each that the service leaves to the environment."""
    return {each.setting: each.setting.lower().replace("_", "-") for each in names if each.declared is None}

"""Runs a service in memory: its declaration and the deployed adapters over devstack's Cosmos DB, without a socket.

There is no broker: :meth:`Deliveries.deliver` delivers the stored events to the subscribers. Sending raises
NotInMemory, which names the alternative with a broker.
"""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import field, replace
from datetime import datetime
from functools import cache, partial
from typing import Any, NoReturn

from cosmos_outbox.composition.declarations import ReadModelDeclaration, Subscriber
from cosmos_outbox.composition.transports import Clients
from cosmos_outbox.cosmos.inbox.store import CosmosDatabase, CosmosStore
from cosmos_outbox.cosmos.store.container import Container, Write
from cosmos_outbox.cosmos.store.partition_key import Item, Value
from cosmos_outbox.kernel.clock import sources, use, using
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate import ETag
from cosmos_outbox.outbox.feed import OutboxEvent
from cosmos_outbox.service import Service, Wired
from cosmos_outbox.sources.http import HttpApi
from cosmos_outbox.testing import containers  # first: it says how to install devstack
from cosmos_outbox.testing.clock import Clock
from cosmos_outbox.testing.cosmos import FaultyContainer, MemoryAccount, account
from cosmos_outbox.testing.deliveries import Deliveries
from cosmos_outbox.testing.faults import Faults
from cosmos_outbox.testing.publisher import Answers, api_in_memory

_PLACEHOLDERS = {
    "TRANSPORT": "servicebus",  # nothing is sent, so the settings of the declared transport are not needed
    "SERVICEBUS": "Endpoint=sb://localhost;SharedAccessKeyName=nobody;SharedAccessKey=bm93aGVyZQ==",
}


class NotInMemory(NotImplementedError):
    """The operation is not available in memory: test it on a local Azure (LocalAzure).

    Example::

        async with in_memory(service) as memory:
            await service().aggregates.create(Booking.create(title="A table"), Origin("request-1"))
            with pytest.raises(NotInMemory):
                await service().relay.relay.forward(memory.events)
    """


class InMemory(Deliveries):
    """A service over a store in memory: see :func:`in_memory`.

    Example::

        @pytest.fixture
        async def memory() -> AsyncIterator[InMemory]:
            async with in_memory(service) as made:
                yield made

        async with in_memory(subscriber) as memory:
            memory.publisher["7"] = {"title": "A table", "seats": 3, "sequence": 3}
            await memory.deliver(message(("booking", "7"), "SeatsChanged", 3, data={"seats": 3}))
            assert (await memory.entry(subscribed, "7")).last_sequence == 3
    """

    def __init__(
        self,
        wired: Wired,
        stored: MemoryAccount,
        clock: Clock,
        faults: Faults,
        publisher: Answers,
    ) -> None:
        super().__init__(wired.subscriptions, clock)
        self.wired = wired
        self.faults = faults
        """The faults that the store makes of the next calls of a service that publishes."""
        self.publisher = publisher
        """The answers of another team's API, by the aggregate's id; others are answered as gone."""
        self._stored_in = stored
        self._left: tuple[list[Item], list[Item]] | None = None

    @property
    def events(self) -> Sequence[OutboxEvent]:
        """Every event that was stored, in the order of the transactions."""
        if not self.wired.service.publishes:
            return []
        read = map(self.wired.outbox.events.event, self._items(expired=True))
        return [event for event in read if isinstance(event, OutboxEvent)]

    @property
    def documents(self) -> Sequence[Item]:
        """Every document that is stored now, including events."""
        return self._items()

    def read(self, item_id: str, partition_key: Value | Sequence[Value]) -> Item | None:
        """Returns a document as it is stored; None: there is none."""
        paths = self.wired.service.paths
        key = paths.key(partition_key)
        found = (each for each in self._items() if each["id"] == item_id and paths.of(each) == key)
        return next(found, None)

    async def put(self, document: Mapping[str, Any]) -> ETag:
        """Store a document unconditionally, as a writer outside the service does. Returns its version."""
        paths = self.wired.service.paths
        key = paths.of(document)
        if key is None:
            raise ValueError(f"the document has no partition key at {', '.join(paths.paths)}")
            # not as the service's own call, which meets the faults
        [version] = await Container.execute(self.wired.outbox.stored, key, [Write.upsert(dict(document))])
        return version

    async def upkeep(self) -> None:
        """Run the timers' work: let happen what is due, by :attr:`clock`, then as in :class:`Deliveries`."""
        if self.wired.service.publishes and self.wired.relay.deadlines is not None:
            with using(self.clock.sources()):
                await self.wired.relay.deadlines.fire_due()
        await super().upkeep()

    def _keep(self) -> None:
        """Keep what is stored now, to be seen after the block has ended."""
        if self.wired.service.publishes:
            self._left = self._items(), self._items(expired=True)

    def _items(self, *, expired: bool = False) -> list[Item]:
        if self._left is not None:
            return self._left[expired]
        settings = self.wired.outbox.settings
        of = settings.cosmos_database, settings.cosmos_container
        return self._stored_in.cosmos.items(*of, expired=expired)

    def _stored(self) -> Sequence[OutboxEvent]:
        return self.events


def in_memory(
    service: Service,
    *,
    now: datetime | None = None,
    environment: Mapping[str, str] | None = None,
) -> AbstractAsyncContextManager[InMemory]:
    """A service of its own for one test: inside the block ``service()`` is over a store in memory.

    ``now``: the start of the test's clock. ``environment``: settings in addition to the service's declaration.

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
    return _in_memory(service, Clock(now), environment or {})


@asynccontextmanager
async def _in_memory(
    service: Service, clock: Clock, environment: Mapping[str, str]
) -> AsyncIterator[InMemory]:
    given, faults = {**_PLACEHOLDERS, **_unnamed(service), **environment}, Faults()
    publisher = Answers()
    with account(clock) as stored:
        given["COSMOS"] = stored.connection_string
        declared, of_calls = service, ""
        if service.publishes:
            of_calls = service.settings(given).cosmos_container
        else:
            declared = replace(service, store=_Store(stored=stored))
            declared.subscribers.extend(_over(each, publisher) for each in service.subscribers)
        await stored.make(containers.of_service(declared, given).cosmos)

        def container(client: Any, database: str, name: str, **options: Any) -> Container:
            kind = partial(FaultyContainer, faults) if name == of_calls else Container
            return kind(client, database, name, **options)

        wired = declared.wire(given, Clients(stored.client, container, _no_broker, _no_broker))
        async with wired.resources:
            with service.taken_from(wired), _time_of(clock):
                memory = InMemory(wired, stored, clock, faults, publisher)
                try:
                    yield memory
                finally:
                    memory._keep()  # noqa: SLF001 - this module's own


def _over(of: Subscriber, publisher: Answers) -> Subscriber:
    """The same, over what the publisher's API answers here."""
    if isinstance(of, ReadModelDeclaration) and isinstance(of.source, HttpApi):
        return replace(of, source=api_in_memory(of.source, publisher.respond))
    return of


@dataclass(frozen=True)
class _Store(CosmosDatabase):
    """A subscriber's store in memory, in place of the declared one."""

    name: str | None = "memory"
    set_aside: str | None = "set-aside"
    stored: MemoryAccount = field(kw_only=True)

    def open(self, environment: Mapping[str, str], resources: AsyncExitStack) -> CosmosStore:
        names = self.names(environment)
        client = self.stored.client(names.connection)
        resources.push_async_callback(client.close)
        return CosmosStore(names, cache(partial(Container, client, names.database)))


def _no_broker(*_: object) -> NoReturn:
    raise NotInMemory(
        "there is no broker in memory: test it on a local Azure, with cosmos_outbox.testing.LocalAzure"
    )


@contextmanager
def _time_of(clock: Clock) -> Iterator[None]:
    """Use the clock in the block, without a context token: a fixture may end in another context than it began in."""
    before = sources()
    use(clock.sources())
    try:
        yield
    finally:
        use(before)


def _unnamed(service: Service) -> dict[str, str]:
    """A name for each that the service leaves to the environment."""
    named = [*service.names.all.values(), *service.named()]
    return {each.setting: each.setting.lower().replace("_", "-") for each in named if each.declared is None}

"""A service's parts over stores in memory; a part that has no form in memory says so, and names what has it."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn, Protocol, TypeVar

from pydantic import BaseModel

from cosmos_outbox.cosmos.aggregates.batch import Lifetimes
from cosmos_outbox.cosmos.aggregates.claims import CosmosClaims
from cosmos_outbox.cosmos.aggregates.deadlines import deadlines_of
from cosmos_outbox.cosmos.aggregates.unit_of_work import CosmosUnitOfWork
from cosmos_outbox.cosmos.inbox.own_source import OwnSource, one
from cosmos_outbox.cosmos.inbox.source import CosmosSource
from cosmos_outbox.cosmos.own.transaction import Transactions
from cosmos_outbox.cosmos.store.partition_key import Item
from cosmos_outbox.inbox.effect import EffectInbox, EffectRules
from cosmos_outbox.inbox.ports import Source
from cosmos_outbox.inbox.reading import MessageReader
from cosmos_outbox.inbox.receiver import Handle, Read
from cosmos_outbox.inbox.state import StateInbox
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations.shedding import LoadShedder
from cosmos_outbox.outbox.aggregates import Aggregates
from cosmos_outbox.outbox.unit_of_work import OnCommit, Origin, UnitOfWork
from cosmos_outbox.settings.environment import Settings, SubscriberSettings
from cosmos_outbox.settings.names import Named
from cosmos_outbox.testing.clock import Clock
from cosmos_outbox.testing.deliveries import timed
from cosmos_outbox.testing.documents import Documents, MemoryContainer, NotInMemory
from cosmos_outbox.testing.store import MemoryStore
from cosmos_outbox.wiring.declared import EffectOf, ReadModelOf
from cosmos_outbox.wiring.effects import effect_rules
from cosmos_outbox.wiring.outbox import Outbox
from cosmos_outbox.wiring.reactions import ReactionOf, reaction_inbox, records_of
from cosmos_outbox.wiring.read_model import tombstone_seconds
from cosmos_outbox.wiring.service import Service, Wired
from cosmos_outbox.wiring.subscribing import ForeignEffect, WiredSubscriber
from cosmos_outbox.wiring.subscription import ReadModel, Subscriber, Subscription, subscriber_over

S = TypeVar("S", bound=BaseModel)


class _Declared(Protocol):
    @property
    def aggregate_type(self) -> str: ...
    @property
    def subscription(self) -> Named: ...


@dataclass(frozen=True)
class MemoryWired(Wired):
    made: Mapping[str, Subscription]

    @cached_property
    def subscriptions(self) -> Mapping[str, Subscription]:
        return self.made


@dataclass(frozen=True)
class OwnSourceInMemory(OwnSource[S]):
    """Finds a document by looking at all of them."""

    held: Documents

    async def _locate(self, key: AggregateKey) -> Item | None:
        return one(key, [item for item in self.held.all() if self.documents.is_of(item, key.id)])

    async def _look_for(self, key: AggregateKey) -> Item | None:
        return await self._locate(key)


@dataclass(frozen=True)
class MemoryWiredSubscriber(WiredSubscriber):
    made: Mapping[str, Subscription]

    @cached_property
    def subscriptions(self) -> Mapping[str, Subscription]:
        return self.made


@dataclass(frozen=True)
class _Absent:
    """A part of an outbox that has no form in memory."""

    name: str

    def __getattr__(self, asked: str) -> NoReturn:
        self()

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise NotInMemory(
            f"{self.name} is not there in memory: test it on a local Azure, with cosmos_outbox.testing.LocalAzure"
        )


def outbox_in_memory(service: Service, wired: Wired, container: MemoryContainer, clock: Clock) -> Outbox:
    settings, on_commit = wired.settings, wired.outbox.on_commit
    lifetimes = Lifetimes(
        settings.event_ttl_seconds,
        settings.idempotency_ttl_seconds,
        records_of(service.subscribers, settings),
    )
    claims = MemoryContainer(Documents(clock=clock))

    def open_unit_of_work(origin: Origin) -> UnitOfWork:
        return CosmosUnitOfWork(container, "memory", origin, lifetimes, on_commit)

    def absent(name: str) -> Any:
        return _Absent(name)

    async def not_known() -> float:
        return 0.0

    aggregates = Aggregates(open_unit_of_work, wired.outbox.claims)
    transactions = None
    if service.own is not None:
        transactions = Transactions(container, service.own, settings.event_ttl_seconds, on_commit, clock)
    deadlines = deadlines_of(service.aggregates, container, aggregates, clock)
    return replace(
        wired.outbox,
        open_unit_of_work=open_unit_of_work,
        claims=CosmosClaims(claims, settings.idempotency_ttl_seconds),
        check=container.check,
        shedder=LoadShedder(not_known, None),
        deadlines=deadlines if deadlines is None else replace(deadlines, time=clock.monotonic),
        transactions=transactions,
        relay=absent("the relay"),
        forwarding=absent("the relay"),
        parking=absent("the parking lot"),
        observer=absent("the view of the relay"),
        history=absent("the history of events"),
        feed=absent("the change feed"),
        leases=absent("the change feed"),
        container=absent("a container of the SDK's"),
        event_list=absent("the list of an aggregate's events"),
        dependencies=(),
    )


@dataclass(frozen=True)
class Subscribers:
    """Builds what a service subscribes to, over a store in memory and with the test's time."""

    store: MemoryStore
    settings: Settings | SubscriberSettings
    resources: AsyncExitStack
    clock: Clock

    def of(
        self,
        declared: ReadModelOf[Any] | EffectOf | ReactionOf[Any],
        source: MemoryContainer,
        on_commit: OnCommit,
    ) -> Subscription:
        """A subscriber of the service's own aggregates, which are in ``source``."""
        if isinstance(declared, ReactionOf):
            inbox = reaction_inbox(declared, self._publishing, source, on_commit, self.clock)
            subscriber = self._subscriber(declared, inbox.handle, untyped=declared.untyped)
            return timed(subscriber.asking(inbox), self.clock)
        if isinstance(declared, EffectOf):
            return self.effect(declared, untyped=declared.untyped)
        model = self._read_model(declared, source)
        handle, untyped = model.inbox.handle, declared.untyped
        return timed(
            Subscription(self._subscriber(declared, handle, untyped=untyped), read_model=model),
            self.clock,
        )

    @property
    def _publishing(self) -> Settings:
        assert isinstance(self.settings, Settings), "a reaction is of a service that publishes"
        return self.settings

    def effect(self, declared: EffectOf | ForeignEffect, *, untyped: bool = False) -> Subscription:
        """An effect, of whoever's events."""
        settings, clock = self.settings, self.clock
        rules = effect_rules(settings, declared.chosen)
        name = settings.name(declared.subscription)
        records = self.store.effects(declared.name, name, int(rules.lives.total_seconds()))
        inbox = EffectInbox(records, declared.run, rules, clock, clock.monotonic, clock.sleep)
        subscriber = self._subscriber(declared, inbox.handle, rules, untyped=untyped)
        return timed(subscriber.asking(inbox), clock)

    def _subscriber(
        self, declared: _Declared, handle: Handle, effects: EffectRules | None = None, *, untyped: bool
    ) -> Subscriber:
        name = self.settings.name(declared.subscription)
        records = self.store.set_aside(name, self.settings.event_ttl_seconds)
        read: Read = MessageReader(declared.aggregate_type, untyped=untyped).read
        if effects is not None:
            read = effects.reading(read)
        in_order = effects is not None
        return subscriber_over(records, self.settings, self.resources, name, read, handle, in_order=in_order)

    def _read_model(self, of: ReadModelOf[S], source: MemoryContainer) -> ReadModel[S]:
        entries = self.store.entries(of.name, of.form, tombstone_seconds(self.settings))
        inbox = StateInbox(entries, _source(of, source), of.project, clock=self.clock)
        return ReadModel(inbox, None, self.store.listing(of.name, of.form))


def _source(of: ReadModelOf[S], source: MemoryContainer) -> Source[S]:
    if of.documents is None:
        return CosmosSource(source, of.aggregate_type, of.state_of)
    feed: Any = _Absent("the change feed")
    return OwnSourceInMemory(source, feed, of.documents, of.state_of, source.documents)

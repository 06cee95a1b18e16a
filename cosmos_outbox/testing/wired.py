"""A service's parts over stores in memory; a part that has no form in memory says so, and names what has it."""

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel

from cosmos_outbox.cosmos.aggregates.batch import Lifetimes
from cosmos_outbox.cosmos.aggregates.claims import CosmosClaims
from cosmos_outbox.cosmos.aggregates.unit_of_work import CosmosUnitOfWork
from cosmos_outbox.cosmos.inbox.source import CosmosSource
from cosmos_outbox.cosmos.own.transaction import Transactions
from cosmos_outbox.inbox.effect_upkeep import EffectUpkeep
from cosmos_outbox.inbox.effects import EffectInbox
from cosmos_outbox.inbox.event import AggregateKey
from cosmos_outbox.inbox.reading import MessageReader
from cosmos_outbox.inbox.state import StateInbox
from cosmos_outbox.inbox.sweep import Sweep
from cosmos_outbox.operations.shedding import LoadShedder
from cosmos_outbox.outbox.unit_of_work import Origin, UnitOfWork
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.sqlite.store import SqliteStore
from cosmos_outbox.testing.clock import Clock
from cosmos_outbox.testing.documents import Documents, MemoryContainer, NotInMemory
from cosmos_outbox.testing.ledger import MemoryLedger
from cosmos_outbox.wiring.effects import effect_rules
from cosmos_outbox.wiring.kept import ReadModel
from cosmos_outbox.wiring.outbox import Outbox
from cosmos_outbox.wiring.read_model import tombstone_seconds
from cosmos_outbox.wiring.service import EffectOf, ReadModelOf, Service, Subscriber, Wired
from cosmos_outbox.wiring.subscribing import WiredSubscriber
from cosmos_outbox.wiring.subscription import Subscription, subscriber_over

S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True)
class MemoryWired(Wired):
    made: Mapping[str, Subscription]

    @cached_property
    def subscriptions(self) -> Mapping[str, Subscription]:
        return self.made


@dataclass(frozen=True)
class MemoryWiredSubscriber(WiredSubscriber):
    made: Mapping[str, Subscription] = field(default_factory=dict)

    @cached_property
    def subscriptions(self) -> Mapping[str, Subscription]:
        return self.made


@dataclass(frozen=True)
class OpenedStore:
    """See :class:`cosmos_outbox.wiring.subscribing.StoreOf`."""

    store: SqliteStore

    def open(self, environment: Mapping[str, str], resources: AsyncExitStack) -> SqliteStore:
        resources.push_async_callback(self.store.database.close)
        return self.store


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
    lifetimes = Lifetimes(settings.event_ttl_seconds, settings.idempotency_ttl_seconds)
    claims = MemoryContainer(Documents(clock=clock))

    def open_unit_of_work(origin: Origin) -> UnitOfWork:
        return CosmosUnitOfWork(container, "memory", origin, lifetimes, on_commit)

    def absent(name: str) -> Any:
        return _Absent(name)

    async def not_known() -> float:
        return 0.0

    transactions = None
    if service.own is not None:
        transactions = Transactions(container, service.own, settings.event_ttl_seconds, on_commit, clock)
    return replace(
        wired.outbox,
        open_unit_of_work=open_unit_of_work,
        claims=CosmosClaims(claims, settings.idempotency_ttl_seconds),
        check=container.check,
        shedder=LoadShedder(not_known, None),
        transactions=transactions,
        relay=absent("the relay"),
        forwarding=absent("the relay"),
        parking=absent("the parking lot"),
        observer=absent("the view of the relay"),
        history=absent("the history of events"),
        feed=absent("the change feed"),
        leases=absent("the change feed"),
        expiry=absent("the emergency brake"),
        container=absent("a container of the SDK's"),
        past=absent("the history of an aggregate"),
        dependencies=(),
        own_events=absent("erasing"),
    )


def subscription_in_memory(
    of: Subscriber, wired: Wired, store: SqliteStore, source: MemoryContainer, clock: Clock
) -> Subscription:
    settings = wired.settings
    reader = MessageReader(of.aggregate_type, untyped=of.untyped)
    name = settings.name(of.subscription)
    receiving = partial(
        subscriber_over,
        store.set_aside(name, settings.event_ttl_seconds),
        settings,
        wired.resources,
        name,
        reader.read,
    )
    if isinstance(of, EffectOf):
        rules = effect_rules(settings.event_ttl_seconds, settings.parked_max_age_seconds, of.unsure)
        effects = EffectInbox(MemoryLedger(), of.run, rules, clock, time=clock.monotonic, pause=clock.sleep)
        upkeep = EffectUpkeep(effects)
        subscriber = receiving(effects.handle)
        retrier = replace(subscriber.retrier, give_up=upkeep.give_up)
        return Subscription(replace(subscriber, retrier=retrier), upkeep=upkeep)
    model = _read_model(of, settings, store, source, clock)
    return Subscription(receiving(model.inbox.handle), read_model=model, swept=False)


def _read_model(
    of: ReadModelOf[S], settings: Settings, store: SqliteStore, source: MemoryContainer, clock: Clock
) -> ReadModel[S]:
    entries = store.entries(of.name, of.form, tombstone_seconds(settings))
    inbox = StateInbox(
        replace(entries, clock=clock), CosmosSource(source, of.state_of), of.project, clock=clock
    )
    lists = partial(store.lists, of.name, form=of.form.version)
    sweep = Sweep(inbox, lists("sweep"), None, _none_blocked, timedelta(seconds=settings.event_ttl_seconds))
    return ReadModel(inbox, sweep, store.listing(of.name, of.form), lists)


async def _none_blocked() -> Sequence[AggregateKey]:
    return []

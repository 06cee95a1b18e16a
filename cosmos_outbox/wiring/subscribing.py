"""Another team's service: it subscribes to events, keeps what they tell in a store of its own, and publishes nothing.

It needs a connection to the broker and its own store, and no right to read the publisher's.
"""

import os
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from cosmos_outbox.inbox.decision import Projection
from cosmos_outbox.inbox.effect import Effect, EffectRecords
from cosmos_outbox.inbox.form import EntryForm, Listing
from cosmos_outbox.inbox.ports import Entries, Source
from cosmos_outbox.inbox.reading import MessageReader
from cosmos_outbox.inbox.set_aside import SetAside
from cosmos_outbox.inbox.state import StateInbox
from cosmos_outbox.inbox.upcasting import Upcasting, Upcasts
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations.health import RecentCheck
from cosmos_outbox.settings.environment import SubscriberSettings, load_subscriber
from cosmos_outbox.settings.names import Named, Names, named_after
from cosmos_outbox.settings.transports import Declared, Name
from cosmos_outbox.sources.http import HttpApi
from cosmos_outbox.sources.nowhere import NoSource, Nowhere
from cosmos_outbox.telemetry.export import export
from cosmos_outbox.wiring.declared import Chosen
from cosmos_outbox.wiring.outbox import HEALTH_SECONDS
from cosmos_outbox.wiring.per_process import OnePerProcess
from cosmos_outbox.wiring.subscription import ReadModel, Subscription, subscriber_over

S = TypeVar("S", bound=BaseModel)


class Store(Protocol):
    """Where a subscriber keeps its entries, what it set aside, and what is known of its effects."""

    def entries(self, name: str, form: EntryForm[S], deleted_ttl_seconds: int | None) -> Entries[S]:
        """Of one read model; None: deleted entries are kept for good. Raises Misconfigured."""

    def listing(self, name: str, form: EntryForm[S]) -> Listing[S]:
        """Of one read model."""

    def set_aside(self, subscription: str, closed_ttl_seconds: int) -> SetAside:
        """Of one subscription."""

    def effects(self, name: str, subscription: str, ttl_seconds: int) -> EffectRecords:
        """Of one subscriber with effects. Raises Misconfigured."""

    async def check(self) -> None:
        """Returns if it answers. Raises the errors of the inbox, or of the outbox, when it does not."""


class StoreOf(Protocol):
    """A store as it is declared."""

    def open(self, environment: Mapping[str, str], resources: AsyncExitStack) -> Store:
        """The store. Opens no connection; ``resources`` closes it. Raises Misconfigured."""


@dataclass(frozen=True)
class ForeignReadModel(Generic[S]):
    """A read model of another team's aggregates, as it is declared."""

    name: str
    aggregate_type: str
    subscription: Named
    form: EntryForm[S]
    project: Projection[S]
    source: HttpApi[S] | NoSource[S]

    @property
    def has_source(self) -> bool:
        """Whether an entry can be put right from the publisher's own state."""
        return isinstance(self.source, HttpApi)

    def wire(self, wired: "WiredSubscriber") -> Subscription:
        """Its subscriber, with the walk where there is a source. Raises Misconfigured."""
        from cosmos_outbox.inbox.healing import Healing  # noqa: PLC0415
        from cosmos_outbox.wiring.read_model import tombstone_seconds  # noqa: PLC0415

        store, settings = wired.store, wired.settings
        source: Source[S]
        deleted_ttl: int | None
        match self.source:
            case HttpApi() as api:
                source, deleted_ttl = api.made(wired.environment), tombstone_seconds(settings)
                wired.resources.push_async_callback(source.close)
            case NoSource():
                source, deleted_ttl = Nowhere(), None
        first = self.source.first
        inbox = StateInbox(
            store.entries(self.name, self.form, deleted_ttl), source, self.project, first=first,
            tombstones=None if deleted_ttl is None else timedelta(seconds=deleted_ttl),
            forgetful=self.has_source and first is not None,
        )  # fmt: skip
        # Another team's aggregates are listed nowhere here.
        healing = (
            Healing(inbox, None, self.form.version, _list_none, timedelta()) if self.has_source else None
        )
        model = ReadModel(inbox, healing, store.listing(self.name, self.form))
        subscription = settings.name(self.subscription)
        subscriber = subscriber_over(
            store.set_aside(subscription, settings.event_ttl_seconds), settings, wired.resources, subscription,
            MessageReader(self.aggregate_type).read, inbox.handle, check=inbox.check,
        )  # fmt: skip
        return Subscription(subscriber, read_model=model)


@dataclass(frozen=True)
class ForeignEffect:
    """An effect of another team's events, as it is declared."""

    name: str
    aggregate_type: str
    subscription: Named
    chosen: Chosen

    @property
    def run(self) -> Effect:
        """What is run for each event."""
        return self.chosen.run

    def running(self, run: Effect) -> "ForeignEffect":
        """The same, with another function."""
        return replace(self, chosen=replace(self.chosen, run=run))

    def wire(self, wired: "WiredSubscriber") -> Subscription:
        """Its subscriber. Raises Misconfigured."""
        from cosmos_outbox.inbox.effect import EffectInbox  # noqa: PLC0415
        from cosmos_outbox.wiring.effects import effect_rules  # noqa: PLC0415

        store, settings = wired.store, wired.settings
        rules = effect_rules(settings, self.chosen)
        subscription = settings.name(self.subscription)
        records = store.effects(self.name, subscription, int(rules.lives.total_seconds()))
        inbox = EffectInbox(records, self.run, rules)
        subscriber = subscriber_over(
            store.set_aside(subscription, settings.event_ttl_seconds), settings, wired.resources, subscription,
            rules.reading(MessageReader(self.aggregate_type).read), inbox.handle, in_order=True,
        )  # fmt: skip
        return subscriber.asking(inbox)


ForeignSubscriber = ForeignReadModel[Any] | ForeignEffect


@dataclass(frozen=True)
class WiredSubscriber:
    """A subscribing service in one process. See :class:`cosmos_outbox.worker.subscriber.Subscribed`."""

    service: "SubscriberService"
    settings: SubscriberSettings
    store: Store
    check: Callable[[], Awaitable[None]]
    """Returns if the service's own store answers. Raises the errors of the inbox, or of the outbox, if not."""
    resources: AsyncExitStack
    environment: Mapping[str, str] = field(repr=False)

    @cached_property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """What the service subscribes to, by the names of its read models and effects. Raises Misconfigured."""
        return {each.name: each.wire(self) for each in self.service.subscribers}

    def read_model(self, of: ForeignReadModel[S]) -> ReadModel[S]:
        """What keeps a read model, and lists its entries. Raises KeyError: the service does not declare it."""
        made = self.subscriptions[of.name].read_model
        assert made is not None, "a read model's subscription keeps it"
        return made


@dataclass(frozen=True)
class SubscriberService:
    """A service that subscribes to another team's events, and publishes nothing.

    It needs no right to the publisher's store. Its declaration opens nothing; ``running(service)`` receives.
    """

    name: str
    """As telemetry tells it."""
    store: StoreOf
    """Where it keeps what it knows: a :class:`CosmosDatabase`, or an adapter of :mod:`cosmos_outbox.store`."""
    topic: str | None = None
    """The publisher's, unless ``SERVICEBUS_TOPIC`` says otherwise."""
    transport: Name = "servicebus"
    """What the messages come over, unless ``TRANSPORT`` says otherwise."""
    subscribers: list[ForeignSubscriber] = field(default_factory=list, init=False)

    _per_process: OnePerProcess["WiredSubscriber"] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A frozen object's own slot for the wired service of this process.
        object.__setattr__(self, "_per_process", OnePerProcess(lambda: self.wire(os.environ)))

    def read_model(  # noqa: PLR0913 - a declaration, all of it by name
        self,
        name: str,
        *,
        of: str,
        form: EntryForm[S],
        project: Projection[S],
        source: HttpApi[S] | NoSource[S],
        subscription: Named | str | None = None,
        upcast: Upcasts | None = None,
    ) -> ForeignReadModel[S]:
        """Declare a read model of the aggregates of type ``of``; ``name``: of its subscription too, unless named.

        ``form``: how an entry is stored and found. ``project``: the entry after an event, or None where the source has
        to be read; it may be called again for the same event, and does no I/O. ``source``: where an aggregate is read
        of which an event is missing. ``upcast``: steps from older versions of events, also for effects. Raises
        ValueError: the name is taken, or a step is missing.
        """
        steps = Upcasting(upcast or {})
        if source.first is not None:
            source = replace(source, first=steps.before(source.first))
        declared = ForeignReadModel(
            name, of, named_after(name, "SUBSCRIPTION", subscription), form, steps.before(project), source
        )
        self._add(declared)
        return declared

    def effect(  # noqa: PLR0913 - a declaration, all of it by name
        self,
        name: str,
        *,
        of: str,
        on: Collection[str] | None = None,
        subscription: Named | str | None = None,
        repeatable: bool = True,
        begin: datetime | None = None,
        upcast: Upcasts | None = None,
    ) -> Callable[[Effect], ForeignEffect]:
        """Declare an effect: the decorated function runs for each event of type ``of``, in its aggregate's order.

        ``on``: the names of the events that have one. ``begin``: earlier events are not for this team, which subscribes
        since then. It is asked for at least once: a process that dies between the effect and its record runs it again,
        or leaves it to an operator where it is not ``repeatable``. Give the event's id to the other side as its
        idempotency key. One that fails holds up the later ones of its aggregate.
        """
        steps = Upcasting(upcast or {})

        def declare(run: Effect) -> ForeignEffect:
            chosen = Chosen.of(steps.before_effect(run), on, begin, repeatable=repeatable)
            declared = ForeignEffect(name, of, named_after(name, "SUBSCRIPTION", subscription), chosen)
            self._add(declared)
            return declared

        return declare

    @property
    def names(self) -> Names:
        """What it calls the publisher's topic; its store has its own names."""
        return Names(topic=self.topic)

    def declared_transport(self) -> Declared:
        """What is known of its transport without the settings of that."""
        return Declared(
            self.names.topic_named, self.transport, [each.subscription for each in self.subscribers]
        )

    def settings(self, environment: Mapping[str, str]) -> SubscriberSettings:
        """The settings of this service, without those of its store. Raises Misconfigured."""
        subscriptions = [each.subscription for each in self.subscribers]
        return load_subscriber(environment, self.declared_transport(), subscriptions)

    def wire(self, environment: Mapping[str, str]) -> WiredSubscriber:
        """Build the service from settings. Opens no connection: the first use opens it. Raises Misconfigured."""
        settings = self.settings(environment)
        resources = AsyncExitStack()
        if exporting := export(settings.telemetry, self.name):
            resources.push_async_callback(exporting.flush)
        store = self.store.open(environment, resources)
        check = RecentCheck(store.check, seconds=HEALTH_SECONDS)
        return WiredSubscriber(self, settings, store, check, resources, environment)

    def __call__(self) -> WiredSubscriber:
        """The service of this process: call it inside the running loop. Raises Misconfigured."""
        return self._per_process()

    def taken_from(self, wired: WiredSubscriber) -> AbstractContextManager[None]:
        """Until the block ends, a call of the service in this loop gives this one; whoever wired it closes it."""
        return self._per_process.taken_from(wired)

    def _add(self, subscriber: ForeignSubscriber) -> None:
        if any(each.name == subscriber.name for each in self.subscribers):
            raise ValueError(
                f"{self.name} has two subscribers named {subscriber.name}: give each a name of its own"
            )
        self.subscribers.append(subscriber)


async def _list_none() -> Collection[AggregateKey]:
    """Whose events the publisher holds back is not told to other teams."""
    return []

"""Another team's service: it subscribes to events, keeps what they tell in a store of its own, and publishes nothing.

It needs a connection to the broker and its own store, and no right to read the publisher's.
"""

import os
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from cosmos_outbox.inbox.decision import Projection
from cosmos_outbox.inbox.form import EntryForm, Listing
from cosmos_outbox.inbox.ports import Entries, Source
from cosmos_outbox.inbox.reading import MessageReader
from cosmos_outbox.inbox.set_aside import SetAside
from cosmos_outbox.inbox.state import StateInbox
from cosmos_outbox.inbox.sweep import Sweep
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.settings.names import Named
from cosmos_outbox.settings.subscribing import SubscriberSettings, load_subscriber
from cosmos_outbox.sources.http import HttpApi
from cosmos_outbox.sources.nowhere import NoSource, Nowhere
from cosmos_outbox.telemetry.export import export
from cosmos_outbox.wiring.kept import CountedLists, ReadModel
from cosmos_outbox.wiring.per_process import OnePerProcess
from cosmos_outbox.wiring.read_model import tombstone_seconds
from cosmos_outbox.wiring.subscription import Subscription, subscriber_over

S = TypeVar("S", bound=BaseModel)


class Store(Protocol):
    """Where a subscriber keeps its entries, what it set aside, and how far its sweeps are."""

    def entries(self, name: str, form: EntryForm[S], deleted_ttl_seconds: int | None) -> Entries[S]:
        """Of one read model; None: deleted entries are kept for good."""

    def listing(self, name: str, form: EntryForm[S]) -> Listing[S]:
        """Of one read model."""

    def lists(self, name: str, walk: str, form: int) -> CountedLists:
        """The entries of one read model, for a walk."""

    def set_aside(self, subscription: str, closed_ttl_seconds: int) -> SetAside:
        """Of one subscription."""

    async def check(self) -> None:
        """Returns if it answers. Raises StoreAway."""


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

    def wire(self, wired: "WiredSubscriber", environment: Mapping[str, str]) -> Subscription:
        """Its subscriber, with the sweep where there is a source. Raises Misconfigured."""
        store, settings = wired.store, wired.settings
        source: Source[S]
        deleted_ttl: int | None
        match self.source:
            case HttpApi() as api:
                source, first, deleted_ttl = api.made(environment), None, tombstone_seconds(settings)
                wired.resources.push_async_callback(source.close)
            case NoSource(first=first):
                source, deleted_ttl = Nowhere(), None
        inbox = StateInbox(
            store.entries(self.name, self.form, deleted_ttl), source, self.project, first=first
        )
        lists = partial(store.lists, self.name, form=self.form.version)
        # Another team's changes are listed nowhere here.
        sweep = Sweep(inbox, lists("sweep"), None, _list_none, timedelta(seconds=settings.event_ttl_seconds))
        model = ReadModel(inbox, sweep, store.listing(self.name, self.form), lists)
        subscription = settings.name(self.subscription)
        subscriber = subscriber_over(
            store.set_aside(subscription, settings.event_ttl_seconds), settings, wired.resources, subscription,
            MessageReader(self.aggregate_type).read, inbox.handle,
        )  # fmt: skip
        return Subscription(subscriber, read_model=model, swept=isinstance(self.source, HttpApi))


@dataclass(frozen=True)
class WiredSubscriber:
    """A subscribing service in one process. See :class:`cosmos_outbox.worker.subscriber.Subscribed`."""

    service: "SubscriberService"
    settings: SubscriberSettings
    store: Store
    resources: AsyncExitStack
    environment: Mapping[str, str] = field(repr=False)

    async def check(self) -> None:
        """Returns if the service's own store answers. Raises StoreAway."""
        await self.store.check()

    @cached_property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """What the service subscribes to, by the names of its read models. Raises Misconfigured."""
        return {each.name: each.wire(self, self.environment) for each in self.service.read_models}

    def read_model(self, of: ForeignReadModel[S]) -> ReadModel[S]:
        """What keeps a read model, and lists its entries. Raises KeyError: the service does not declare it."""
        made = self.subscriptions[of.name].read_model
        assert made is not None, "a read model's subscription keeps it"
        return made


@dataclass(frozen=True)
class SubscriberService:
    """A service that publishes nothing. ``topic``: of the publisher, unless ``SERVICEBUS_TOPIC`` says otherwise."""

    name: str
    store: StoreOf
    topic: str | None = None
    read_models: list[ForeignReadModel[Any]] = field(default_factory=list, init=False)

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
        subscription: str | None = None,
    ) -> ForeignReadModel[S]:
        """Declare a read model of the aggregates of type ``of``; ``name``: of its subscription too, unless named."""
        if any(each.name == name for each in self.read_models):
            raise ValueError(f"{self.name} has two read models named {name}: give each a name of its own")
        setting = f"{name.upper().replace('-', '_')}_SUBSCRIPTION"
        declared = ForeignReadModel(name, of, Named(setting, subscription or name), form, project, source)
        self.read_models.append(declared)
        return declared

    def wire(self, environment: Mapping[str, str]) -> WiredSubscriber:
        """Build the service from settings. Opens no connection: the first use opens it. Raises Misconfigured."""
        topic = Named("SERVICEBUS_TOPIC", self.topic)
        settings = load_subscriber(environment, topic, [each.subscription for each in self.read_models])
        resources = AsyncExitStack()
        if exporting := export(settings.telemetry, self.name):
            resources.push_async_callback(exporting.flush)
        return WiredSubscriber(
            self, settings, self.store.open(environment, resources), resources, environment
        )

    def __call__(self) -> WiredSubscriber:
        """The service of this process: call it inside the running loop. Raises Misconfigured."""
        return self._per_process()

    def taken_from(self, wired: WiredSubscriber) -> AbstractContextManager[None]:
        """Until the block ends, a call of the service in this loop gives this one; whoever wired it closes it."""
        return self._per_process.taken_from(wired)


async def _list_none() -> Collection[AggregateKey]:
    """Whose events the publisher holds back is not told to other teams."""
    return []

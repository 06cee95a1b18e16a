"""Declares a service once: a function app, a worker, a command and a test take the same object.

A declaration does no I/O and reads no setting, so a module may make one at its import. Settings are read, and clients
made, when the service is wired: once per process and event loop, by the first use. What only some process needs is
loaded when that process asks for it.
"""

import os
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel

from cosmos_outbox import composition
from cosmos_outbox.composition.declarations import (
    EffectDeclaration,
    On,
    ReactionDeclaration,
    ReadModelDeclaration,
    Store,
    StoreOf,
    Subscriber,
    checked_call,
    names_of_events,
)
from cosmos_outbox.composition.process import ProcessSingleton
from cosmos_outbox.inbox.entry import EntrySchema
from cosmos_outbox.inbox.message import Upcasting, Upcasts, utc
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.event import DomainEvent
from cosmos_outbox.settings.environment import Settings, SubscriberSettings, load, load_subscriber
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.settings.names import (
    DocumentSource,
    ExistingContainer,
    Named,
    Names,
    WireNames,
    check_name,
    named_after,
)
from cosmos_outbox.settings.transports import LOADERS, Declared, Name, PublisherOf

if TYPE_CHECKING:
    from cosmos_outbox.composition.operator import Operator
    from cosmos_outbox.composition.relay import Relaying
    from cosmos_outbox.composition.transports import Clients
    from cosmos_outbox.composition.writer import Outbox
    from cosmos_outbox.cosmos.aggregates.aggregates import Aggregates
    from cosmos_outbox.cosmos.inbox.reaction_decision import React
    from cosmos_outbox.cosmos.inbox.reactions import Targets
    from cosmos_outbox.cosmos.store.partition_key import PartitionKeyPaths
    from cosmos_outbox.inbox.effect import Effect
    from cosmos_outbox.inbox.ports import NoSource
    from cosmos_outbox.inbox.read_model import First, Projection
    from cosmos_outbox.inbox.retrier import Retries
    from cosmos_outbox.operations.stuck import StuckList
    from cosmos_outbox.operations.subscriber import ReadModel, Subscription
    from cosmos_outbox.sources.http import HttpApi

S = TypeVar("S", bound=BaseModel)
A = TypeVar("A", bound=Aggregate[Any])

_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,127}")


@dataclass(frozen=True)
class Wired:
    """One service in one process: what its functions and calls use, each part made when it is first asked for."""

    service: "Service"
    settings: SubscriberSettings
    environment: Mapping[str, str] = field(repr=False)
    clients: "Clients"
    resources: AsyncExitStack
    """Closes all clients."""

    @cached_property
    def outbox(self) -> "Outbox":
        """The parts that a writer needs. Raises Misconfigured: the service publishes nothing, or a setting is wrong."""
        if not isinstance(self.settings, Settings):
            raise Misconfigured(
                f"{self.service.name} publishes nothing: ask the team that publishes its events"
            )
        reacts = any(isinstance(each, ReactionDeclaration) for each in self.service.subscribers)
        return composition.wire_outbox(
            self.settings,
            self.service.wire_names,
            self.clients,
            self.resources,
            declared=frozenset(self.service.aggregate_types),
            records_seconds=self.settings.records_seconds if reacts else 0,
            oldest_waiting_seconds=self._oldest_waiting_seconds,
        )

    @property
    def aggregates(self) -> "Aggregates":
        """Creates, reads and changes the service's aggregates, each with its events in one transaction."""
        return self.outbox.aggregates

    @cached_property
    def relay(self) -> "Relaying":
        """The parts that a relay needs."""
        return composition.wire_relay(self.outbox, self.clients, self.service.aggregates)

    @cached_property
    def operator(self) -> "Operator":
        """The parts that an operator needs."""
        return composition.wire_operator(self.outbox, self.relay)

    @property
    def stuck(self) -> "StuckList":
        """The list of all that is stuck, for operators. Raises Misconfigured."""
        parking = self.operator.parking if self.service.publishes else None
        return composition.StuckList(
            parking, {name: each.subscriber.retrier for name, each in self.subscriptions.items()}
        )

    @cached_property
    def store(self) -> Store:
        """The store of its subscribers' entries and records. Raises Misconfigured."""
        if self.service.store is not None:
            return self.service.store.open(self.environment, self.resources)
        settings = self.outbox.settings
        containers = {each.name: each.container for each in self.service.subscribers if each.container}
        names = composition.CosmosNames(
            settings.cosmos,
            settings.cosmos_database,
            settings.cosmos_set_aside_container,
            lambda name: settings.name(containers[name]),
        )
        return composition.CosmosStore(names, self.outbox.container)

    @cached_property
    def subscriptions(self) -> "Mapping[str, Subscription]":
        """The service's subscriptions, by the names of its read models, effects and reactions.

        Raises Misconfigured.
        """
        outbox = self.outbox if self.service.publishes else None
        made = composition.Subscriptions(
            self.settings,
            self.store,
            self.resources,
            self.clients,
            self.environment,
            outbox,
            self._list_blocked,
        )
        return {each.name: made.wire(each) for each in self.service.subscribers}

    def read_model(self, of: ReadModelDeclaration[S]) -> "ReadModel[S]":
        """Returns what keeps a read model, and lists its entries. Raises KeyError: the service does not declare it."""
        made = self.subscriptions[of.name].read_model
        assert made is not None, "a read model's subscription keeps it"
        return made

    async def check(self) -> None:
        """Returns if the store answers. Raises the errors of the outbox, or of the inbox, when it does not."""
        await self._check()

    @cached_property
    def _check(self) -> Callable[[], Awaitable[None]]:
        return (
            self.outbox.check
            if self.service.publishes
            else composition.RecentCheck(self.store.check, seconds=composition.HEALTH_SECONDS)
        )

    async def _oldest_waiting_seconds(self) -> float:
        return await self.operator.observer.oldest_waiting_seconds()

    async def _list_blocked(self) -> Sequence[AggregateKey]:
        """The aggregates whose events are held back: of another team's nobody knows them here."""
        if not self.service.publishes:
            return []
        return [block.aggregate for block in await self.relay.lot.list_blocked()]


@dataclass(frozen=True)
class Service:
    """A service that keeps aggregates, or documents of the team's own, and publishes their events.

    One that only subscribes to another team's events says ``publishes=False``, and names its store. Its declaration
    opens nothing. Call it, ``service()``, inside the running loop for the service of this process:
    ``service().aggregates`` stores and reads, ``service().outbox.transaction(key)`` writes documents of the team's own,
    ``service().read_model(declared).listing`` lists. Raises ValueError: what is declared cannot be right.
    """

    name: str
    """It stands in the CloudEvents ``source`` of every event (``/name``): never change it once events are sent."""
    aggregates: Sequence[type[Aggregate[Any]]] = ()
    """The classes, each with an ``aggregate_type`` of its own; all are stored in one container."""
    names: Names = field(default_factory=Names)
    """The names of its containers and its topic, unless a setting says otherwise."""
    untyped: str | None = None
    """The aggregate type of events that were stored without one; None: there are no such events."""
    events: Sequence[type[DomainEvent]] = ()
    """Those that no aggregate declares, since they are raised by hand: for ``cosmos-outbox schemas``."""
    own: ExistingContainer | None = None
    """The description of a container with documents of the team's own, beside which events are stored; then it has no
    aggregates."""
    transport: Name | PublisherOf = "servicebus"
    """The transport that sends all its events, and receives for it, unless ``TRANSPORT`` says otherwise. A function
    opens a publisher of the service's own (:mod:`cosmos_outbox.publisher`), which only sends."""
    publishes: bool = True
    """False: it only subscribes, has no aggregates, and needs no right to the publisher's store."""
    store: StoreOf | None = None
    """The store of a service that publishes nothing: a :class:`CosmosDatabase`, or an adapter of
    :mod:`cosmos_outbox.store`."""
    subscribers: list[Subscriber] = field(default_factory=list, init=False)

    _per_process: ProcessSingleton[Wired] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        _check_classes(self.name, self.aggregates, self.events)
        if not callable(self.transport) and self.transport not in LOADERS:
            raise ValueError(
                f"{self.name}: transport is {self.transport!r}: take one of {', '.join(LOADERS)}, or a function that "
                "opens a publisher"
            )
        if self.publishes is not (self.store is None):
            raise ValueError(
                f"{self.name} must have a store of its own, or publish: one that only subscribes is declared with both "
                "publishes=False and store=..."
            )
        if not self.publishes and (self.aggregates or self.events or self.own):
            raise ValueError(
                f"{self.name} publishes nothing: it has no aggregates, events or container of its own"
            )
        if len({each.aggregate_type for each in self.aggregates}) != len(self.aggregates):
            raise ValueError(f"two aggregates of {self.name} have one type: give each a type of its own")
        if self.own is not None:
            if self.aggregates:
                raise ValueError(
                    f"{self.name} has aggregates and a container of the team's own: declare two services, each with a "
                    "container and a name. What must be stored together goes into documents of the team's own"
                )
            composition.PartitionKeyPaths.beside_events(self.own.paths)
            composition.Numbering(self.own.aggregates)
        # A frozen object's own slot for the wired service of this process.
        object.__setattr__(
            self,
            "_per_process",
            ProcessSingleton(lambda: self.wire(os.environ), lambda wired: wired.resources),
        )

    @property
    def wire_names(self) -> WireNames:
        """The names in documents and messages."""
        return WireNames(f"/{self.name}", self.untyped, self.own)

    @property
    def paths(self) -> "PartitionKeyPaths":
        """Of the partition key of the container that the events are in."""
        return (
            composition.PARTITION_KEY if self.own is None else composition.PartitionKeyPaths(self.own.paths)
        )

    @property
    def aggregate_types(self) -> Sequence[str]:
        """The types of the service's aggregates, or those of whose events it keeps something."""
        if not self.publishes:
            return sorted({each.aggregate_type for each in self.subscribers})
        return [
            *(each.aggregate_type for each in self.aggregates),
            *(self.own.aggregates if self.own else ()),
        ]

    def read_model(  # noqa: PLR0913 - a declaration has a name for each of its parts
        self,
        name: str,
        *,
        of: type[Aggregate[Any]] | str,
        form: EntrySchema[S],
        project: "Projection[S]",
        state_of: Callable[[Mapping[str, Any]], S] | None = None,
        first: "First[S] | None" = None,
        source: "DocumentSource | HttpApi | NoSource | None" = None,
        subscription: Named | str | None = None,
        container: Named | str | None = None,
        upcast: Upcasts | None = None,
    ) -> ReadModelDeclaration[S]:
        """Declare a read model of aggregates: each event applied once, in order, gaps healed from the source.

        ``name``: of the subscription, of the container and of the functions, unless the two are named.
        ``of``: the aggregates. ``form``: how an entry is stored and found. ``project``: the entry after an event, or
        None where the aggregate itself has to be read. ``state_of``: the entry of an aggregate as its source has it:
        of its stored ``data``. ``first``: the entry of an aggregate's first event, or None where that event does not
        hold all of it; it saves the reading of each new aggregate. They may be called again for the same event, and do
        no I/O. ``source``: in a container of the team's own the documents of the aggregates, which ``state_of`` gets;
        of another team's aggregates the API that answers with them, or ``NoSource()``, which needs ``first`` and no
        ``state_of``. ``upcast``: steps from older versions of events, also for effects and reactions. Raises
        ValueError: the name is taken, the source does not fit, or a step is missing.
        """
        kind, documents, steps = _kind(of), None, Upcasting(upcast or {})
        selected = source if isinstance(source, DocumentSource) else None
        elsewhere = None if isinstance(source, DocumentSource) else source
        has_source = elsewhere is None or not isinstance(elsewhere, composition.NoSource)
        if (elsewhere is not None) is self.publishes:
            raise ValueError(
                f"the source of {name} must be the service's own aggregates"
                if self.publishes
                else f"name the source of {name}: an HttpApi, or NoSource()"
            )
        if not has_source:
            if first is None or state_of is not None:
                raise ValueError(
                    f"{name} has no source: its entries are made by first= alone, not by state_of="
                )
            state_of = form.model.model_validate
        elif state_of is None:
            raise ValueError(f"say with state_of= what the entry of {name} is of an aggregate that was read")
        for call, takes in ((project, ("entry", "event")), (state_of, ("data",)), (first, ("event",))):
            if call is not None:
                checked_call(f"a function of the read model {name}", call, *takes)
        if selected is not None or self.own is not None:
            documents = composition.SourceDocuments.declared(self.own, kind, selected)
        declared = ReadModelDeclaration(
            name, kind, named_after(name, "SUBSCRIPTION", subscription), self._container(name, container), form,
            steps.before(project), self.untyped == kind, state_of, has_source, first and steps.before(first), documents,
            elsewhere,
        )  # fmt: skip
        self._add(declared)
        return declared

    def effect(  # noqa: PLR0913 - a declaration has a name for each of its parts
        self,
        name: str,
        *,
        of: type[Aggregate[Any]] | str,
        on: On = None,
        subscription: Named | str | None = None,
        container: Named | str | None = None,
        repeatable: bool = True,
        begin: datetime | None = None,
        upcast: Upcasts | None = None,
        retries: "Retries | None" = None,
    ) -> "Callable[[Effect], EffectDeclaration]":
        """Declare an effect: the decorated function runs for each event, in the order of its aggregate.

        ``on``: the events that have one, by class or name; others cost nothing. ``begin``: earlier events are not for
        this subscriber, which was added later. It is asked for at least once: a process that dies between the effect
        and its record runs it again, or leaves it to an operator where it is not ``repeatable``. Give the event's id to
        the other side as its idempotency key. The function has 30 seconds; it raises EffectUnavailable where the other
        side is away, and EffectRejected where it refuses this one. ``retries``: when one that failed is tried again;
        later ones of its aggregate wait. None: each minute. Raises ValueError: the name is taken.
        """
        kind, steps = _kind(of), Upcasting(upcast or {})
        kinds = names_of_events(on, self._events_of(kind), f"the effect {name}")

        def declare(run: "Effect") -> EffectDeclaration:
            checked_call(f"the effect {name}", run, "event", awaited=True)
            declared = EffectDeclaration(
                name, kind, named_after(name, "SUBSCRIPTION", subscription), self._container(name, container),
                steps.before_effect(run), kinds, repeatable, begin and utc(begin), self.untyped == kind, retries,
            )  # fmt: skip
            self._add(declared)
            return declared

        return declare

    def reaction(  # noqa: PLR0913 - a declaration has a name for each of its parts
        self,
        name: str,
        *,
        of: type[Aggregate[Any]] | str,
        to: type[A],
        target: "Targets",
        order: Literal["any", "newest", "each"],
        subscription: Named | str | None = None,
        topic: Named | str | None = None,
        upcast: Upcasts | None = None,
    ) -> "Callable[[React[A]], ReactionDeclaration[A]]":
        """Declare a reaction: a message changes an aggregate, or makes it, and raises its events, once.

        ``name``: never change it once messages came. ``target``: the id of the aggregate of type ``to`` that a message
        is for, or several, the same each time, with their partition keys as ``{id: key}`` where these are others; None:
        it is not for this reaction. ``order``: "any"; "newest" (a message after a newer one of its aggregate is passed
        over); or "each" (in order, none left out: no filter, and always the same target). ``topic``: another team's.
        The decorated function gets the aggregate, or None, and the event; it changes it, returns a new one, or raises
        ReactionRefused. It may be called again, and does no I/O. Raises ValueError: it cannot be right.
        """
        if to not in self.aggregates:
            raise ValueError(
                f"{self.name} has no {to.__name__}: a reaction changes its own service's aggregates"
            )
        kind, steps = _kind(of), Upcasting(upcast or {})
        checked_call(f"target= of the reaction {name}", target, "event")
        if order not in {*composition.InOrder}:
            orders = ", ".join(composition.InOrder)
            raise ValueError(f"the reaction {name}: order is {order!r}: take one of {orders}")

        def declare(react: "React[A]") -> ReactionDeclaration[A]:
            checked_call(f"the reaction {name}", react, "aggregate", "event")
            declared = ReactionDeclaration(
                name, kind, to, named_after(name, "SUBSCRIPTION", subscription),
                None if topic is None else named_after(name, "TOPIC", topic),
                steps.before(target), steps.before(react),
                composition.InOrder(order), untyped=self.untyped == kind,
            )  # fmt: skip
            self._add(declared)
            return declared

        return declare

    def declared_transport(self) -> Declared:
        """Returns what is known of its transport without the transport's settings."""
        own = [
            each.subscription
            for each in self.subscribers
            if not (isinstance(each, ReactionDeclaration) and each.topic)
        ]
        return Declared(self.names.topic_named, self.transport, own)

    def settings(self, environment: Mapping[str, str]) -> Settings:
        """The settings of this service, which publishes. Raises Misconfigured."""
        return load(environment, self.names, self.named(), self.declared_transport())

    def subscriber_settings(self, environment: Mapping[str, str]) -> SubscriberSettings:
        """Those that it has whether it publishes or not. Raises Misconfigured."""
        return load_subscriber(environment, self.declared_transport(), self.named())

    def wire(self, environment: Mapping[str, str], clients: "Clients | None" = None) -> Wired:
        """Build the service from settings. Opens no connection: the first use opens it. Raises Misconfigured."""
        settings = self.settings(environment) if self.publishes else self.subscriber_settings(environment)
        resources = AsyncExitStack()
        if exporting := composition.export(settings.telemetry, self.name):
            resources.push_async_callback(exporting.flush)  # the first pushed is the last closed
        wired = Wired(self, settings, environment, clients or composition.Clients(), resources)
        _ = wired.outbox if self.publishes else wired.store  # what is wrong with a setting is raised at once
        return wired

    def __call__(self) -> Wired:
        """The service of this process: call it inside the running loop. Raises Misconfigured."""
        return self._per_process()

    def taken_from(self, wired: Wired) -> AbstractContextManager[None]:
        """Inside the block a call of the service in this loop returns ``wired``; the caller still closes it."""
        return self._per_process.taken_from(wired)

    def here(self, wired: Wired) -> None:
        """In this context a call of the service gives this one: of one simulated process among several in a loop."""
        self._per_process.here(wired)

    def named(self) -> Iterator[Named]:
        """Yields what settings may rename: subscriptions, containers and topics."""
        for each in self.subscribers:
            yield each.subscription
            if each.container is not None and self.publishes:  # a store of its own names its containers
                yield each.container
            if isinstance(each, ReactionDeclaration) and each.topic is not None:
                yield each.topic

    def _container(self, name: str, given: Named | str | None) -> Named:
        if given is not None and self.store is not None:
            raise ValueError(f"the store of {self.name} names the container of {name}: leave container= out")
        return named_after(name, "CONTAINER", given)

    def _add(self, subscriber: Subscriber) -> None:
        check_name(subscriber.name, "a subscriber")
        if any(each.name == subscriber.name for each in self.subscribers):
            raise ValueError(
                f"{self.name} has two subscribers named {subscriber.name}: give each a name of its own"
            )
        self.subscribers.append(subscriber)

    def _events_of(self, kind: str) -> Sequence[str]:
        """The names of the events that are declared of its aggregates; those of others are not known."""
        own = [
            event
            for each in self.aggregates
            if each.aggregate_type == kind
            for event in each.declared_events()
        ]
        return [each.__name__ for each in (*own, *self.events)] if own else []


def _kind(of: type[Aggregate[Any]] | str) -> str:
    return of if isinstance(of, str) else of.aggregate_type


def _check_classes(
    name: str, aggregates: Sequence[type[Aggregate[Any]]], events: Sequence[type[DomainEvent]]
) -> None:
    classes: Sequence[tuple[type, Sequence[Any]]] = ((Aggregate, aggregates), (DomainEvent, events))
    for base, given in classes:
        for each in given:
            if not (isinstance(each, type) and issubclass(each, base)):
                raise ValueError(  # noqa: TRY004 - what is declared is wrong
                    f"{name} names {each!r}, which is no class derived from {base.__name__}"
                )
    named: dict[str, type[DomainEvent]] = {}
    for aggregate in aggregates:
        if missing := aggregate.undeclared():
            raise ValueError(f"{aggregate.__name__} has no {' and no '.join(missing)}: write it in the class")
        if not _TYPE.fullmatch(aggregate.aggregate_type):
            raise ValueError(
                f"{aggregate.aggregate_type!r} cannot be the type of {aggregate.__name__}: take letters, digits and "
                "hyphens, such as room-booking"
            )
    for event in (*(event for each in aggregates for event in each.declared_events()), *events):
        if named.setdefault(event.__name__, event) is not event:
            raise ValueError(
                f"{name} has two events called {event.__name__}: subscribers know events by their names, so give "
                "each its own"
            )

"""A service is declared once: a function app, a worker, a command and a test take the same object.

A declaration does no I/O and reads no setting, so a module may make one at its import. Settings are read, and clients
made, when the service is wired: once per process and event loop, by whoever uses it first.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from cosmos_outbox.cosmos.inbox.documents import SourceDocuments
from cosmos_outbox.cosmos.own.documents import Numbering
from cosmos_outbox.cosmos.store.partition_key import PARTITION_KEY, PartitionKeyPaths
from cosmos_outbox.inbox.decision import First, Projection
from cosmos_outbox.inbox.effect import Effect
from cosmos_outbox.inbox.form import EntryForm
from cosmos_outbox.inbox.reaction import Targets
from cosmos_outbox.inbox.reaction_decision import InOrder, React
from cosmos_outbox.inbox.upcasting import Upcasting, Upcasts
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.aggregates import Aggregates
from cosmos_outbox.outbox.event import DomainEvent
from cosmos_outbox.settings.environment import Settings, load
from cosmos_outbox.settings.names import Named, Names, named_after
from cosmos_outbox.settings.own_container import OwnContainer, OwnDocuments, WireNames
from cosmos_outbox.settings.transports import Declared, Name
from cosmos_outbox.wiring.declared import Chosen, EffectOf, On, ReadModelOf, Subscriber, named
from cosmos_outbox.wiring.outbox import SDKS, Clients, Outbox, wire_outbox
from cosmos_outbox.wiring.per_process import OnePerProcess
from cosmos_outbox.wiring.reactions import ReactionOf, records_of
from cosmos_outbox.wiring.subscription import ReadModel, Subscription

S = TypeVar("S", bound=BaseModel)
A = TypeVar("A", bound=Aggregate[Any])


@dataclass(frozen=True)
class Wired:
    """One service in one process: what its functions and calls use."""

    service: "Service"
    settings: Settings
    outbox: Outbox
    aggregates: Aggregates
    """Creates, reads and changes the service's aggregates, each with its events in one transaction."""

    @property
    def resources(self) -> AsyncExitStack:
        """Closes all clients."""
        return self.outbox.resources

    async def check(self) -> None:
        """Returns if the store answers. Raises Unavailable, Throttled or Misconfigured."""
        await self.outbox.check()

    @cached_property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """What the service subscribes to, by the names of its read models and effects."""
        return {each.name: _wire(each, self.settings, self.outbox) for each in self.service.subscribers}

    def read_model(self, of: ReadModelOf[S]) -> ReadModel[S]:
        """What keeps a read model, and lists its entries. Raises KeyError: the service does not declare it."""
        made = self.subscriptions[of.name].read_model
        assert made is not None, "a read model's subscription keeps it"
        return made


@dataclass(frozen=True)
class Service:
    """A service that keeps aggregates, or documents of the team's own, and publishes their events.

    Its declaration opens nothing. Call it, ``service()``, inside the running loop for the service of this process:
    ``service().aggregates`` stores and reads, ``service().outbox.transaction(key)`` writes documents of the team's own,
    ``service().read_model(declared).listing`` lists. Raises ValueError: what is declared cannot be right.
    """

    name: str
    """It stands in the CloudEvents ``source`` of every event (``/name``): never change it once events are sent."""
    aggregates: Sequence[type[Aggregate[Any]]] = ()
    """The classes, each with an ``aggregate_type`` of its own; all are stored in one container."""
    names: Names = field(default_factory=Names)
    """What its containers and its topic are called, unless a setting says otherwise."""
    untyped: str | None = None
    """The aggregate type of events that were stored without one; None: there are no such events."""
    events: Sequence[type[DomainEvent]] = ()
    """Those that no aggregate declares, since they are raised by hand: for ``cosmos-outbox schemas``."""
    own: OwnContainer | None = None
    """What is known of a container with documents of the team's own, beside which events are stored; then it has no
    aggregates."""
    transport: Name = "servicebus"
    """What its events are sent over, all of them, unless ``TRANSPORT`` says otherwise."""
    subscribers: list[Subscriber] = field(default_factory=list, init=False)

    _per_process: OnePerProcess["Wired"] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len({each.aggregate_type for each in self.aggregates}) != len(self.aggregates):
            raise ValueError(f"two aggregates of {self.name} have one type: give each a type of its own")
        if self.own is not None:
            if self.aggregates:
                raise ValueError(
                    f"{self.name} has aggregates and a container of the team's own: declare two services, each with a "
                    "container and a name. What must be stored together goes into documents of the team's own"
                )
            PartitionKeyPaths.beside_events(self.own.paths)
            Numbering(self.own.aggregates)
        # A frozen object's own slot for the wired service of this process.
        object.__setattr__(self, "_per_process", OnePerProcess(lambda: self.wire(os.environ)))

    @property
    def wire_names(self) -> WireNames:
        """The names in documents and messages."""
        return WireNames(f"/{self.name}", self.untyped, self.own)

    @property
    def paths(self) -> PartitionKeyPaths:
        """Of the partition key of the container that the events are in."""
        return PARTITION_KEY if self.own is None else PartitionKeyPaths(self.own.paths)

    def read_model(  # noqa: PLR0913 - a declaration has a name for each of its parts
        self,
        name: str,
        *,
        of: type[Aggregate[Any]] | str,
        form: EntryForm[S],
        state_of: Callable[[Mapping[str, Any]], S],
        project: Projection[S],
        first: First[S] | None = None,
        source: OwnDocuments | None = None,
        subscription: Named | str | None = None,
        container: Named | str | None = None,
        upcast: Upcasts | None = None,
    ) -> ReadModelOf[S]:
        """Declare a read model of this service's own aggregates: each event applied once, in order, gaps healed.

        ``name``: of the subscription, of the container and of the functions, unless the two are named.
        ``of``: the aggregates. ``form``: how an entry is stored and found. ``state_of``: the entry of an aggregate's
        stored ``data``. ``project``: the entry after an event, or None where the aggregate itself has to be read.
        ``first``: the entry of an aggregate's first event, or None where that event does not tell all of it; it saves
        three requests for each new aggregate. They may be called again for the same event, and do no I/O. ``source``:
        in a container of the team's own the documents of the aggregates; ``state_of`` gets such a document.
        ``upcast``: steps from older versions of events, also for effects and reactions. Raises ValueError: the name is
        taken, the source does not fit, or a step is missing.
        """
        kind = of if isinstance(of, str) else of.aggregate_type
        documents = SourceDocuments.declared(self.own, kind, source)
        steps = Upcasting(upcast or {})
        declared = ReadModelOf(
            name, kind, named_after(name, "SUBSCRIPTION", subscription), named_after(name, "CONTAINER", container),
            form, state_of, steps.before(project), untyped=self.untyped == kind, documents=documents,
            first=first and steps.before(first),
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
    ) -> Callable[[Effect], EffectOf]:
        """Declare an effect: the decorated function runs for each event, in the order of its aggregate.

        ``on``: the events that have one, by class or name; others cost nothing. ``begin``: earlier events are not for
        this subscriber, which was added later. It is asked for at least once: a process that dies between the effect
        and its record runs it again, or leaves it to an operator where it is not ``repeatable``. Give the event's id to
        the other side as its idempotency key. The function has 30 seconds; it raises EffectAway where the other side is
        away, and EffectNotDone where it refuses this one. Raises ValueError: the name is taken.
        """
        kind = of if isinstance(of, str) else of.aggregate_type
        steps = Upcasting(upcast or {})

        def declare(run: Effect) -> EffectOf:
            declared = EffectOf(
                name, kind, named_after(name, "SUBSCRIPTION", subscription), named_after(name, "CONTAINER", container),
                Chosen.of(steps.before_effect(run), on, begin, repeatable=repeatable), self.untyped == kind,
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
        target: Targets,
        order: Literal["any", "newest", "each"],
        subscription: Named | str | None = None,
        topic: Named | str | None = None,
        upcast: Upcasts | None = None,
    ) -> Callable[[React[A]], ReactionOf[A]]:
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
        kind = of if isinstance(of, str) else of.aggregate_type
        steps = Upcasting(upcast or {})

        def declare(react: React[A]) -> ReactionOf[A]:
            declared = ReactionOf(
                name, kind, to, named_after(name, "SUBSCRIPTION", subscription),
                None if topic is None else named_after(name, "TOPIC", topic),
                steps.before(target), steps.before(react),
                InOrder(order), untyped=self.untyped == kind,
            )  # fmt: skip
            self._add(declared)
            return declared

        return declare

    def declared_transport(self) -> Declared:
        """What is known of its transport without the settings of that."""
        own = [
            each.subscription
            for each in self.subscribers
            if not (isinstance(each, ReactionOf) and each.topic)
        ]
        return Declared(self.names.topic_named, self.transport, own)

    def settings(self, environment: Mapping[str, str]) -> Settings:
        """The settings of this service. Raises Misconfigured."""
        return load(environment, self.names, named(self.subscribers), self.declared_transport())

    def wire(self, environment: Mapping[str, str], clients: Clients = SDKS) -> Wired:
        """Build the service from settings. Opens no connection: the first use opens it. Raises Misconfigured."""
        settings = self.settings(environment)
        records, kinds = records_of(self.subscribers, settings), self.aggregates
        outbox = wire_outbox(settings, self.wire_names, clients, records_seconds=records, kinds=kinds)
        return Wired(self, settings, outbox, Aggregates(outbox.open_unit_of_work, outbox.claims))

    def __call__(self) -> Wired:
        """The service of this process: call it inside the running loop. Raises Misconfigured."""
        return self._per_process()

    def taken_from(self, wired: Wired) -> AbstractContextManager[None]:
        """Until the block ends, a call of the service in this loop gives this one; whoever wired it closes it."""
        return self._per_process.taken_from(wired)

    def here(self, wired: Wired) -> None:
        """In this context a call of the service gives this one: of one simulated process among several in a loop."""
        self._per_process.here(wired)

    def _add(self, subscriber: Subscriber) -> None:
        if any(each.name == subscriber.name for each in self.subscribers):
            raise ValueError(
                f"{self.name} has two subscribers named {subscriber.name}: give each a name of its own"
            )
        self.subscribers.append(subscriber)


def _wire(of: Subscriber, settings: Settings, outbox: Outbox) -> Subscription:
    """What receives for it. Opens no connection. Raises Misconfigured: its records would live too long."""
    from cosmos_outbox.wiring.effects import wire_effects  # noqa: PLC0415 - not where nothing is received
    from cosmos_outbox.wiring.read_model import wire_read_model  # noqa: PLC0415

    match of:
        case ReadModelOf():
            return wire_read_model(settings, outbox, of)
        case EffectOf():
            return wire_effects(settings, outbox, of)
        case ReactionOf():
            return of.wire(settings, outbox)

"""What a service subscribes to, as it is declared: data alone, until it is wired."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from cosmos_outbox.cosmos.inbox.documents import SourceDocuments
from cosmos_outbox.inbox.decision import First, Projection
from cosmos_outbox.inbox.effect import Effect
from cosmos_outbox.inbox.event import utc
from cosmos_outbox.inbox.form import EntryForm
from cosmos_outbox.outbox.event import DomainEvent
from cosmos_outbox.settings.names import Named
from cosmos_outbox.wiring.reactions import ReactionOf

On = Collection[type[DomainEvent] | str] | None
"""Events, by class or by name; None: all."""


@dataclass(frozen=True)
class Chosen:
    """What a subscriber chooses of its effect."""

    run: Effect
    kinds: frozenset[str] | None
    repeatable: bool
    begin: datetime | None

    @classmethod
    def of(cls, run: Effect, on: On, begin: datetime | None, *, repeatable: bool) -> "Chosen":
        """As it is declared."""
        named = (
            None if on is None else frozenset(each if isinstance(each, str) else each.__name__ for each in on)
        )
        return cls(run, named, repeatable, begin and utc(begin))


S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True)
class ReadModelOf(Generic[S]):
    """A read model as it is declared: one entry an aggregate, kept from the events, in order, each applied once."""

    name: str
    aggregate_type: str
    subscription: Named
    container: Named
    """Of the entries."""
    form: EntryForm[S]
    state_of: Callable[[Mapping[str, Any]], S]
    """The entry's state of an aggregate's stored ``data``: an entry that lacks an event is read anew from there."""
    project: Projection[S]
    untyped: bool
    documents: SourceDocuments | None = None
    """Of the aggregates, in a container of the team's own; None: they are the library's."""
    first: First[S] | None = None
    """The entry's state of an aggregate's first event; None: the aggregate itself is read."""


@dataclass(frozen=True)
class EffectOf:
    """An effect as it is declared: something outside the store, asked for at least once, with the event's id as key."""

    name: str
    aggregate_type: str
    subscription: Named
    container: Named
    """Of the records of the events."""
    chosen: Chosen
    untyped: bool
    form: None = None

    @property
    def run(self) -> Effect:
        """What is run for each event."""
        return self.chosen.run

    def running(self, run: Effect) -> "EffectOf":
        """The same, with another function."""
        return replace(self, chosen=replace(self.chosen, run=run))


Subscriber = ReadModelOf[Any] | EffectOf | ReactionOf[Any]


def named(subscribers: Iterable[Subscriber]) -> Iterator[Named]:
    """What settings may call otherwise: subscriptions, containers and topics."""
    for each in subscribers:
        yield each.subscription
        if each.container is not None:
            yield each.container
        if isinstance(each, ReactionOf) and each.topic is not None:
            yield each.topic

"""What a service subscribes to, as it is declared: data alone, until it is wired."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from cosmos_outbox.cosmos.inbox.documents import SourceDocuments
from cosmos_outbox.inbox.decision import First, Projection
from cosmos_outbox.inbox.effect import Effect
from cosmos_outbox.inbox.form import EntryForm
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.settings.names import Named
from cosmos_outbox.wiring.chosen import Chosen
from cosmos_outbox.wiring.outbox import Outbox
from cosmos_outbox.wiring.reactions import ReactionOf
from cosmos_outbox.wiring.subscription import Subscription

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

    def wire(self, settings: Settings, outbox: Outbox) -> Subscription:
        """Its subscriber, with the walk that finds what no event told. Opens no connection."""
        from cosmos_outbox.wiring.read_model import wire_read_model  # noqa: PLC0415 - not where nothing is received

        return wire_read_model(settings, outbox, self)


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

    def wire(self, settings: Settings, outbox: Outbox) -> Subscription:
        """Its subscriber. Opens no connection."""
        from cosmos_outbox.wiring.effects import wire_effects  # noqa: PLC0415 - not where nothing is received

        return wire_effects(settings, outbox, self)


Subscriber = ReadModelOf[Any] | EffectOf | ReactionOf[Any]


def named(subscribers: Iterable[Subscriber]) -> Iterator[Named]:
    """What settings may call otherwise: subscriptions, containers and topics."""
    for each in subscribers:
        yield each.subscription
        if each.container is not None:
            yield each.container
        if isinstance(each, ReactionOf) and each.topic is not None:
            yield each.topic

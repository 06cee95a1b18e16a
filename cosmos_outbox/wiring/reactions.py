"""A reaction, wired: its records live for longer than a message can wait in all places together (``lives_as_long``)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from cosmos_outbox.cosmos.aggregates.unit_of_work import Lifetimes
from cosmos_outbox.cosmos.inbox.reactions import CosmosReactions
from cosmos_outbox.cosmos.store.container import Container
from cosmos_outbox.inbox.reaction import ReactionInbox, ReactionRules, Targets
from cosmos_outbox.inbox.reaction_decision import InOrder, React
from cosmos_outbox.inbox.reading import MessageReader
from cosmos_outbox.kernel.clock import utc_now
from cosmos_outbox.outbox.aggregate import Aggregate
from cosmos_outbox.outbox.unit_of_work import OnCommit
from cosmos_outbox.settings.environment import Settings, SubscriberSettings
from cosmos_outbox.settings.names import Named
from cosmos_outbox.wiring.outbox import Outbox
from cosmos_outbox.wiring.subscription import Subscription, records_seconds, wire_subscriber

A = TypeVar("A", bound=Aggregate[Any])


@dataclass(frozen=True)
class ReactionOf(Generic[A]):
    """A reaction as it is declared: a message changes aggregates of this service, and raises their events, once."""

    name: str
    aggregate_type: str
    """Of the messages."""
    to: type[A]
    subscription: Named
    topic: Named | None
    """Another team's; None: the service's own."""
    targets: Targets
    react: React[A]
    order: InOrder
    untyped: bool
    container: None = None
    """Its records are beside its targets."""
    form: None = None

    def wire(self, settings: Settings, outbox: Outbox) -> Subscription:
        """Its subscriber. Opens no connection. Raises Misconfigured: records would live too long."""
        container = outbox.container(settings.cosmos_container)
        inbox = reaction_inbox(self, settings, container, outbox.on_commit)
        reader = MessageReader(self.aggregate_type, untyped=self.untyped)
        received, name = settings_of(self, settings), settings.name(self.subscription)
        subscriber = wire_subscriber(received, outbox, name, reader.read, inbox.handle, inbox.check)
        return subscriber.asking(inbox)


def settings_of(of: ReactionOf[Any], settings: Settings) -> Settings:
    """Those by which its messages are received."""
    if of.topic is None:
        return settings
    return replace(settings, transport=settings.transport.beside(settings.name(of.topic)))


def records_of(subscribers: Iterable[object], settings: SubscriberSettings) -> int:
    """How long the records live of a service with these subscribers; 0: it has no reaction. Raises Misconfigured."""
    return records_seconds(settings) if any(isinstance(each, ReactionOf) for each in subscribers) else 0


def reaction_inbox(
    of: ReactionOf[A],
    settings: Settings,
    container: Container,
    on_commit: OnCommit,
    clock: Callable[[], datetime] = utc_now,
) -> ReactionInbox[A]:
    """What handles the messages of a reaction. Raises Misconfigured."""
    lives = records_seconds(settings)
    lifetimes = Lifetimes(settings.event_ttl_seconds, settings.idempotency_ttl_seconds, lives)
    rules = ReactionRules(
        of.name, of.to.aggregate_type, of.targets, of.react, of.order, timedelta(seconds=lives)
    )
    reactions = CosmosReactions(container, of.to, of.name, of.order, lifetimes, on_commit, clock)
    return ReactionInbox(reactions, rules, clock)

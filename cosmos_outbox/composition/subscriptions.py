"""Builds the subscribers of a service: how their messages are received, tried again, and collected. Opens nothing."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel

from cosmos_outbox.composition.declarations import (
    EffectDeclaration,
    ReactionDeclaration,
    ReadModelDeclaration,
    Store,
    Subscriber,
)
from cosmos_outbox.composition.transports import Clients
from cosmos_outbox.composition.writer import Outbox
from cosmos_outbox.inbox.effect import EffectInbox, EffectRules
from cosmos_outbox.inbox.healing import Healing
from cosmos_outbox.inbox.message import Event, MessageReader
from cosmos_outbox.inbox.ports import NoSource, Source, SourceList
from cosmos_outbox.inbox.read_model import StateInbox
from cosmos_outbox.inbox.receiver import LONGEST_CALL_SECONDS, Handle, Read, Receiver
from cosmos_outbox.inbox.retrier import OnRequest, Retrier
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.kernel.dataclass import dataclass
from cosmos_outbox.operations import subscriber as operations
from cosmos_outbox.operations.subscriber import ReadModel, Subscription
from cosmos_outbox.settings.environment import TTL_MAX, SubscriberSettings
from cosmos_outbox.settings.transports import foreign
from cosmos_outbox.sources.http import HttpApi
from cosmos_outbox.telemetry.correlation import correlated, current

S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True)
class Subscriptions:
    """The parts that the subscribers of a service have in common."""

    settings: SubscriberSettings
    store: Store
    """The store of their entries and records."""
    resources: AsyncExitStack
    clients: Clients
    environment: Mapping[str, str]
    """Of a source beside the store."""
    outbox: Outbox | None
    """None: the service publishes nothing."""
    list_blocked: Callable[[], Awaitable[Collection[AggregateKey]]]
    """The aggregates whose events the service's own relay holds back."""

    def wire(self, of: Subscriber) -> Subscription:
        """Returns the subscription that receives for it. Raises Misconfigured: its records would live too long."""
        match of:
            case ReadModelDeclaration():
                return self._read_model(of)
            case EffectDeclaration():
                return self._effect(of)
            case ReactionDeclaration():
                return self._reaction(of)

    def _read_model(self, of: ReadModelDeclaration[S]) -> Subscription:
        source, sources = self._source(of)
        events, deleted = self.settings.event_ttl_seconds, tombstone_seconds(self.settings)
        # The library's own documents are kept as long as events; others forget a deleted aggregate when they like.
        forgetful = of.first is not None and (of.documents is not None or of.source is not None)
        tombstones = timedelta(seconds=deleted if forgetful else events)
        inbox = StateInbox(
            self.store.entries(of.name, of.form, deleted if of.has_source else None),
            source,
            of.project,
            first=of.first,
            tombstones=tombstones if of.has_source else None,
            forgetful=forgetful and of.has_source,
        )
        healing = None
        if of.has_source:  # another team's aggregates are not listed here
            gone_after = timedelta(seconds=events if sources is not None else 0)
            healing = Healing(inbox, sources, of.form.version, self.list_blocked, gone_after)
        model = ReadModel(inbox, healing, self.store.listing(of.name, of.form))
        return Subscription(self._subscriber(of, inbox.handle, check=inbox.check), read_model=model)

    def _source(self, of: ReadModelDeclaration[S]) -> tuple[Source[S], SourceList[S] | None]:
        """Returns the source that an aggregate is read from, and the list of them all."""
        match of.source:
            case HttpApi() as api:
                made = api.made(self.environment, of.state_of)
                self.resources.push_async_callback(made.close)
                return made, None
            case NoSource() as nothing:
                return nothing, None
        assert self.outbox is not None, "its own aggregates are the source"
        if of.documents is None:
            from cosmos_outbox.cosmos.inbox.source import CosmosSource  # noqa: PLC0415 - each where it is declared

            own = CosmosSource(self.outbox.stored, of.aggregate_type, of.state_of)
            return own, own
        from cosmos_outbox.cosmos.inbox.source import OwnSource  # noqa: PLC0415

        theirs = OwnSource(self.outbox.stored, self.outbox.feed, of.documents, of.state_of)
        return theirs, theirs

    def _effect(self, of: EffectDeclaration) -> Subscription:
        lives = self.settings.records_seconds
        rules = EffectRules(timedelta(seconds=lives), of.kinds, of.repeatable, of.begin)
        records = self.store.effects(of.name, self.settings.name(of.subscription), lives)
        inbox = EffectInbox(records, of.run, rules)
        return Subscription(self._subscriber(of, inbox.handle, rules.reading, asked=inbox, in_order=True))

    def _reaction(self, of: ReactionDeclaration[Any]) -> Subscription:
        from cosmos_outbox.cosmos.aggregates.unit_of_work import Lifetimes  # noqa: PLC0415 - each where it is declared
        from cosmos_outbox.cosmos.inbox.reactions import CosmosReactions, ReactionInbox  # noqa: PLC0415

        assert self.outbox is not None, "a reaction changes the service's own aggregates"
        settings, lives = self.outbox.settings, self.settings.records_seconds
        lifetimes = Lifetimes(settings.event_ttl_seconds, settings.idempotency_ttl_seconds, lives)
        targets = CosmosReactions(
            self.outbox.stored, of.to, of.name, of.order, lifetimes, self.outbox.on_commit
        )
        inbox = ReactionInbox(targets, of.targets, of.react)
        return Subscription(self._subscriber(of, inbox.handle, check=inbox.check, asked=inbox))

    def _subscriber(  # noqa: PLR0913 - what a subscriber is made of
        self,
        of: Subscriber,
        handle: Handle,
        reading: Callable[[Read], Read] | None = None,
        *,
        check: Callable[[], Awaitable[None]] | None = None,
        asked: OnRequest | None = None,
        in_order: bool = False,
    ) -> operations.Subscriber:
        """``check``, ``in_order``: as of :class:`cosmos_outbox.inbox.receiver.Receiver`.

        ``asked``: keeps a record of each message, so that operators go the message's way.
        """
        settings, subscription = received_by(of, self.settings), self.settings.name(of.subscription)
        read: Read = MessageReader(of.aggregate_type, untyped=of.untyped).read
        if reading is not None:
            read = reading(read)
        records = self.store.set_aside(subscription, settings.event_ttl_seconds)

        async def handle_traced(event: Event) -> None:
            """So that what the timer tries again is logged under the id of its request too."""
            given = event.data.get("correlationId")
            with correlated(current() or (given if isinstance(given, str) else None)):
                await handle(event)

        limit = timedelta(seconds=settings.event_ttl_seconds)
        retries = of.retries if isinstance(of, EffectDeclaration) else None
        if retries is not None and retries.give_up_after is not None:
            limit = min(limit, retries.give_up_after)
        return operations.Subscriber(
            settings.transport.destination,
            subscription,
            Receiver(read, handle, records, check=check, in_order=in_order),
            Retrier(read, handle_traced, records, limit, asked=asked, retries=retries),
            cache(lambda: self.clients.queues(settings, self.resources, subscription)),
        )


def received_by(of: Subscriber, settings: SubscriberSettings) -> SubscriberSettings:
    """The settings by which its messages are received."""
    if not isinstance(of, ReactionDeclaration) or of.topic is None:
        return settings
    return replace(settings, transport=foreign(settings.transport, settings.name(of.topic)))


def tombstone_seconds(settings: SubscriberSettings) -> int:
    """How long a deleted entry is kept: longer than any call, and than an event waits stored, parked and set aside.

    An event that comes later still does no harm: where there is no entry, the aggregate itself is looked for.
    """
    waits = 2 * settings.event_ttl_seconds + settings.parked_max_age_seconds
    return min(max(waits, 2 * int(LONGEST_CALL_SECONDS)), TTL_MAX)

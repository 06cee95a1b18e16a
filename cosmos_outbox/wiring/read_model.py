"""A read model, wired: one entry an aggregate, kept from the events, and healed from the service's own documents.

Whatever the aggregate: a service declares what its entries are, and how an event changes one.
"""

from collections.abc import Collection
from datetime import timedelta
from typing import TypeVar

from pydantic import BaseModel

from cosmos_outbox.cosmos.inbox.entries import CosmosEntries
from cosmos_outbox.cosmos.inbox.listing import CosmosItems
from cosmos_outbox.cosmos.inbox.own_source import OwnSource
from cosmos_outbox.cosmos.inbox.source import CosmosSource
from cosmos_outbox.cosmos.store.token_key import token_key
from cosmos_outbox.inbox.healing import Healing
from cosmos_outbox.inbox.reading import MessageReader
from cosmos_outbox.inbox.receiver import LONGEST_CALL_SECONDS
from cosmos_outbox.inbox.state import StateInbox
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.lists.listing import EntryListing
from cosmos_outbox.settings.environment import TTL_MAX, Settings, SubscriberSettings
from cosmos_outbox.wiring.declared import ReadModelOf
from cosmos_outbox.wiring.outbox import Outbox
from cosmos_outbox.wiring.subscription import ReadModel, Subscription, wire_subscriber

S = TypeVar("S", bound=BaseModel)


def wire_read_model(settings: Settings, outbox: Outbox, of: ReadModelOf[S]) -> Subscription:
    """Build a read model over the service's own container, and its subscriber. Opens no connection."""
    container = settings.name(of.container)
    entries, source = outbox.container(container), _source(settings, outbox, of)

    async def list_blocked() -> Collection[AggregateKey]:
        return [marker.aggregate for marker in await outbox.observer.lot.list_blocked()]

    tombstones, deleted_ttl = timedelta(seconds=settings.event_ttl_seconds), tombstone_seconds(settings)
    forgetful = of.documents is not None and of.first is not None
    inbox = StateInbox(
        CosmosEntries(entries, of.form, deleted_ttl),
        source,
        of.project,
        first=of.first,
        tombstones=timedelta(seconds=deleted_ttl) if forgetful else tombstones,
        forgetful=forgetful,
    )

    scope = f"{settings.cosmos.address}/{settings.cosmos_database}/{container}"
    reader = MessageReader(of.aggregate_type, untyped=of.untyped)
    healing = Healing(inbox, source, of.form.version, list_blocked, tombstones)
    model = ReadModel(inbox, healing, EntryListing(CosmosItems(entries), of.form, scope, token_key(entries)))
    subscriber = wire_subscriber(
        settings, outbox, settings.name(of.subscription), reader.read, inbox.handle, inbox.check
    )
    return Subscription(subscriber, read_model=model)


def _source(settings: Settings, outbox: Outbox, of: ReadModelOf[S]) -> CosmosSource[S] | OwnSource[S]:
    container = outbox.container(settings.cosmos_container)
    if of.documents is None:
        return CosmosSource(container, of.aggregate_type, of.state_of)
    return OwnSource(container, outbox.feed, of.documents, of.state_of)


def tombstone_seconds(settings: SubscriberSettings) -> int:
    """How long a deleted entry is kept: longer than any call, and than an event waits stored, parked and set aside.

    An event that comes later still does no harm: where there is no entry, the aggregate itself is looked for.
    """
    waits = 2 * settings.event_ttl_seconds + settings.parked_max_age_seconds
    return min(max(waits, 2 * int(LONGEST_CALL_SECONDS)), TTL_MAX)

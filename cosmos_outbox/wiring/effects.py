"""The effects of a subscriber, wired: items live for longer than an event can wait in all places together."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Protocol

from cosmos_outbox.cosmos.aggregates.documents import EVENT_TYPE
from cosmos_outbox.cosmos.inbox.documents import SourceDocuments
from cosmos_outbox.cosmos.inbox.effects import CosmosEffects
from cosmos_outbox.cosmos.inbox.event_source import CosmosEventSource
from cosmos_outbox.cosmos.inbox.walk_lists import CosmosLists
from cosmos_outbox.inbox.effect import MARGIN, EffectItems, EffectRules, EffectSource
from cosmos_outbox.inbox.effect_operator import EffectOperator
from cosmos_outbox.inbox.effect_sweep import EffectSweep
from cosmos_outbox.inbox.effects import EffectInbox
from cosmos_outbox.inbox.reading import MessageReader
from cosmos_outbox.inbox.receiver import PATIENT_SECONDS
from cosmos_outbox.inbox.state import NOBODY
from cosmos_outbox.lists import continuation
from cosmos_outbox.settings.environment import TTL_MAX, Settings
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.wiring.chosen import Chosen
from cosmos_outbox.wiring.outbox import Outbox
from cosmos_outbox.wiring.read_model import Lasting
from cosmos_outbox.wiring.subscription import Subscriber, Subscribes, Subscription, wire_subscriber


class DeclaredEffect(Subscribes, Protocol):
    """What a service declares of an effect: see :class:`cosmos_outbox.wiring.declared.EffectOf`."""

    @property
    def chosen(self) -> Chosen: ...
    @property
    def source(self) -> str: ...
    @property
    def own(self) -> bool: ...


def wire_effects(settings: Settings, outbox: Outbox, of: DeclaredEffect) -> Subscription:
    """A subscriber with effects, and the sweep that finds what no message tells. Opens no connection.

    Raises Misconfigured: what is known of effects would live too long.
    """
    subscription, container = settings.name(of.subscription), settings.name(of.container)
    items, sources = outbox.container(container), outbox.container(settings.cosmos_container)
    documents, rules = _documents(of), effect_rules(settings, of.chosen)
    source = CosmosEventSource(
        sources, outbox.feed, outbox.events, outbox.observer.lot, documents, of.source, of.own
    )
    stored = CosmosEffects(items, subscription, int(rules.items_live.total_seconds()))
    inbox = EffectInbox(stored, source, of.chosen.run, rules)
    lists = CosmosLists(items, sources, documents, f"effects-{subscription}", 0)
    reader = MessageReader(of.aggregate_type, untyped=of.untyped)
    check = partial(look_for_nobody, stored, source)
    subscriber = wire_subscriber(
        settings, outbox, subscription, reader.read, inbox.handle, check, longest=PATIENT_SECONDS
    )
    outbox.resources.push_async_callback(inbox.join)  # before the clients are closed
    scope = f"{settings.cosmos.address}/{settings.cosmos_database}/{container}/{subscription}"
    return with_effects(subscriber, inbox, of.aggregate_type, scope, EffectSweep(inbox, lists))


async def look_for_nobody(items: EffectItems, source: EffectSource | None) -> None:
    """Returns if store and source answer about an aggregate that nobody has. Raises StoreAway."""
    await items.read(NOBODY, fenced=False)
    if source is not None:
        await source.events(NOBODY, range(1, 2), None, fenced=False)


def _documents(of: DeclaredEffect) -> SourceDocuments:
    """By which is told how far each aggregate has come; of a team's own, by their events."""
    if not of.own:
        return SourceDocuments.of_library(of.aggregate_type)
    where = {"/type": EVENT_TYPE, "/aggregateType": of.aggregate_type}
    return SourceDocuments(of.aggregate_type, where, "/data/sequence", "/data/deleted", "/aggregateId")


def with_effects(
    subscriber: Subscriber,
    inbox: EffectInbox,
    aggregate_type: str,
    scope: str,
    sweep: EffectSweep | None = None,
) -> Subscription:
    """A subscriber whose messages the inbox handles, with what timers and operators do about its effects."""
    operator = EffectOperator(
        inbox,
        subscriber.subscription,
        aggregate_type,
        partial(continuation.seal, scope),
        partial(continuation.unseal, scope),
    )
    retrier = replace(subscriber.retrier, asked=inbox)
    made = replace(subscriber, retrier=retrier, open_effects=operator.since)
    return Subscription(made, effects=operator, effect_sweep=sweep)


def effect_rules(settings: Lasting, chosen: Chosen) -> EffectRules:
    """An event may wait stored, parked, set aside, and for its dead letter: each for its limit.

    Raises Misconfigured: items would live for longer than a store keeps anything.
    """
    events_live = timedelta(seconds=settings.event_ttl_seconds)
    items_live = 3 * events_live + timedelta(seconds=settings.parked_max_age_seconds) + 2 * MARGIN
    if items_live.total_seconds() > TTL_MAX:
        raise Misconfigured(
            f"what is known of effects has to be kept for {items_live}, and the store keeps nothing longer than "
            f"{TTL_MAX} s: lower EVENT_TTL_SECONDS or PARKED_MAX_AGE_SECONDS"
        )
    return EffectRules(events_live, items_live, chosen.kinds, chosen.repeatable, chosen.begin)

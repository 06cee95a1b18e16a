"""The effects of a subscriber, wired: ids are kept for longer than an event can wait in all places together."""

from dataclasses import replace
from datetime import timedelta
from typing import Protocol

from cosmos_outbox.cosmos.inbox.effect_list import CosmosEffectList
from cosmos_outbox.cosmos.inbox.ledger import CosmosLedger
from cosmos_outbox.inbox.effect import Begin, EffectRules, Unsure
from cosmos_outbox.inbox.effect_operator import EffectList, EffectOperator
from cosmos_outbox.inbox.effect_upkeep import EffectUpkeep
from cosmos_outbox.inbox.effects import Effect, EffectInbox
from cosmos_outbox.inbox.reading import MessageReader
from cosmos_outbox.settings.environment import TTL_MAX, Settings
from cosmos_outbox.settings.errors import Misconfigured
from cosmos_outbox.wiring.outbox import Outbox
from cosmos_outbox.wiring.subscription import (
    Subscriber,
    Subscribes,
    Subscription,
    wire_subscriber,
)

MARGIN = timedelta(days=1)
"""For clocks that differ, and for a message that is on its way."""


class DeclaredEffect(Subscribes, Protocol):
    """What a service declares of an effect: see :class:`cosmos_outbox.wiring.declared.EffectOf`."""

    @property
    def run(self) -> Effect: ...
    @property
    def unsure(self) -> Unsure: ...


def wire_effects(settings: Settings, outbox: Outbox, of: DeclaredEffect) -> Subscription:
    """A subscriber with effects that was there from the first event on, and the operator's work on them.

    Opens no connection: the first use opens it. Raises Misconfigured: ids live too long.
    """
    rules = effect_rules(settings.event_ttl_seconds, settings.parked_max_age_seconds, of.unsure)
    subscription, container = settings.name(of.subscription), settings.name(of.container)
    items = outbox.container(container)
    inbox = EffectInbox(CosmosLedger(items, subscription, ids_ttl_seconds(rules)), of.run, rules)
    scope = f"{settings.cosmos.address}/{settings.cosmos_database}/{container}/{subscription}"
    reader = MessageReader(of.aggregate_type, untyped=of.untyped)
    wired = wire_subscriber(settings, outbox, subscription, reader.read, inbox.handle)
    return with_effects(wired, inbox, CosmosEffectList(items, subscription, scope))


def with_effects(subscriber: Subscriber, inbox: EffectInbox, effects: EffectList) -> Subscription:
    """A subscriber whose messages the inbox handles, with what timers and operators do about its effects."""
    upkeep, operator = EffectUpkeep(inbox), EffectOperator(inbox, effects)
    return Subscription(
        replace(
            subscriber,
            retrier=replace(subscriber.retrier, give_up=upkeep.give_up),
            open_effects=operator.waiting,
        ),
        effects=operator,
        upkeep=upkeep,
    )


def effect_rules(
    event_ttl_seconds: int, parked_max_age_seconds: int, unsure: Unsure, begin: Begin = Begin.AT_ONE
) -> EffectRules:
    """An event may wait stored, parked, set aside, and in the ledger: each for its limit (``ids-outlive-events``)."""
    limit = timedelta(seconds=event_ttl_seconds)
    comes_for = 3 * limit + timedelta(seconds=parked_max_age_seconds)
    return EffectRules(comes_for, comes_for + MARGIN, limit, unsure, begin)


def ids_ttl_seconds(rules: EffectRules) -> int:
    """How long the ids of handled events are kept. Raises Misconfigured: longer than a store keeps anything."""
    ids_ttl = int(rules.ids_are_kept_for.total_seconds())
    if ids_ttl > TTL_MAX:
        raise Misconfigured(
            f"the ids of handled events have to be kept for {ids_ttl} s, and the store keeps nothing longer than "
            f"{TTL_MAX} s: lower EVENT_TTL_SECONDS or PARKED_MAX_AGE_SECONDS"
        )
    return ids_ttl

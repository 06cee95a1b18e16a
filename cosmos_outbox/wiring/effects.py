"""The effects of a subscriber, wired: records live longer than a message can wait in all places together."""

from datetime import timedelta

from cosmos_outbox.cosmos.inbox.effects import CosmosEffects
from cosmos_outbox.inbox.effect import EffectInbox, EffectRules
from cosmos_outbox.inbox.reading import MessageReader
from cosmos_outbox.settings.environment import Settings, SubscriberSettings
from cosmos_outbox.wiring.declared import Chosen, EffectOf
from cosmos_outbox.wiring.outbox import Outbox
from cosmos_outbox.wiring.subscription import (
    Subscription,
    records_seconds,
    wire_subscriber,
)


def wire_effects(settings: Settings, outbox: Outbox, of: EffectOf) -> Subscription:
    """A subscriber with effects. Opens no connection. Raises Misconfigured: records would live too long."""
    subscription, container = settings.name(of.subscription), settings.name(of.container)
    rules = effect_rules(settings, of.chosen)
    records = CosmosEffects(outbox.container(container), subscription, int(rules.lives.total_seconds()))
    inbox = EffectInbox(records, of.chosen.run, rules)
    read = rules.reading(MessageReader(of.aggregate_type, untyped=of.untyped).read)
    return wire_subscriber(settings, outbox, subscription, read, inbox.handle, in_order=True).asking(inbox)


def effect_rules(settings: SubscriberSettings, chosen: Chosen) -> EffectRules:
    """What a subscriber chooses. Raises Misconfigured: records would live longer than a store keeps anything."""
    lives = timedelta(seconds=records_seconds(settings))
    return EffectRules(lives, chosen.kinds, chosen.repeatable, chosen.begin)

"""The effects of a subscriber, wired: ids are kept for longer than an event can wait in all places together."""

from dataclasses import dataclass, replace
from datetime import timedelta

from inbox.effect import Begin, EffectRules, Unsure
from inbox.effect_operator import EffectOperator
from inbox.effect_upkeep import EffectUpkeep
from inbox.effects import Effect, EffectInbox
from inbox.receiver import Read
from infra.cosmos.effect_list import CosmosEffectList
from infra.cosmos.ledger import CosmosLedger
from infra.errors import Misconfigured
from infra.settings import TTL_MAX, Settings
from infra.subscriber import Subscriber, Subscription, wire_subscriber
from infra.wiring import Outbox

MARGIN = timedelta(days=1)
"""For clocks that differ, and for a message that is on its way."""


@dataclass(frozen=True)
class EffectSubscriber:
    """A subscriber with effects. It keeps no state, so there is nothing to sweep."""

    subscriber: Subscriber
    effects: EffectOperator
    upkeep: EffectUpkeep
    sweep: None = None

    @property
    def subscription(self) -> Subscription:
        """What a worker does for it."""
        return Subscription(self.subscriber, upkeep=self.upkeep)


def wire_effects(
    settings: Settings, outbox: Outbox, read: Read, effect: Effect, unsure: Unsure = Unsure.RUN_AGAIN
) -> EffectSubscriber:
    """A subscriber with effects that was there from the first event on, and the operator's work on them.

    Its subscription is that of the settings. Opens no connection: the first use opens it.

    Raises Misconfigured: there is no container for them, or ids live too long.
    """
    container = settings.cosmos_effects_container
    if container is None:
        raise Misconfigured("COSMOS_EFFECTS_CONTAINER is missing: the container of what is known of effects")
    rules = effect_rules(settings.event_ttl_seconds, settings.parked_max_age_seconds, unsure)
    ids_ttl = int(rules.ids_are_kept_for.total_seconds())
    if ids_ttl > TTL_MAX:
        raise Misconfigured(
            f"the ids of handled events have to be kept for {ids_ttl} s, and the store keeps nothing longer than "
            f"{TTL_MAX} s: lower EVENT_TTL_SECONDS or PARKED_MAX_AGE_SECONDS"
        )
    subscriber, items = settings.servicebus_subscription, outbox.container(container)
    inbox = EffectInbox(CosmosLedger(items, subscriber, ids_ttl), effect, rules)
    scope = f"{settings.cosmos.address}/{settings.cosmos_database}/{container}/{subscriber}"
    upkeep = EffectUpkeep(inbox)
    wired = wire_subscriber(settings, outbox, read, inbox.handle)
    return EffectSubscriber(
        replace(wired, retrier=replace(wired.retrier, give_up=upkeep.give_up)),
        EffectOperator(inbox, CosmosEffectList(items, subscriber, scope)),
        upkeep,
    )


def effect_rules(event_ttl_seconds: int, parked_max_age_seconds: int, unsure: Unsure) -> EffectRules:
    """An event may wait stored, parked, set aside, and in the ledger: each for its limit (``ids-outlive-events``)."""
    limit = timedelta(seconds=event_ttl_seconds)
    comes_for = 3 * limit + timedelta(seconds=parked_max_age_seconds)
    return EffectRules(comes_for, comes_for + MARGIN, limit, unsure, Begin.AT_ONE)

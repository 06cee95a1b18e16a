"""The events of a team's own aggregate leave their container, and all that subscribers of the same service keep."""

from collections.abc import AsyncIterator, Iterable

from cosmos_outbox.cosmos.upkeep.erasure import SetAsideEraser
from cosmos_outbox.inbox.effect_operator import EffectOperator, OpenEffect
from cosmos_outbox.inbox.errors import NotInTurn, NotSetAside
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations.leaving import REASON
from cosmos_outbox.operations.own_erasing import KeptBy, OwnEraser
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.wiring.outbox import Outbox
from cosmos_outbox.wiring.subscription import Subscription

_EFFECTS_AT_ONCE = 100


def wire_own_eraser(
    settings: Settings, outbox: Outbox, subscriptions: Iterable[tuple[str, Subscription]]
) -> OwnEraser:
    """The eraser of the events of a team's own aggregates. Opens no connection: the first use opens it.

    ``subscriptions``: what the service subscribes to, each with the type of its aggregates.
    """
    return OwnEraser(
        outbox.observer,
        outbox.parking,
        outbox.container(settings.cosmos_container),
        outbox.container(settings.cosmos_parked_container),
        [_kept_by(settings, outbox, kind, each) for kind, each in subscriptions],
    )


def _kept_by(settings: Settings, outbox: Outbox, kind: str, of: Subscription) -> KeptBy:
    """What one subscriber of the service keeps."""
    records = SetAsideEraser(
        outbox.container(settings.cosmos_set_aside_container),
        of.subscriber.subscription,
        settings.event_ttl_seconds,
    )

    async def settle(key: AggregateKey) -> None:
        """By the team's own document, which it has erased: it may live on."""
        if of.read_model is not None:
            await of.read_model.inbox.heal(key)
        if of.effects is not None:
            await give_up(of.effects, key)

    return KeptBy(kind, of.subscriber.collect, records.erase, settle)


async def give_up(operator: EffectOperator, key: AggregateKey) -> bool:
    """Give up the effects of the aggregate that nobody is done with, in their order: a waiting one holds its event."""
    found = [each async for each in _open_effects(operator) if each.aggregate == key]
    for each in sorted(found, key=lambda effect: effect.mark.sequence or 0):
        try:
            try:
                await operator.discard(each.id, REASON)
            except NotInTurn:
                await operator.pass_missing(each.id, REASON)
                await operator.discard(each.id, REASON)
        except NotSetAside:  # it took place meanwhile
            continue
    return bool(found)


async def _open_effects(operator: EffectOperator) -> AsyncIterator[OpenEffect]:
    token = None
    while True:
        page = await operator.page(_EFFECTS_AT_ONCE, token)
        for each in page.items:
            yield each
        token = page.continuation_token
        if token is None:
            return

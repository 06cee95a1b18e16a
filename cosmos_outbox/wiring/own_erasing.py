"""The events of a team's own aggregate leave their container, and all that subscribers of the same service keep."""

from collections.abc import Iterable

from cosmos_outbox.cosmos.upkeep.erasure import SetAsideEraser
from cosmos_outbox.kernel.aggregate_key import AggregateKey
from cosmos_outbox.operations.leaving import WayOut
from cosmos_outbox.operations.own_erasing import KeptBy, OwnEraser
from cosmos_outbox.settings.environment import Settings
from cosmos_outbox.wiring.outbox import Outbox
from cosmos_outbox.wiring.subscription import Subscription


def wire_own_eraser(
    settings: Settings, outbox: Outbox, subscriptions: Iterable[tuple[str, Subscription]]
) -> OwnEraser:
    """The eraser of the events of a team's own aggregates. Opens no connection: the first use opens it.

    ``subscriptions``: what the service subscribes to, each with the type of its aggregates.
    """
    assert outbox.transactions is not None, "the service declares an OwnContainer"
    return OwnEraser(
        WayOut(outbox.observer, outbox.parking),
        outbox.container(settings.cosmos_container),
        outbox.container(settings.cosmos_parked_container),
        outbox.transactions.times,
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

    return KeptBy(kind, of.subscriber.collect, records.erase, settle)

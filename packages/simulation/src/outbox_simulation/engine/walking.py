"""Runs the walks over the read models as an operator does: they find at once what they would find within a day."""

from collections.abc import Mapping

from cosmos_outbox.inbox.healing import WalkProgress
from cosmos_outbox.operations.subscriber import Subscription


async def walk_all(subscriptions: Mapping[str, Subscription], *, source_wins: bool = False) -> bool:
    """Returns whether every entry was compared with its source. Raises StoreUnavailable."""
    ended = [
        await each.healing.rebuild(_ignore, source_wins=source_wins)
        for each in subscriptions.values()
        if each.healing
    ]
    return all(each.side is None and each.last_counts and not each.last_counts.failed for each in ended)


def _ignore(_: WalkProgress) -> None:
    pass
